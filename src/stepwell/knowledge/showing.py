"""Documents as plain data, the same from every store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """A document at one version; `newest` is the version it has now, `at` UTC seconds since 1970."""

    document: str
    collection: str
    version: int
    newest: int
    text: str
    mode: str
    section: str
    metadata: dict[str, Json]
    origin: dict[str, Json]
    at: float
    passages: int = 0

    def shown(self) -> dict[str, Json]:
        return {
            "document": self.document,
            "collection": self.collection,
            "version": self.version,
            "newest": self.newest,
            "text": self.text,
            "mode": self.mode,
            "section": self.section,
            "metadata": self.metadata,
            "origin": self.origin,
            "changed": moment(self.at),
        }

    def listed(self) -> dict[str, Json]:
        """The same in a list of versions: without text, with how many passages the write had."""
        shown = self.shown() | {"passages": self.passages}
        del shown["text"]
        return shown


def with_replaced(origin: dict[str, Json], before: DocumentVersion | None) -> dict[str, Json]:
    """The provenance of a version that takes the place of another one: whose that was."""
    if before is None:
        return origin
    run = before.origin.get("run")
    return origin | {
        "replaced": {"version": before.version, "changed": moment(before.at)} | ({"run": run} if run else {})
    }


def moment(at: float) -> str:
    """UTC seconds since 1970 as ISO 8601 text, to the second."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
