"""The command `stepwell`: its groups, and what happens with an error that none of them took.

The law of the file: nothing heavy is imported here; a command's module is loaded when the command is named.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from stepwell.cli.command import Group
from stepwell.cli.exits import FAILED, INTERRUPTED, explain
from stepwell.cli.program import program

_COMMANDS = {
    "init": ("stepwell.cli.init:init", "Make a new project that runs at once."),
    "validate": ("stepwell.cli.validate:validate", "Check workflow files; all problems at once."),
    "fmt": ("stepwell.cli.fmt:fmt", "Rewrite definitions in canonical words."),
    "diff": ("stepwell.cli.diff:diff", "What differs between two definitions, by step and field."),
    "graph": ("stepwell.cli.graph:graph", "Draw a workflow: in the terminal, for mermaid, as SVG."),
    "run": ("stepwell.cli.run:run", "Run a workflow here and now."),
    "test": ("stepwell.cli.test:test", "Run the tests of a project's workflows, in virtual time."),
    "runs": ("stepwell.cli.runs:runs", "List, show, follow, resume and cancel runs."),
    "explain": ("stepwell.cli.explain:explain", "Why a run stands where it stands, step by step."),
    "approvals": ("stepwell.cli.approvals:approvals", "See and decide what waits for people."),
    "incidents": ("stepwell.cli.incidents:incidents", "See steps that failed and wait for an operator; settle them."),
    "budget": ("stepwell.cli.budget:budget", "What may be spent on models; let more be spent."),
    "usage": ("stepwell.cli.usage:usage", "Tokens and money that models took."),
    "events": ("stepwell.cli.events:events", "Tell runs that wait for an event that it has happened."),
    "users": ("stepwell.cli.users:users", "Who is known, with roles and departments."),
    "keys": ("stepwell.cli.keys:keys", "Keys with which programs act for people."),
    "audit": ("stepwell.cli.audit:audit", "What people did, newest first."),
    "publish": ("stepwell.cli.publish:publish", "Keep workflows as versions in the library."),
    "workflows": ("stepwell.cli.workflows:workflows", "List, show, roll back and delete published workflows."),
    "kb": ("stepwell.cli.kb:kb", "Fill and search the knowledge base."),
    "recipes": ("stepwell.cli.recipes:recipes", "List the recipes that a workflow can use."),
    "models": ("stepwell.cli.models:models", "See the models that workflows can name, and try one."),
    "tools": ("stepwell.cli.tools:tools", "List, show and call the tools that workflows use."),
    "kinds": ("stepwell.cli.kinds:kinds", "List the kinds of step, with their fields."),
    "schema": ("stepwell.cli.schema:schema", "The language as JSON Schema, for editors."),
    "doctor": ("stepwell.cli.doctor:doctor", "What is configured, reachable and missing, each with a fix."),
    "worker": ("stepwell.cli.worker:worker", "Carry on every run that is due, until stopped."),
    "mcp": ("stepwell.cli.mcp:mcp", "Serve workflows as tools to a program that speaks MCP."),
    "bench": ("stepwell.cli.bench:bench", "Measure how fast this machine carries runs on."),
}

_BEGIN = """\
Stepwell runs AI workflows written in YAML, and carries on after anything.

Where to begin
  # make a project
  {program} init demo
  # run its workflow
  {program} run demo/workflows/hello.yaml -i name=Ana
  # see what waits for a person, and what has run
  {program} approvals list
  {program} runs list
  # see what is configured and what is missing
  {program} doctor

`{program} --help` lists all commands; each has its own `--help` with an example."""


class _Stepwell(Group):
    """The outermost group: turns every error into one paragraph and an exit code."""

    def main(self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any) -> Any:  # type: ignore[override]
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        debug: dict[str, bool] = {}
        try:
            code = super().main(args, standalone_mode=False, obj=debug, **extra)
            sys.stdout.flush()
        except (click.Abort, KeyboardInterrupt):
            click.echo("\ninterrupted", err=True)
            code = INTERRUPTED
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = FAILED
        except Exception as error:
            if debug.get("debug"):
                raise
            code = explain(error)
            _tell_programs(error, sys.argv[1:] if args is None else list(args))
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


def _tell_programs(error: Exception, args: list[str]) -> None:
    """With `--json`, a command about runs prints one object also where it is refused."""
    command = next((word for word in args if not word.startswith("-")), "")
    if "--json" not in args or command not in {"run", "runs", "approvals", "incidents"}:
        return
    from stepwell.cli.exits import as_object
    from stepwell.cli.text import json_text

    click.echo(json_text(as_object(error, event="run_refused" if command == "run" else "refused")))


def _version(context: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 -- click's
    del parameter
    if value:
        from importlib.metadata import version

        click.echo(f"stepwell {version('stepwell')}")
        context.exit()


@click.group(
    cls=_Stepwell,
    lazy=_COMMANDS,
    invoke_without_command=True,
    example="stepwell init demo\nstepwell run demo/workflows/hello.yaml -i name=Ana",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog='Shell completion: eval "$(_STEPWELL_COMPLETE=bash_source stepwell)" (or zsh_source, fish_source).',
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def stepwell(context: click.Context, *, debug: bool) -> None:
    """Run AI workflows written in YAML or JSON, durably."""
    if debug:
        context.obj["debug"] = True
    if context.invoked_subcommand is None:
        click.echo(_BEGIN.format(program=program()))
