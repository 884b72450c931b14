"""`stepwell kb`: the knowledge base, looked into and searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Group
from stepwell.cli.opening import NoDatabase, opened, run_async, tell_no_database
from stepwell.cli.program import program
from stepwell.cli.text import json_text, table, visible, visible_lines

if TYPE_CHECKING:
    from stepwell.ports import Collection, KnowledgeStore, Passage, VectorCount

Json: TypeAlias = Any

_COLLECTION = "Only in this collection; may be repeated."


@click.group(
    cls=Group,
    default="list",
    example='stepwell kb add policies/ --collection policies --department care\nstepwell kb search "refund damaged"',
    lazy={
        "add": ("stepwell.cli.kb_change:add", "Add files: text, Markdown, HTML, PDF, DOCX, or folders of them."),
        "rm": ("stepwell.cli.kb_change:remove", "Remove documents with all their versions."),
        "describe": ("stepwell.cli.kb_change:describe", "Make a collection, or say what it is and whose."),
        "index": ("stepwell.cli.kb_change:index", "Make the vectors that are missing."),
    },
)
def kb() -> None:
    """Fill and search the knowledge base."""


def account() -> str:
    """Whose knowledge base it is."""
    from stepwell.engine.engine import ACCOUNT

    return ACCOUNT


@kb.command("list", example="stepwell kb list --collection policies")
@click.option("--collection", default="", metavar="NAME", help="Only this collection.")
@options.database
@options.as_json
def list_documents(*, collection: str, database: str, as_json: bool) -> None:
    """List documents with their versions."""

    async def work() -> tuple[list[dict[str, Json]], VectorCount]:
        async with opened(database) as engine:
            found = await engine.knowledge.documents(account(), collection=collection)
            return found, await engine.knowledge.vectors(account())

    try:
        found, count = run_async(work())
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
        if said := vectors_said(count):
            click.echo(said, err=True)


def vectors_said(count: VectorCount) -> str:
    """What is to be known of vectors: nothing where every passage has one."""
    if count.vectors >= count.passages:
        return ""
    if count.problem:
        return (
            f"found by words alone, {count.vectors} of {count.passages} passages have vectors: {visible(count.problem)}"
        )
    return (
        f"{count.vectors} of {count.passages} passages have vectors so far; `{program()} kb index` makes the others now"
    )


def _cell(value: Json) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json_text(value)


@kb.command("collections", example="stepwell kb collections --department care")
@click.option("--department", default="", metavar="NAME", help="Only those of this department.")
@options.database
@options.as_json
def list_collections(*, department: str, database: str, as_json: bool) -> None:
    """List collections with their departments."""

    async def work() -> list[Collection]:
        async with opened(database) as engine:
            return await engine.knowledge.collections(account(), department=department)

    try:
        found = run_async(work())
    except NoDatabase as none:
        tell_no_database(none, as_json=as_json)
        return
    if as_json:
        told = [
            {"name": one.name, "department": one.department, "documents": one.documents, "description": one.description}
            for one in found
        ]
        click.echo(json_text(told, indent=2))
    elif not found:
        click.echo(f"no collections; `{program()} kb add FILE... --collection NAME` makes one")
    else:
        rows = [(one.name, one.department or "-", one.documents, one.description or "-") for one in found]
        click.echo("\n".join(table(rows, ["COLLECTION", "DEPARTMENT", "DOCUMENTS", "DESCRIPTION"])))


@kb.command("search", example='stepwell kb search "refund damaged" --limit 3\nstepwell kb search 退款 --explain')
@click.argument("query")
@click.option("--collection", "collections", multiple=True, metavar="NAME", help=_COLLECTION)
@click.option("--document", "documents", multiple=True, metavar="NAME", help="Only in this document; may be repeated.")
@click.option("--limit", default=5, show_default=True, type=click.IntRange(1, 100), help="How many passages.")
@click.option("--explain", is_flag=True, help="Show the ranks by words and by meaning that made each score.")
@options.database
@options.as_json
def search(  # noqa: PLR0913 -- click passes every option by its name
    *,
    query: str,
    collections: tuple[str, ...],
    documents: tuple[str, ...],
    limit: int,
    explain: bool,
    database: str,
    as_json: bool,
) -> None:
    """Find passages by words and by meaning."""

    async def work() -> tuple[list[Passage], VectorCount]:
        async with opened(database) as engine:
            store = engine.knowledge
            found = await store.search(account(), query, collections=collections, documents=documents, limit=limit)
            return found, await store.vectors(account())

    try:
        found, count = run_async(work())
    except NoDatabase as none:
        tell_no_database(none, as_json=as_json)
        return
    if as_json:
        click.echo(json_text([passage_json(one) for one in found], indent=2))
        return
    if not found:
        click.echo("nothing found")
    for one in found:
        _print_passage(one, explain=explain)
    if said := vectors_said(count):
        click.echo(said, err=True)


def passage_json(passage: Passage) -> dict[str, Json]:
    """A passage as programs see it."""
    return {
        "text": passage.text,
        "document": passage.document,
        "version": passage.version,
        "collection": passage.collection,
        "heading": passage.heading,
        "page": passage.page,
        "start": passage.start,
        "end": passage.end,
        "score": passage.score,
        "by_words": passage.by_words,
        "by_meaning": passage.by_meaning,
    }


def _print_passage(passage: Passage, *, explain: bool) -> None:
    where = [f"{visible(passage.document)}@{passage.version}", visible(passage.collection)]
    where += [visible(passage.heading)] if passage.heading else []
    where += [f"page {passage.page}"] if passage.page else []
    click.echo(click.style("  ".join([*where, f"{passage.score:.2f}"]), bold=True))
    if explain:
        words, meaning = passage.by_words or "-", passage.by_meaning or "-"
        click.echo(f"  rank by words: {words}, by meaning: {meaning}; characters {passage.start} to {passage.end}")
    click.echo("\n".join(f"  {line}" for line in visible_lines(passage.text)))


@kb.command("show", example="stepwell kb show refund-policy\nstepwell kb show refund-policy@2")
@click.argument("document", metavar="DOCUMENT[@VERSION]")
@click.option(
    "--version", default=0, metavar="NUMBER", type=click.IntRange(0), help="This version; default: the newest."
)
@options.database
@options.as_json
def show(*, document: str, version: int, database: str, as_json: bool) -> None:
    """Show a document's text, and where it is from."""

    async def work() -> dict[str, Json]:
        async with opened(database) as engine:
            name, number = await _meant(engine.knowledge, document, version)
            return await engine.knowledge.document(account(), name, version=number)

    found = run_async(work())
    if as_json:
        click.echo(json_text(found, indent=2))
        return
    newest = "" if found["version"] == found["newest"] else f" of {found['newest']}"
    head = f"{visible(found['document'])}  {visible(found['collection'])}  version {found['version']}{newest}"
    click.echo(click.style(f"{head}  {found['changed']}", bold=True))
    for name in ("origin", "metadata"):
        if found[name]:
            click.echo(f"{name}: {json_text(found[name])}")
    click.echo()
    click.echo("\n".join(visible_lines(found["text"])))


