"""The fold: what the entries of a journal come to, taken in their order.

The law of the file: the same entries in the same order come to the same, whoever takes them; rounds are read from the
journal, never counted by doing, and only grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from stepwell.journal import path as paths
from stepwell.journal.entry import Entry, Outcome, outcome_of

Json: TypeAlias = Any


class Fold:
    """Outcomes by path, and which round each step is in."""

    def __init__(self, entries: Iterable[Entry], fetch: Callable[[str], bytes]) -> None:
        """`fetch` gives the JSON text of a large value by its digest."""
        self.outcomes: dict[str, Outcome] = {}
        self.rounds: dict[str, int] = {}
        self.rewinds: dict[str, int] = {}
        self.causes: dict[str, tuple[str, str]] = {}
        self.edits: dict[str, dict[str, Json]] = {}
        """Arguments that a person gave instead of the rendered ones, by the path of the round they are for."""
        self.active = 0.0
        self.order = 0
        self._begun: set[str] = set()
        self._highest: dict[str, int] = {}
        for entry in sorted(entries, key=lambda entry: entry.order):
            self.order = entry.order
            if entry.kind != "cancelled":  # it says how something was left, not what came of it
                self._take(entry, fetch)

    def _take(self, entry: Entry, fetch: Callable[[str], bytes]) -> None:
        outcome = outcome_of(entry, fetch)
        self.active = max(self.active, outcome.active)
        self.remember(entry.path, outcome)
        if entry.kind == "rewound":
            self.rewound(outcome.value)

    def remember(self, path: str, outcome: Outcome) -> None:
        """Take an outcome into account."""
        self.outcomes[path] = outcome
        if "#" in path:
            self._note_round(path)
        begun = self._begun
        while path and path not in begun:
            begun.add(path)
            path = path.rpartition("/")[0]

    def _note_round(self, path: str) -> None:
        number = paths.round_number(path)
        if number > 1:
            bare = paths.bare(path)
            self._highest[bare] = max(number, self._highest.get(bare, 1))

    def has_begun(self, path: str) -> bool:
        """Whether anything is recorded at or below a path."""
        return path in self._begun

    def round_of(self, path: str) -> int:
        """The current round of the step at a path (without its round)."""
        return self.rounds.get(path, 1)

    def next_round(self, path: str) -> int:
        """The round that the step at a path (without its round) gets when it starts another."""
        return max(self.rounds.get(path, 1), self._highest.get(path, 1)) + 1

    def rewound(self, said: dict[str, Json]) -> None:
        """Take account of a rewound entry: a step that returned to an earlier one, or what a person asked for.

        `stale` are paths (without rounds) whose steps start another round; `cause` is the step that returned and
        `block` where. A person's entry may also `reopen` places that had settled, and `drop` places with all below.
        """
        if "cause" in said:
            bare = paths.bare(said["cause"])
            self.rewinds[bare] = self.rewinds.get(bare, 0) + 1
            self.causes[said["block"]] = (bare.rpartition("/")[2], said["cause"])
        for path in said["stale"]:
            fresh = self.rounds[path] = self.next_round(path)
            if path in said.get("edits", {}):
                self.edits[paths.with_round(path, fresh)] = said["edits"][path]
        if "by" in said:
            self._reopened(said)

    def _reopened(self, said: dict[str, Json]) -> None:
        self.active = 0.0  # whoever asks for more gives it time to be done in
        for path in said.get("reopen", ()):
            self.outcomes.pop(path, None)
        dropped: Sequence[str] = said.get("drop", ())
        for path in [path for path in self.outcomes if any(paths.is_at_or_below(path, top) for top in dropped)]:
            del self.outcomes[path]
        for path, given in said.get("edits", {}).items():
            if path in dropped:
                self.edits[path] = given
        for cause in [
            cause for cause in self.rewinds if any(paths.is_at_or_below(cause, top) for top in said["stale"])
        ]:
            del self.rewinds[cause]
        self._begun.clear()
        for path in self.outcomes:
            while path and path not in self._begun:
                self._begun.add(path)
                path = path.rpartition("/")[0]  # noqa: PLW2901 -- a walk up from each
