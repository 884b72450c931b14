"""How large the storm is to be, and what came out of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Plan:
    """How many runs and kills; `interval` is the mean between kills and `pause` that of a call's duration (seconds)."""

    runs: int = 200
    kills: int = 100
    workers: int = 3
    boards: int = 2
    operators: int = 2
    interval: float = 1.0
    pause: float = 0.4
    seed: int = 0
    patience: float = 600.0
    """Seconds that the runs get to end once nobody is killed any more."""
    nap: str = "31s"
    """How long every fourth run waits for a timer."""
    fault: str = ""
    """One of `faults.py`: a promise ought to be broken then."""


@dataclass(slots=True)
class Figures:
    """What came out. The lists name each single case; all of them ought to be empty."""

    runs: int = 0
    kills: int = 0
    hit: int = 0
    """Killed processes that had made calls."""
    cut_off: int = 0
    """Calls that the death of their process cut off."""
    jumps: int = 0
    open_at_the_last_kill: int = 0
    entries: int = 0
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    votes: int = 0
    second: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    settled: Counter[str] = field(default_factory=Counter)
    verified: int = 0
    doubts: int = 0
    service: dict[str, int] = field(default_factory=dict)
    compared: int = 0
    different: list[str] = field(default_factory=list)
    charged: list[str] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    contradicted: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    def broken_promises(self) -> dict[str, list[str]]:
        """Every case against a promise, by which promise."""
        return {
            "differences from the reference execution": self.different,
            "charges that are not exactly one": self.charged,
            "steps begun by two owners": self.owners,
            "acknowledgements contradicted": self.contradicted,
            "runs lost": self.lost,
            "damage to the database": self.damaged,
        }

    def lines(self) -> list[str]:
        """For people."""

        def each(counts: Mapping[str, int]) -> str:
            return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "none"

        said = [
            (
                f"{self.runs} runs ({self.open_at_the_last_kill} open at the last kill), {self.kills} kills "
                f"({self.hit} of processes that had made calls, {self.cut_off} calls cut off and made again), "
                f"{self.jumps} clock jumps, {self.seconds:.0f} s; {self.entries} journal entries"
            ),
            f"ended: {each(self.statuses)}",
            f"votes acknowledged: {self.votes}; came second: {self.second}; refused: {each(self.refused)}",
            f"incidents settled: {each(self.settled)}",
            f"charges: {each(self.service)}; in doubt {self.doubts}, settled by verify {self.verified}",
            f"steps compared: {self.compared}",
        ]
        said += [f"{what}: {len(cases)}" for what, cases in self.broken_promises().items()]
        return said + [f"  {case}" for cases in self.broken_promises().values() for case in cases[:10]]


def as_record(plan: Plan, figures: Figures) -> Mapping[str, Json]:
    """For machines: counts only."""
    broken = {what: len(cases) for what, cases in figures.broken_promises().items()}
    counts = {name: value for name, value in asdict(figures).items() if not isinstance(value, list)}
    return json.loads(json.dumps({**asdict(plan), **counts, "broken": broken}))
