"""`stepwell fmt`: definitions in canonical words, in the layout of their author."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import click

from stepwell.cli import exits
from stepwell.cli.command import Command
from stepwell.cli.text import visible

_STREAM = Path("-")


@click.command(
    cls=Command,
    example="stepwell fmt workflow.yaml\nstepwell fmt --check workflows/*.yaml\ncat old.json | stepwell fmt -",
    epilog="Exit codes: 0 all is canonical now, 1 problems (or, with --check, something would change), 2 wrong use.",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--check", is_flag=True, help="Only tell which files would change; write nothing.")
def fmt(*, files: tuple[Path, ...], check: bool) -> None:
    """Rewrite workflow and recipe files in canonical words; comments, order and quotes stay. `-`: standard streams."""
    if _STREAM in files and len(files) > 1:
        raise exits.Refusal("`-` stands alone", hint="format the files by themselves")
    for file in files:
        if file != _STREAM and not file.exists():
            raise exits.Refusal(f"{file}: there is no such file")
        if file.is_dir():
            raise exits.Refusal(f"{file} is a folder", hint=f"name the files: stepwell fmt {file}/*.yaml")
    wrong = [file for file in files if not _format(file, check=check)]
    click.get_current_context().exit(exits.FAILED if wrong else exits.OK)


def _format(file: Path, *, check: bool) -> bool:
    """Format one file; false if it is wrong, or would change under `check`."""
    from stepwell.definition.canonical_text import canonical_text
    from stepwell.definition.load import load_file
    from stepwell.errors import DefinitionError
    from stepwell.kinds import discover

    kinds = discover()
    content = sys.stdin.buffer.read() if file == _STREAM else file.read_bytes()
    try:
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            if file == _STREAM:
                raise exits.Refusal("the standard input is not UTF-8", code=exits.FAILED) from None
            load_file(file, kinds=kinds)
            raise
        new = canonical_text(text, file=str(file), kinds=kinds)
    except DefinitionError as error:
        exits.tell_problems(error.problems)
        if file != _STREAM:
            click.echo(f"{visible(file)}: left as it is", err=True)
        return False
    if check:
        if new != text:
            click.echo(f"{visible(file)}: would change")
        return new == text
    if file == _STREAM:
        sys.stdout.flush()
        sys.stdout.buffer.write(new.encode())
        sys.stdout.buffer.flush()
    elif new != text:
        _write(file.resolve(), new.encode())
        click.echo(f"{visible(file)}: rewritten")
    return True


def _write(file: Path, content: bytes) -> None:
    """Replace a file at once, so that it is never half written; its mode stays."""
    number, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(file.stat().st_mode & 0o7777)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
