"""Foresight: what a run would do under a definition, with every place at which its journal speaks against it.

The law of the file: nothing is performed; where the journal disagrees the plan goes on as if it agreed, so that all
disagreements are found at once and not one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.interpreter.interruption import Interruption, Pause
from stepwell.interpreter.plan import Plan
from stepwell.interpreter.planning import PlanningRuntime, Wanting
from stepwell.interpreter.scope import Scope
from stepwell.interpreter.whole import conclude
from stepwell.journal import path as paths

if TYPE_CHECKING:
    from stepwell.interpreter.plan import Known
    from stepwell.journal.entry import Outcome

Json: TypeAlias = Any

MOST = 100
"""Disagreements that are looked for."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A step whose record was made for other arguments than the definition gives now: digests of both."""

    path: str
    recorded: str
    now: str


@dataclass(frozen=True, slots=True)
class Foresight:
    """`seen` are the places that the definition comes to; `broken` says why there is no plan at all, if so."""

    plan: Plan
    seen: frozenset[str]
    drifts: tuple[Drift, ...] = ()
    broken: str = ""


async def foresee(known: Known) -> Foresight:
    """What a run would do, and where its journal disagrees."""
    drifts: list[Drift] = []
    while True:
        runtime = _Watching(known)
        scope = Scope.root(runtime, known.definition, known.workflow_input, known.facts)
        try:
            outcome = await conclude(scope)
        except (Pause, Wanting):
            outcome = None
        except Interruption as left:
            return Foresight(runtime.plan(None), frozenset(runtime.seen), tuple(drifts), type(left).__name__)
        except Exception as bug:  # noqa: BLE001 -- what was begun under one definition may make no sense to another
            said = f"{type(bug).__name__}: {bug}"
            return Foresight(runtime.plan(None), frozenset(runtime.seen), tuple(drifts), said)
        if outcome is None or outcome.status != "stuck" or outcome.error is None or len(drifts) >= MOST:
            return Foresight(runtime.plan(outcome), frozenset(runtime.seen), tuple(drifts))
        drift = Drift(outcome.error["path"], outcome.error["recorded"], outcome.error["now"])
        drifts.append(drift)
        known = replace(known, entries=[_agreed(entry, drift.path) for entry in known.entries])


def _agreed(entry: Any, path: str) -> Any:
    return replace(entry, digest="") if entry.path == path else entry


class _Watching(PlanningRuntime):
    """A planner that remembers which records were asked for."""

    def __init__(self, known: Known) -> None:
        self.seen: set[str] = set()
        super().__init__(known)

    def recall(self, path: str) -> Outcome | None:
        found = super().recall(path)
        if found is not None:
            while path and path not in self.seen:
                self.seen.add(path)
                path = paths.parent(path)
        return found
