"""Searches and lists of the knowledge base."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from stepwell.errors import NotFound
from stepwell.knowledge.bigrams import Wanted, query_words
from stepwell.knowledge.document import JOINT
from stepwell.knowledge.ranking import scores
from stepwell.knowledge.showing import DocumentVersion, moment
from stepwell.ports import Passage

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


def search(connection: sqlite3.Connection, account: str, asked: Search) -> list[Passage]:
    """Passages that hold words of the query, best first: FTS5 finds the candidates, `knowledge.ranking` orders them."""
    total = int(connection.execute("SELECT count(*) FROM kb_passage").fetchone()[0])
    wanted = query_words(asked.query)[:_READ]
    counts = {word: _holding(connection, word) for word in wanted}
    sought = _telling(wanted, counts, total)
    if not sought:
        return []
    rows = _candidates(connection, account, asked, sought)
    ranked = scores(wanted, counts, total, [row[4] for row in rows])
    found = [
        Passage(text, name, score, collection, version)
        for (text, name, collection, version, _), score in zip(rows, ranked, strict=True)
        if score > 0 and score >= asked.min_score
    ]
    found.sort(key=lambda passage: -passage.score)
    return found[: asked.limit]


def _candidates(
    connection: sqlite3.Connection, account: str, asked: Search, sought: list[Wanted]
) -> list[tuple[str, str, str, int, str]]:
    where, values = "", []
    if asked.collections or asked.documents:
        where = f" AND (d.collection IN ({_marks(asked.collections)}) OR d.name IN ({_marks(asked.documents)}))"
        values = [*asked.collections, *asked.documents]
    # Every word is quoted, so that nothing in a query is syntax of FTS5; words hold letters and digits alone anyway.
    match = " OR ".join(f'"{word.stem}"*' if word.stem else f'"{word.word}"' for word in sought)
    return connection.execute(
        "SELECT p.content, d.name, d.collection, d.version, kb_index.words"  # noqa: S608 -- question marks alone
        " FROM kb_index JOIN kb_passage p ON p.id = kb_index.rowid JOIN kb_document d ON d.id = p.document"
        f" WHERE kb_index MATCH ? AND p.account = ?{where}"
        " ORDER BY bm25(kb_index), d.name, p.id LIMIT ?",
        (match, account, *values, max(_CANDIDATES, 2 * asked.limit)),
    ).fetchall()


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
    row = connection.execute(
        "SELECT d.id, d.version, v.version, v.collection, v.mode, v.section, v.metadata, v.origin, v.at"
        " FROM kb_document d JOIN kb_version v ON v.document = d.id AND v.version = iif(?3 = 0, d.version, ?3)"
        " WHERE d.account = ?1 AND d.name = ?2",
        (account, name, version),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no document {name!r}" + (f" with a version {version}" if version else ""))
    parts = connection.execute(
        "SELECT content FROM kb_part WHERE document = ?1 AND since <= ?2 AND (until IS NULL OR until > ?2)"
        " ORDER BY position",
        (row[0], row[2]),
    )
    text = JOINT.join(content for (content,) in parts)
    metadata, origin = _decode(row[6]), _decode(row[7])
    return DocumentVersion(name, row[3], row[2], row[1], text, row[4], row[5], metadata, origin, row[8]).shown()


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
