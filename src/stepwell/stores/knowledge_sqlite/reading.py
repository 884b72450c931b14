"""Searches and lists of the knowledge base."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from stepwell.errors import NotFound
from stepwell.knowledge.bigrams import Wanted, query_words
from stepwell.knowledge.document import JOINT
from stepwell.knowledge.fusion import DEPTH, Fused
from stepwell.knowledge.ranking import scores
from stepwell.knowledge.showing import DocumentVersion, moment
from stepwell.ports import Collection, Passage

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

Json: TypeAlias = Any
_decode = msgspec.json.Decoder().decode

MOST_WORDS = 32
"""Words of a query that count: the rarest."""
_READ = 200
"""Words of a query that are looked at."""
_MANY = 2000
"""From so many passages on, words that most of them hold are left out if there are others."""
_CANDIDATES = 100


@dataclass(frozen=True, slots=True)
class Search:
    """A search; passages of these collections or of these documents, of all where neither is named."""

    query: str
    collections: Sequence[str] = ()
    documents: Sequence[str] = ()
    limit: int = 5
    min_score: float = 0.0

    @property
    def depth(self) -> int:
        """How many passages of each ranking count."""
        return max(DEPTH, self.limit)


def by_words(connection: sqlite3.Connection, account: str, asked: Search) -> tuple[list[tuple[float, int]], int]:
    """Passages that hold words of the query with their scores, best first; and how many words it has.

    FTS5 finds the candidates, `knowledge.ranking` orders them.
    """
    total = int(connection.execute("SELECT count(*) FROM kb_passage").fetchone()[0])
    wanted = query_words(asked.query)[:_READ]
    counts = {word: _holding(connection, word) for word in wanted}
    sought = _telling(wanted, counts, total)
    if not sought:
        return [], len(wanted)
    rows = _candidates(connection, account, asked, sought)
    ranked = scores(wanted, counts, total, [words for _, words in rows])
    found = sorted(zip(ranked, (number for number, _ in rows), strict=True), key=lambda one: -one[0])
    return [one for one in found if one[0] > 0][: asked.depth], len(wanted)


def _candidates(
    connection: sqlite3.Connection, account: str, asked: Search, sought: list[Wanted]
) -> list[tuple[int, str]]:
    where, values = _named(asked)
    # Every word is quoted, so that nothing in a query is syntax of FTS5; words hold letters and digits alone anyway.
    match = " OR ".join(f'"{word.stem}"*' if word.stem else f'"{word.word}"' for word in sought)
    return connection.execute(
        "SELECT p.id, kb_index.words"  # noqa: S608 -- question marks alone
        " FROM kb_index JOIN kb_passage p ON p.id = kb_index.rowid JOIN kb_document d ON d.id = p.document"
        f" WHERE kb_index MATCH ? AND p.account = ?{where}"
        " ORDER BY bm25(kb_index), d.name, p.id LIMIT ?",
        (match, account, *values, max(_CANDIDATES, 2 * asked.limit)),
    ).fetchall()


def documents_named(connection: sqlite3.Connection, account: str, asked: Search) -> list[int] | None:
    """The numbers of the documents that a search is kept to; None for all."""
    where, values = _named(asked)
    if not where:
        return None
    sql = f"SELECT d.id FROM kb_document d WHERE d.account = ?{where}"  # noqa: S608 -- question marks alone
    return [number for (number,) in connection.execute(sql, (account, *values))]


def _named(asked: Search) -> tuple[str, list[str]]:
    if not (asked.collections or asked.documents):
        return "", []
    where = f" AND (d.collection IN ({_marks(asked.collections)}) OR d.name IN ({_marks(asked.documents)}))"
    return where, [*asked.collections, *asked.documents]


def passages(connection: sqlite3.Connection, ranked: Sequence[tuple[int, Fused]]) -> list[Passage]:
    """The passages of these numbers with their ranks, in this order."""
    found = []
    for number, fused in ranked:
        row = connection.execute(
            "SELECT p.content, d.name, d.collection, d.version, p.heading, p.page, p.start, d.id, a.position"
            " FROM kb_passage p JOIN kb_document d ON d.id = p.document JOIN kb_part a ON a.id = p.part WHERE p.id = ?",
            (number,),
        ).fetchone()
        text, name, collection, version, heading, page, start, document, position = row
        (before,) = connection.execute(
            "SELECT coalesce(sum(size + ?), 0) FROM kb_part WHERE document = ? AND position < ? AND until IS NULL",
            (len(JOINT), document, position),
        ).fetchone()
        found.append(
            Passage(
                text, name, fused.score, collection, version, heading, before + start, before + start + len(text), page,
                fused.by_words, fused.by_meaning,
            )
        )  # fmt: skip
    return found


def documents(connection: sqlite3.Connection, account: str, collection: str) -> list[dict[str, Json]]:
    rows = connection.execute(
        "SELECT d.name, d.collection, d.version, v.at, v.metadata,"
        " (SELECT count(*) FROM kb_part a JOIN kb_passage p ON p.part = a.id"
        "  WHERE a.document = d.id AND a.until IS NULL)"
        " FROM kb_document d JOIN kb_version v ON v.document = d.id AND v.version = d.version"
        " WHERE d.account = ?1 AND (?2 = '' OR d.collection = ?2) ORDER BY d.collection, d.name",
        (account, collection),
    )
    return [
        {
            "document": name,
            "collection": held,
            "version": version,
            "passages": passages,
            "changed": moment(at),
            "metadata": _decode(metadata),
        }
        for name, held, version, at, metadata, passages in rows
    ]


def document(connection: sqlite3.Connection, account: str, name: str, version: int) -> dict[str, Json]:
    """A document at a version, 0 for the newest. Raises NotFound."""
    found = version_of(connection, account, name, version)
    parts = connection.execute(
        "SELECT a.content FROM kb_part a JOIN kb_document d ON d.id = a.document WHERE d.account = ?1 AND d.name = ?2"
        " AND a.since <= ?3 AND (a.until IS NULL OR a.until > ?3) ORDER BY a.position",
        (account, name, found.version),
    )
    return replace(found, text=JOINT.join(content for (content,) in parts)).shown()


def version_of(connection: sqlite3.Connection, account: str, name: str, version: int) -> DocumentVersion:
    """A document at a version (0: the newest), without its text. Raises NotFound."""
    row = connection.execute(
        f"{_VERSION} AND v.version = iif(?3 = 0, d.version, ?3)", (account, name, version)
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no document {name!r}" + (f" with a version {version}" if version else ""))
    return _version(row)


def versions(connection: sqlite3.Connection, account: str, name: str) -> list[dict[str, Json]]:
    """All versions of a document, newest first. Raises NotFound."""
    found = [
        _version(row).listed() for row in connection.execute(f"{_VERSION} ORDER BY v.version DESC", (account, name))
    ]
    if not found:
        raise NotFound(f"there is no document {name!r}")
    return found


_VERSION = (
    "SELECT d.name, v.collection, v.version, d.version, '', v.mode, v.section, v.metadata, v.origin, v.at, v.passages"
    " FROM kb_document d JOIN kb_version v ON v.document = d.id WHERE d.account = ?1 AND d.name = ?2"
)


def _version(row: tuple[Any, ...]) -> DocumentVersion:
    facts = [*row[:7], _decode(row[7]), _decode(row[8]), *row[9:]]
    return DocumentVersion(*facts)


def collections(connection: sqlite3.Connection, account: str, department: str = "") -> list[Collection]:
    """Collections by name: those that were described, and those that hold a document."""
    rows = connection.execute(
        "SELECT n.name, coalesce(c.description, ''), coalesce(c.department, ''),"
        " (SELECT count(*) FROM kb_document d WHERE d.account = ?1 AND d.collection = n.name)"
        " FROM (SELECT name FROM kb_collection WHERE account = ?1"
        "  UNION SELECT collection FROM kb_document WHERE account = ?1) n"
        " LEFT JOIN kb_collection c ON c.account = ?1 AND c.name = n.name ORDER BY n.name",
        (account,),
    )
    found = [Collection(*row) for row in rows]
    return [one for one in found if not department or one.department.casefold() == department.casefold()]


def names(connection: sqlite3.Connection, account: str) -> tuple[list[str], list[str]]:
    """The names of all collections and of all documents."""
    held = [one.name for one in collections(connection, account)]
    rows = connection.execute("SELECT name FROM kb_document WHERE account = ? ORDER BY name", (account,))
    return held, [name for (name,) in rows]


def _holding(connection: sqlite3.Connection, wanted: Wanted) -> int:
    """How many passages hold the word; of one with forms, at most so many."""
    if wanted.stem:
        sql = "SELECT coalesce(sum(doc), 0) FROM kb_words WHERE term >= ?1 AND term < ?1 || char(0x10ffff)"
        return int(connection.execute(sql, (wanted.stem,)).fetchone()[0])
    row = connection.execute("SELECT doc FROM kb_words WHERE term = ?", (wanted.word,)).fetchone()
    return int(row[0]) if row else 0


def _telling(wanted: list[Wanted], counts: dict[Wanted, int], total: int) -> list[Wanted]:
    """The words that tell passages apart, the rarest first; those that no passage holds are left out."""
    known = sorted((word for word in wanted if counts[word]), key=lambda word: counts[word])[:MOST_WORDS]
    if total >= _MANY:
        return [word for word in known if counts[word] * 2 <= total] or known[:1]
    return known


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
