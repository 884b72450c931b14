"""Commands and groups of the command line: loaded when they are used, each with an example, helpful when mistyped."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any

import click

from stepwell.cli.exits import Mistyped
from stepwell.cli.program import program


def _debug() -> click.Option:
    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        callback=_keep_debug,
        help="Show the traceback of an error.",
    )


def _keep_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 -- click's
    del parameter
    if value:
        context.ensure_object(dict)["debug"] = True


class Command(click.Command):
    """A command whose help ends with an example."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example
        self.params.append(_debug())

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.example:
            with formatter.section("Example"):
                for line in self.example.strip().splitlines():
                    formatter.write(f"{'':>{formatter.current_indent}}{line.strip()}\n")


class Group(click.Group):
    """A group whose commands are imported when they are named.

    `lazy` maps a name to `(module:attribute, short help)`; `default` is the command meant where none is named.
    """

    def __init__(
        self,
        *args: Any,
        lazy: dict[str, tuple[str, str]] | None = None,
        default: str = "",
        example: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy or {}
        self.default = default
        self.example = example
        self.no_args_is_help = not default and self.no_args_is_help

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return [*self.lazy, *(name for name in self.commands if name not in self.lazy)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in self.lazy:
            module, _, attribute = self.lazy[cmd_name][0].partition(":")
            self.commands[cmd_name] = getattr(import_module(module), attribute)
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asks_help = bool({"--help", "-h"} & set(args[:1]))
        if self.default and not ctx.resilient_parsing and not asks_help and (not args or args[0].startswith("-")):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.list_commands(ctx) and not ctx.resilient_parsing:
            raise self._unknown(ctx, name)
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: click.Context, name: str) -> Mistyped:
        close = difflib.get_close_matches(name, self.list_commands(ctx), n=1, cutoff=0.6)
        hint = f"did you mean `{ctx.command_path} {close[0]}`?" if close else ""
        if name.endswith((".yaml", ".yml", ".json")):
            hint = f"to run a workflow: `{program()} run {name}`"
        return Mistyped(f"there is no command `{name}`", ctx, hint=hint)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            known = self.lazy.get(name)
            rows.append((name, known[1] if known else self.commands[name].get_short_help_str(110)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.example:
            with formatter.section("Example"):
                for line in self.example.strip().splitlines():
                    formatter.write(f"{'':>{formatter.current_indent}}{line.strip()}\n")