async def _meant(store: KnowledgeStore, document: str, version: int) -> tuple[str, int]:
    """Name and version of `NAME`, or of `NAME@VERSION` where nothing has that name. Raises Refusal."""
    from stepwell.definition.suggest import close
    from stepwell.knowledge.document import as_kept

    _, known = await store.names(account())
    name, _, number = document.rpartition("@")
    if as_kept(document) in known:
        return document, version
    if number.isdecimal() and as_kept(name) in known:
        return name, version or int(number)
    near = close(document, known)
    hint = f"did you mean {near}?" if near else f"`{program()} kb list` shows what there is"
    raise exits.Refusal(f"there is no document {visible(document)}", hint=hint, kind="not_found")


@kb.command("history", example="stepwell kb history refund-policy")
@click.argument("document")
@options.database
@options.as_json
def history(*, document: str, database: str, as_json: bool) -> None:
    """List a document's versions: when each was made, how, and by what."""

    async def work() -> list[dict[str, Json]]:
        async with opened(database) as engine:
            name, _ = await _meant(engine.knowledge, document, 0)
            return await engine.knowledge.versions(account(), name)

    found = run_async(work())
    if as_json:
        click.echo(json_text(found, indent=2))
        return
    rows = [(one["version"], one["changed"], _how(one), one["collection"], _from(one["origin"])) for one in found]
    click.echo("\n".join(table(rows, ["VERSION", "CHANGED", "MODE", "COLLECTION", "FROM"])))


def _how(version: dict[str, Json]) -> str:
    return f"{version['mode']} {version['section']}".strip()


def _from(origin: dict[str, Json]) -> str:
    """Where a version came from, and whose version it took the place of."""
    said = [f"run {origin['run']} {origin.get('path', '')}".strip()] if origin.get("run") else []
    said += [str(origin["file"])] if origin.get("file") else []
    by = origin.get("by") or origin.get("requester")
    said += [f"by {by}"] if by else []
    if replaced := origin.get("replaced"):
        whose = f" of run {replaced['run']}" if replaced.get("run") else ""
        said.append(f"in place of version {replaced['version']}{whose}")
    return ", ".join(said) or "-"
