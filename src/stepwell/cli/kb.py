"""`stepwell kb`: the knowledge base, filled from files and searched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Group
from stepwell.cli.opening import NoDatabase, opened, run_async, tell_no_database
from stepwell.cli.program import program
from stepwell.cli.text import json_text, table, visible, visible_lines

if TYPE_CHECKING:
    from stepwell.ports import Passage, Written

Json: TypeAlias = Any

_TEXT = (".txt", ".md", ".markdown")
_COLLECTION = "Only in this collection; may be repeated."


@click.group(cls=Group, default="list", example='stepwell kb add policies/*.md\nstepwell kb search "refund damaged"')
def kb() -> None:
    """Fill and search the knowledge base."""


@kb.command("list", example="stepwell kb list --collection policies")
@click.option("--collection", default="", metavar="NAME", help="Only this collection.")
@options.database
@options.as_json
def list_documents(*, collection: str, database: str, as_json: bool) -> None:
    """List documents with their versions."""

    async def work() -> list[dict[str, Json]]:
        async with opened(database) as engine:
            return await engine.knowledge.documents(_account(), collection=collection)

    try:
        found = run_async(work())
    except NoDatabase as none:
        tell_no_database(none, as_json=as_json)
        return
    if as_json:
        click.echo(json_text(found, indent=2))
    elif not found:
        click.echo(f"no documents; `{program()} kb add FILE...` adds some")
    else:
        heads = list(dict.fromkeys(name for one in found for name, value in one.items() if not isinstance(value, dict)))
        rows = [[_cell(one.get(head)) for head in heads] for one in found]
        click.echo("\n".join(table(rows, [head.upper() for head in heads])))


def _account() -> str:
    from stepwell.engine.engine import ACCOUNT

    return ACCOUNT


def _cell(value: Json) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json_text(value)


@kb.command("search", example='stepwell kb search "refund damaged" --limit 3')
@click.argument("query")
@click.option("--collection", "collections", multiple=True, metavar="NAME", help=_COLLECTION)
@click.option("--limit", default=5, show_default=True, type=click.IntRange(1, 100), help="How many passages.")
@options.database
@options.as_json
def search(*, query: str, collections: tuple[str, ...], limit: int, database: str, as_json: bool) -> None:
    """Find passages."""

    async def work() -> list[Passage]:
        async with opened(database) as engine:
            return await engine.knowledge.search(_account(), query, collections=collections, limit=limit)

    try:
        found = run_async(work())
    except NoDatabase as none:
        tell_no_database(none, as_json=as_json)
        return
    if as_json:
        told = [
            {"text": one.text, "document": one.document, "collection": one.collection, "score": one.score}
            for one in found
        ]
        click.echo(json_text(told, indent=2))
        return
    if not found:
        click.echo("nothing found")
    for one in found:
        where = f"{visible(one.document)}  {visible(one.collection)}  {one.score:.2f}"
        click.echo(click.style(where, bold=True))
        click.echo("\n".join(f"  {line}" for line in visible_lines(one.text)))


@kb.command(
    "add", example="stepwell kb add policies/*.md --collection policies\nstepwell kb add faq.txt --document FAQ"
)
@click.argument("files", nargs=-1, required=True, type=options.FILE, metavar="FILE...")
@click.option("--collection", default="default", show_default=True, metavar="NAME", help="Where they belong.")
@click.option(
    "--document", default="", metavar="NAME", help="The document's name; default: the file's, without suffix."
)
@options.database
@options.as_json
def add(*, files: tuple[Path, ...], collection: str, document: str, database: str, as_json: bool) -> None:
    """Add text and Markdown files; a document that is there already gets a new version."""
    if document and len(files) > 1:
        raise exits.Refusal("--document names one document, but there are several files", hint="add them one by one")
    texts = [(document or file.stem, file, _text(file)) for file in files]
    names = [name for name, _, _ in texts]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise exits.Refusal(f"two of these files would be the document {twice}", hint="give --document, one by one")
    written = run_async(_write(texts, collection, database))
    if as_json:
        told = [{"document": one.document, "version": one.version, "chunks": one.chunks} for one in written]
        click.echo(json_text(told, indent=2))
    else:
        rows = [(one.document, one.version, one.chunks, str(file)) for one, file in zip(written, files, strict=True)]
        click.echo("\n".join(table(rows, ["DOCUMENT", "VERSION", "PASSAGES", "FILE"])))


async def _write(texts: list[tuple[str, Path, str]], collection: str, database: str) -> list[Written]:
    from stepwell.ports import DocumentWrite

    async with opened(database, missing="make") as engine:
        written = [
            await engine.knowledge.write(
                _account(),
                DocumentWrite(name, text, collection, "replace", metadata={"file": file.name}),
            )
            for name, file, text in texts
        ]
        if not (await engine.knowledge.vectors(_account())).problem:
            await engine.knowledge.make_vectors()
        return written


def _text(file: Path) -> str:
    if file.suffix.lower() not in _TEXT:
        raise exits.Refusal(f"{file}: only text and Markdown ({', '.join(_TEXT)}) can be added so far")
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise exits.Refusal(f"{file}: this is not UTF-8 text: byte {error.start} is wrong") from None
