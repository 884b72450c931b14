"""The story of a run as a whole: what it was undone for and in which order, and when people made it go back.

The law of the file: it tells what single entries say, and concludes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from stepwell.journal import path as paths
from stepwell.journal.entry import Entry, outcome_of

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Story:
    """`undoing` are paths in the order in which they are undone, None for a run that is not."""

    undoing: tuple[str, ...] | None = None
    left: tuple[dict[str, Json], ...] = ()
    """What could not be undone and was left as it is: `{path, by, error}`."""
    returns: tuple[dict[str, Json], ...] = ()
    """When people made it go back: `{action, by, from, at, forked_from}`, oldest first."""


def story(entries: Iterable[Entry], fetch: Callable[[str], bytes] | None) -> Story:
    """The story that entries tell. `fetch` gives the JSON text of a large value by its digest."""
    undoing: tuple[str, ...] | None = None
    left, returns = [], []
    for entry in entries:
        if entry.path == paths.start(paths.UNDO):
            said = _said(entry, fetch)
            undoing = tuple(one["path"] for one in said.get("plan", ()))
        elif entry.kind == "rewound" and "by" in (said := _said(entry, fetch)):
            words = ("action", "by", "from", "forked_from")
            returns.append({word: said.get(word) for word in words} | {"at": entry.at})
        elif paths.is_below(entry.path, paths.UNDO) and entry.kind == "settled":
            outcome = outcome_of(entry, fetch or _nothing)
            meta = outcome.meta or {}
            if outcome.status == "skipped" and "undoes" in meta:
                by = (meta.get("settled") or {}).get("by")
                left.append({"path": meta["undoes"], "by": by, "error": outcome.error})
    return Story(undoing, tuple(left), tuple(returns))


def _said(entry: Entry, fetch: Callable[[str], bytes] | None) -> dict[str, Json]:
    try:
        found = outcome_of(entry, fetch or _nothing).value
    except KeyError:  # large, and nobody gave a way to load it
        return {}
    return found if isinstance(found, dict) else {}


def _nothing(digest: str) -> bytes:
    raise KeyError(digest)
