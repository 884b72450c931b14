"""Exit codes (SURFACES, Exact answers) and errors as one paragraph each.

The law of the file: every error that leaves a command passes `explain()`: what, where, how to fix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepwell.cli.program import program
from stepwell.cli.text import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepwell.errors import Problem

OK = 0
FAILED = 1
USAGE = 2
WAITS_FOR_PERSON = 3
SUSPENDED = 4
WAITS_FOR_TIME = 5
INTERRUPTED = 130

_BY_STATUS = {
    "completed": OK,
    "failed": FAILED,
    "timed_out": FAILED,
    "compensated": FAILED,
    "cancelled": FAILED,
    "pending_approval": WAITS_FOR_PERSON,
    "suspended": SUSPENDED,
    "stuck": SUSPENDED,
    "waiting": WAITS_FOR_TIME,
}


def of_status(status: str) -> int:
    """The exit code for the state in which a run was left; a run left while it can go on was interrupted."""
    return _BY_STATUS.get(status, INTERRUPTED)


class Refusal(Exception):
    """A command ends here with a reason; `hint` says how to fix it, `kind` tells programs what it is."""

    def __init__(self, message: str, *, hint: str = "", code: int = USAGE, kind: str = "usage") -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code
        self.kind = kind


class Mistyped(click.UsageError):
    """A wrong use for which there is a better hint than `--help`."""

    def __init__(self, message: str, context: click.Context | None = None, *, hint: str = "") -> None:
        super().__init__(message, context)
        self.hint = hint


def tell_error(message: str, *, hint: str = "", word: str = "error") -> None:
    """Print an error on the error stream."""
    head = click.style(f"{word}:", fg="red", bold=True)
    lines = visible_lines(message)
    click.echo("\n".join([f"{head} {lines[0]}", *(f"  {line}" for line in lines[1:])]), err=True)
    if hint:
        click.echo(f"  {click.style('hint:', fg='cyan')} {visible(hint)}", err=True)


_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


def problem_lines(problem: Problem) -> list[str]:
    """A problem as lines: place, severity, code, message, and the hint below."""
    place = problem.file
    if problem.line:
        place = f"{place}:{problem.line}:{problem.column}"
    elif problem.path:
        place = f"{place}{'#' if place else ''}{problem.path}"
    head = f"{visible(place)}: " if place else ""
    word = click.style(f"{problem.severity}[{problem.code}]", fg=_COLOURS.get(problem.severity), bold=True)
    lines = visible_lines(problem.message)
    shown = [f"{head}{word} {lines[0]}", *(f"    {line}" for line in lines[1:])]
    if problem.hint:
        shown.append(f"    {click.style('hint:', fg='cyan')} {visible(problem.hint)}")
    return shown


def tell_problems(problems: Iterable[Problem], *, err: bool = True) -> None:
    """Print problems, each where it is and how to fix it."""
    for problem in problems:
        for line in problem_lines(problem):
            click.echo(line, err=err)


def explain(error: Exception) -> int:
    """Print why a command failed and return its exit code."""
    from stepwell import errors

    if isinstance(error, errors.DefinitionError | errors.InputError):
        tell_problems(error.problems)
        return USAGE
    message, hint, code = _told(error)
    tell_error(message, hint=hint)
    return code


def as_object(error: Exception, *, event: str) -> dict[str, object]:
    """Why a command failed, for programs; `refused` means that it has changed nothing."""
    from dataclasses import asdict

    from stepwell import errors

    kind = _kind(error)
    said: dict[str, object] = {"kind": kind, "message": _told(error)[0]}
    if isinstance(error, errors.DefinitionError | errors.InputError):
        problems = [asdict(problem) for problem in error.problems]
        said |= {"message": "; ".join(problem.message for problem in error.problems[:3]), "problems": problems}
    if kind in {"unavailable", "error"}:
        return {"run": None, "event": "error", "status": "error", "error": said}
    return {"run": None, "event": event, "status": "refused", "error": said}


def _kind(error: Exception) -> str:
    from stepwell import errors

    if isinstance(error, Refusal):
        return error.kind
    kinds: tuple[tuple[type[Exception], str], ...] = (
        (errors.DefinitionError, "definition"),
        (errors.InputError, "input"),
        (errors.NotFound, "not_found"),
        (errors.Conflict, "conflict"),
        (errors.Forbidden, "forbidden"),
        (errors.Unavailable, "unavailable"),
        (click.ClickException, "usage"),
    )
    return next((kind for found, kind in kinds if isinstance(error, found)), "error")


def _told(error: Exception) -> tuple[str, str, int]:
    """What is said of an error: message, hint, exit code."""
    from stepwell import errors

    told = (str(error), "", FAILED)
    match error:
        case Refusal():
            told = str(error), error.hint, error.code
        case click.UsageError():
            told = _usage(error)
        case click.ClickException():
            told = error.format_message(), "", error.exit_code
        case errors.NotFound():
            hint = f"`{program()} runs list` and `{program()} approvals list --all` show what there is"
            told = str(error), hint, USAGE
        case errors.Forbidden():
            told = str(error), _who_may(str(error)), FAILED
        case errors.Unavailable():
            hint = f"nothing that was recorded is lost; once the cause is gone, try again (`{program()} runs resume`)"
            told = str(error), hint, FAILED
        case errors.StepwellError():
            pass
        case OSError() if error.filename:
            told = f"{error.filename}: {error.strerror}", "", USAGE
        case _:
            hint = "run the command again with --debug for the traceback, and report it please"
            told = f"Stepwell itself went wrong: {type(error).__name__}: {error}", hint, FAILED
    return told


def _who_may(refused: str) -> str:
    """What helps somebody who may not: nothing does where it is not a matter of who is known with which role."""
    if refused.startswith("local operator"):
        return f"say who you are with --as NAME; `{program()} users list` shows who is known here"
    if any(words in refused for words in ("it takes", "it is for", "nobody is called", "that is for")):
        return f"`{program()} users list` shows who is known here, and with which roles"
    return ""


def _usage(error: click.UsageError) -> tuple[str, str, int]:
    path = error.ctx.command_path if error.ctx is not None else "stepwell"
    hint = error.hint if isinstance(error, Mistyped) else ""
    return error.format_message(), hint or f"`{path} --help` shows how it is used", USAGE
