"""`stepwell kb add, rm, describe, index`: what changes the knowledge base."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.kb import account, vectors_said
from stepwell.cli.opening import opened, run_async
from stepwell.cli.program import program
from stepwell.cli.text import json_text, table, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepwell.engine.documents import Added, ToAdd
    from stepwell.engine.engine import Engine

Json: TypeAlias = Any

_PATH: Any = click.Path(path_type=Path)
_WHOSE = "Workflows of this department search the collection by themselves."


@click.command(
    "add",
    cls=Command,
    example="stepwell kb add policies/ --collection policies --department care\nstepwell kb add faq.pdf --document FAQ",
)
@click.argument("files", nargs=-1, required=True, type=_PATH, metavar="FILE|FOLDER...")
@click.option("--collection", default="default", show_default=True, metavar="NAME", help="Where they belong.")
@click.option("--department", default=None, metavar="NAME", help=_WHOSE)
@click.option(
    "--document", default="", metavar="NAME", help="The document's name; default: the file's, without suffix."
)
@click.option("--encoding", default="", metavar="NAME", help="Of text that is not UTF-8, such as gb18030.")
@click.option("--later", is_flag=True, help="Leave the vectors to a worker or to `kb index`.")
@options.acting
@options.database
@options.as_json
def add(  # noqa: PLR0913 -- click passes every option by its name
    *,
    files: tuple[Path, ...],
    collection: str,
    department: str | None,
    document: str,
    encoding: str,
    later: bool,
    acting: str,
    database: str,
    as_json: bool,
) -> None:
    """Add files; a document that is there already gets a new version, one that has not changed gets none.

    Text and Markdown are read as they are; HTML, PDF and DOCX need the extra `docs`. Of a folder all of these below it
    are added, named as their paths in it.
    """
    wanted = _wanted(files, collection, document, encoding)

    async def work() -> list[Added]:
        from stepwell.cli.acting import actor

        async with opened(database, missing="make") as engine:
            by = await actor(engine, acting)
            if department is not None:
                await engine.documents.describe(collection, department=department, by=by)
            done: list[Added] = []
            async for one in engine.documents.add(wanted, by=by):
                done.append(one)
                _tell(one, len(done), len(wanted), as_json=as_json)
            if not later:
                await _index(engine, quiet=as_json)
            return done

    done = run_async(work())
    if as_json:
        click.echo(json_text([_added_json(one) for one in done], indent=2))
    else:
        rows = [(one.document, one.version, one.passages, one.status, str(one.file)) for one in done if not one.problem]
        if rows:
            click.echo("\n".join(table(rows, ["DOCUMENT", "VERSION", "PASSAGES", "STATUS", "FILE"])))
    failed = sum(one.problem is not None for one in done)
    if failed:
        if len(done) > 1:
            click.echo(f"{failed} of {len(done)} files could not be added", err=True)
        click.get_current_context().exit(exits.USAGE if failed == len(done) else exits.FAILED)


def _wanted(files: Sequence[Path], collection: str, document: str, encoding: str) -> list[ToAdd]:
    """The files with the documents that they are to be. Raises InputError, Refusal."""
    from stepwell.adapters.documents import files_below
    from stepwell.engine.documents import ToAdd

    found = files_below(files)
    if not found:
        raise exits.Refusal("there is nothing in it that can be added", hint="text, Markdown, HTML, PDF and DOCX can")
    if document and len(found) > 1:
        raise exits.Refusal("--document names one document, but there are several files", hint="add them one by one")
    wanted = [
        ToAdd(file, document or file.relative_to(folder).with_suffix("").as_posix(), collection, encoding)
        for file, folder in found
    ]
    names = [one.document for one in wanted]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise exits.Refusal(
            f"two of these files would be the document {twice}", hint="give --document, one by one, or add their folder"
        )
    return wanted


def _tell(one: Added, number: int, total: int, *, as_json: bool) -> None:
    """What went wrong with a file at once, and how far it is where somebody watches."""
    if one.problem is not None:
        hint = f"\n  {visible(one.problem.hint)}" if one.problem.hint else ""
        click.echo(f"{visible(one.file)}: {visible(one.problem.message)}{hint}", err=True)
    elif one.note:
        click.echo(f"{visible(one.file)}: {visible(one.note)}", err=True)
    if total > 1 and not as_json and sys.stderr.isatty():
        click.echo(f"\r{number} of {total} files", err=True, nl=number == total)


def _added_json(one: Added) -> dict[str, Json]:
    facts: dict[str, Json] = {
        "file": str(one.file),
        "document": one.document,
        "status": one.status,
        "version": one.version,
        "chunks": one.passages,
    }
    if one.note:
        facts["note"] = one.note
    if one.problem is not None:
        facts["problem"] = {"message": one.problem.message, "hint": one.problem.hint}
    return facts


async def _index(engine: Engine, *, quiet: bool) -> int:
    """Make the vectors that are missing, if there is a model for it; returns how many were made."""
    count = await engine.knowledge.vectors(account())
    if count.problem:
        if not quiet and (said := vectors_said(count)):
            click.echo(said, err=True)
        return 0
    watched = not quiet and sys.stderr.isatty()

    def told(made: int) -> None:
        if watched:
            click.echo(f"\r{made} vectors", err=True, nl=False)

    made = await engine.knowledge.make_vectors(told=told)
    if watched and made:
        click.echo(err=True)
    return made


@click.command("index", cls=Command, example="stepwell kb index")
@options.database
@options.as_json
def index(*, database: str, as_json: bool) -> None:
    """Make the vectors that are missing, so that passages are found by their meaning too."""

    async def work() -> tuple[int, Any]:
        async with opened(database) as engine:
            made = await _index(engine, quiet=as_json)
            return made, await engine.knowledge.vectors(account())

    made, count = run_async(work())
    if as_json:
        told = {"made": made, "vectors": count.vectors, "passages": count.passages, "problem": count.problem}
        click.echo(json_text(told, indent=2))
    elif not count.problem:
        click.echo(f"{made} vectors made; {count.vectors} of {count.passages} passages have one")
    if count.problem:
        click.get_current_context().exit(exits.FAILED)


@click.command("rm", cls=Command, example="stepwell kb rm old-policy --yes")
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.acting
@options.database
def remove(*, documents: tuple[str, ...], yes: bool, acting: str, database: str) -> None:
    """Remove documents with all their versions, for ever. What runs cited of them stays with the runs."""
    if not yes and not sys.stdin.isatty():
        raise exits.Refusal("documents are removed with all their versions", hint="say --yes")
    if not yes:
        click.confirm(f"remove {', '.join(visible(one) for one in documents)} with all versions?", abort=True)

    async def work() -> list[int]:
        from stepwell.cli.acting import actor
        from stepwell.errors import NotFound

        async with opened(database) as engine:
            by = await actor(engine, acting)
            try:
                return [await engine.documents.remove(document, by=by) for document in documents]
            except NotFound as missing:
                hint = f"`{program()} kb list` shows what there is"
                raise exits.Refusal(str(missing), hint=hint, kind="not_found") from None

    for document, versions in zip(documents, run_async(work()), strict=True):
        click.echo(f"{visible(document)}: removed, {versions} version{'' if versions == 1 else 's'}")


@click.command("describe", cls=Command, example='stepwell kb describe policies --department care --text "What holds"')
@click.argument("collection")
@click.option("--text", "description", default=None, metavar="TEXT", help="What it holds.")
@click.option("--department", default=None, metavar="NAME", help=f"{_WHOSE} Empty for none.")
@options.acting
@options.database
def describe(*, collection: str, description: str | None, department: str | None, acting: str, database: str) -> None:
    """Make a collection, or say what it holds and whose it is."""

    async def work() -> Any:
        from stepwell.cli.acting import actor

        async with opened(database, missing="make") as engine:
            by = await actor(engine, acting)
            return await engine.documents.describe(collection, description=description, department=department, by=by)

    made = run_async(work())
    whose = f", of the department {visible(made.department)}" if made.department else ""
    said = f": {visible(made.description)}" if made.description else ""
    click.echo(f"{visible(made.name)}{whose}, {made.documents} documents{said}")
