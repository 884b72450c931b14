"""Vectors of passages: which are missing, how they are kept, and which are nearest to one.

The law of the file: what has no vector yet stands in the backlog, in the transaction that wrote it; a vector is only
kept for a passage that still is what was embedded.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepwell.knowledge.document import told
from stepwell.knowledge.vectors import packed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

BATCH = 4
"""Passages that are embedded at a time: between two batches a search may have its turn."""
_STALE = 0.25
"""Part of the vectors in memory that may be of passages that are gone."""
_SPARE = 3
"""So many times the passages wanted are looked at, in case some are gone."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A passage that waits for its vector."""

    passage: int
    heading: str
    content: str

    def told(self) -> str:
        return told(self.heading, self.content)


def missing(connection: sqlite3.Connection) -> list[Missing]:
    """The next passages that wait, those that waited longest first."""
    rows = connection.execute(
        "SELECT p.id, p.heading, p.content FROM kb_backlog b JOIN kb_passage p ON p.id = b.passage"
        " ORDER BY b.passage LIMIT ?",
        (BATCH,),
    )
    return [Missing(*row) for row in rows]


def keep(connection: sqlite3.Connection, model: str, found: Sequence[tuple[Missing, Sequence[float]]]) -> None:
    """Keep vectors; passages that are gone meanwhile, or are others under the same number, get none."""
    for passage, vector in found:
        same = (passage.passage, passage.content, passage.heading)
        connection.execute(
            "INSERT OR REPLACE INTO kb_vector (account, document, passage, model, vector)"
            " SELECT account, document, id, ?4, ?5 FROM kb_passage WHERE id = ?1 AND content = ?2 AND heading = ?3",
            (*same, model, packed(vector)),
        )
        connection.execute(
            "DELETE FROM kb_backlog WHERE passage IN"
            " (SELECT id FROM kb_passage WHERE id = ?1 AND content = ?2 AND heading = ?3)",
            same,
        )


def disown(connection: sqlite3.Connection, model: str) -> None:
    """Put passages whose vectors another model made on the backlog; until it is their turn they are kept."""
    connection.execute(
        "INSERT OR IGNORE INTO kb_backlog (passage, account) SELECT passage, account FROM kb_vector WHERE model <> ?",
        (model,),
    )


def counted(connection: sqlite3.Connection, account: str, model: str) -> tuple[int, int]:
    """How many passages an account has, and how many of them have a vector of the model."""
    return tuple(
        connection.execute(
            "SELECT (SELECT count(*) FROM kb_passage WHERE account = ?1),"
            " (SELECT count(*) FROM kb_vector WHERE account = ?1 AND model = ?2)",
            (account, model),
        ).fetchone()
    )


def without(connection: sqlite3.Connection, passages: Sequence[int], model: str) -> set[int]:
    """Those of some passages that have no vector of the model."""
    marks = ", ".join("?" * len(passages))
    rows = connection.execute(
        f"SELECT passage FROM kb_vector WHERE passage IN ({marks}) AND model = ?",  # noqa: S608 -- question marks alone
        (*passages, model),
    )
    return {*passages} - {number for (number,) in rows}


class Nearest:
    """The vectors of every account in memory, as far as they were searched; used by several threads.

    What is new is read on; what is gone is passed over, and forgotten with all the rest once it is much.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._tables: dict[str, _Table] = {}

    def find(
        self,
        connection: sqlite3.Connection,
        account: str,
        vector: Sequence[float],
        documents: Sequence[int] | None,
        depth: int,
    ) -> list[int] | None:
        """The passages nearest to the vector, of these documents or of all; None if the account has no vectors."""
        import numpy as np

        with self._lock:
            table = self._tables.get(account)
            if table is None or table.outdated(connection, account, self._model):
                table = self._tables[account] = _Table()
            table.read_on(connection, account, self._model)
            matrix, numbers, held = table.matrix, table.numbers, table.documents
        if not len(numbers):
            return None
        near = matrix @ np.asarray(vector, np.float32)
        if documents is not None:
            here = np.isin(held, documents)
            near, numbers = near[here], numbers[here]
        wanted = _SPARE * depth
        if len(near) > wanted:
            best = np.argpartition(-near, wanted)[:wanted]
            near, numbers = near[best], numbers[best]
        order = np.lexsort((numbers, -near))
        return _still_there(connection, [int(numbers[at]) for at in order], depth)


def _still_there(connection: sqlite3.Connection, numbers: Sequence[int], depth: int) -> list[int]:
    found: list[int] = []
    for number in numbers:
        row = connection.execute("SELECT passage FROM kb_vector WHERE number = ?", (number,)).fetchone()
        if row is not None:
            found.append(int(row[0]))
        if len(found) == depth:
            break
    return found


class _Table:
    """Vectors of one account. Its arrays are never changed, only put in the place of others."""

    def __init__(self) -> None:
        self.matrix: Any = None
        self.numbers: Any = ()
        self.documents: Any = ()
        self._last = 0

    def outdated(self, connection: sqlite3.Connection, account: str, model: str) -> bool:
        """Whether too much of it is of passages that are gone."""
        if not len(self.numbers):
            return False
        (there,) = connection.execute(
            "SELECT count(*) FROM kb_vector WHERE account = ? AND model = ? AND number <= ?",
            (account, model, self._last),
        ).fetchone()
        return bool(len(self.numbers) - there > _STALE * len(self.numbers))

    def read_on(self, connection: sqlite3.Connection, account: str, model: str) -> None:
        import numpy as np

        rows = connection.execute(
            "SELECT number, document, vector FROM kb_vector WHERE account = ? AND model = ? AND number > ?"
            " ORDER BY number",
            (account, model, self._last),
        ).fetchall()
        if not rows:
            return
        read = np.frombuffer(b"".join(row[2] for row in rows), "<f2").reshape(len(rows), -1)
        matrix, numbers = read.astype(np.float32), np.array([row[0] for row in rows])
        documents = np.array([row[1] for row in rows])
        if self._last:
            matrix = np.concatenate([self.matrix, matrix])
            numbers = np.concatenate([self.numbers, numbers])
            documents = np.concatenate([self.documents, documents])
        self.matrix, self.numbers, self.documents, self._last = matrix, numbers, documents, rows[-1][0]
