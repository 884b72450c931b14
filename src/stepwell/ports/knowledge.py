"""The knowledge base."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage found; `score` ranks within one answer and means nothing across answers (see `knowledge/fusion.py`).

    `heading` is the path of headings above it, `start` and `end` its place in the document's text at this version.
    """

    text: str
    document: str
    score: float
    collection: str = ""
    version: int = 0
    heading: str = ""
    start: int = 0
    end: int = 0
    page: int = 0
    """The page on which it begins, counted from 1; 0 for a document without pages."""
    by_words: int = 0
    """Its rank among the passages that hold words of the query, from 1; 0 if it is not among the first of them."""
    by_meaning: int = 0
    """Its rank among those whose vectors are nearest, from 1; 0 if it is not among the first of them, or has none."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a knowledge write made."""

    document: str
    version: int
    chunks: int


@dataclass(frozen=True, slots=True)
class DocumentWrite:
    """A write to a document; `mode` is append, replace, or upsert of the section named by `section`."""

    document: str
    content: str
    collection: str = "default"
    mode: Literal["append", "replace", "upsert"] = "append"
    section: str = ""
    metadata: dict[str, Json] = field(default_factory=dict)
    idempotency_key: str = ""
    origin: dict[str, Json] = field(default_factory=dict)
    """Provenance: run, path, requester; or the file."""
    pages: Sequence[int] = ()
    """Where each page of the content begins, in characters."""


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents that belong together. A collection of a department is meant by the workflows of that department."""

    name: str
    description: str = ""
    department: str = ""
    documents: int = 0


@dataclass(frozen=True, slots=True)
class VectorCount:
    """How many of the passages that can be found have a vector. `problem` says why no more are being made."""

    passages: int
    vectors: int
    problem: str = ""


class KnowledgeStore(Protocol):
    """Versioned documents in collections, searched by words and by meaning."""

    async def write(self, account: str, write: DocumentWrite) -> Written:
        """One transaction, one version; a repeated idempotency key returns the same version.

        The passages are found by their words at once, and by their meaning once they have vectors. Where a `replace`
        takes away a version, the new one's origin says which, in `replaced`.
        """

    async def search(
        self,
        account: str,
        query: str,
        *,
        collections: Sequence[str] = (),
        documents: Sequence[str] = (),
        limit: int = 5,
        min_score: float = 0.0,
    ) -> list[Passage]:
        """Passages, best first, of these collections and these documents (of all if none is named)."""

    async def documents(self, account: str, *, collection: str = "") -> list[dict[str, Json]]:
        """`{document, collection, version, passages, changed, metadata}` of each, by collection and name."""

    async def document(self, account: str, document: str, *, version: int = 0) -> dict[str, Json]:
        """A document's text at a version (0: the newest). Raises NotFound."""

    async def versions(self, account: str, document: str) -> list[dict[str, Json]]:
        """All versions of a document, newest first, each as `document` gives it but without text. Raises NotFound."""

    async def remove(self, account: str, document: str) -> int:
        """Remove a document with all its versions; returns how many there were. Raises NotFound."""

    async def collections(self, account: str, *, department: str = "") -> list[Collection]:
        """All collections, or a department's, by name: those that were described, and those that hold a document."""

    async def describe(
        self, account: str, collection: str, *, description: str | None = None, department: str | None = None
    ) -> Collection:
        """Make a collection, or say more of it; None leaves what was said. Raises StepFailed("validation_error")."""

    async def names(self, account: str) -> tuple[list[str], list[str]]:
        """The names of all collections and of all documents, sorted."""

    async def vectors(self, account: str) -> VectorCount:
        """How far the vectors are."""

    def wake(self) -> None:
        """Go on making vectors that are missing, in the background; returns at once."""

    async def make_vectors(self, *, told: Callable[[int], None] | None = None) -> int:
        """Make the vectors that are missing, in every account; returns how many were made.

        `told` is called with the number made so far. Raises StepFailed if there is no model for it.
        """
