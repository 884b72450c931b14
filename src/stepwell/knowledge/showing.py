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


def moment(at: float) -> str:
    """UTC seconds since 1970 as ISO 8601 text, to the second."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
