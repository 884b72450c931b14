"""Crashes: the same run with a crash after every write to its journal, and what must be the same each time.

The law of the file: after a crash at any point the run ends as it ends without one, and no call whose result was
recorded is made again. A call that may not be repeated and was in flight is in doubt instead: that, and only that, may
end otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from stepwell.definition.load import LoadedWorkflow
from stepwell.testing.result import Result, short
from stepwell.testing.running import Project, run_to_end
from stepwell.testing.scripted_world import ScriptedWorld
from stepwell.testing.virtual_time import VirtualClock

Json: TypeAlias = Any


def every_crash(
    workflow: LoadedWorkflow | Path | str | Mapping[str, Json] | Project,
    value: Json = None,
    world: Callable[[], ScriptedWorld] | Mapping[str, Json] | None = None,
    *,
    clock: Callable[[], VirtualClock] = VirtualClock,
) -> list[Result]:
    """Run once as it is, then with a crash after each write to the journal; returns all results, the first one first.

    `world` makes a new world for each run, or is the scripts. Raises AssertionError that says after which write what
    was different, with both runs.
    """
    project = workflow if isinstance(workflow, Project) else Project.of(workflow)
    make = world if callable(world) else lambda: ScriptedWorld(world or {})
    usual = run_to_end(project, value, make(), clock=clock())
    results = [usual]
    for number in range(1, usual.appends + 1):
        result = run_to_end(project, value, make(), clock=clock(), crash_after=number)
        if problem := difference(usual, result):
            raise AssertionError(f"after a crash at write {number}: {problem}\n\nwithout: {usual}\n\nwith: {result}")
        results.append(result)
    return results


def difference(usual: Result, crashed: Result) -> str:
    """What a crash has changed that it must not change; "" if nothing."""
    if crashed.repeated:
        call = crashed.repeated[0]
        return f"{call.path} was called again (attempt {call.attempt}), although its result was recorded"
    if _in_doubt(crashed):
        return ""
    for name in ("status", "output", "error"):
        before, after = _told(getattr(usual, name)), _told(getattr(crashed, name))
        if before != after:
            return f"{name} is {short(after)}, without it {short(before)}"
    before, after = _outcomes(usual), _outcomes(crashed)
    for path in {**before, **after}:
        if before.get(path) != after.get(path):
            return f"{path} is {short(after.get(path))}, without it {short(before.get(path))}"
    return ""


def _in_doubt(result: Result) -> bool:
    """Whether a call that may not be repeated was in flight when the engine was killed."""
    errors = [step.error for step in result.tree.steps]
    errors += [wait.request.get("error") for wait in result.waits if wait.kind == "incident"]
    return any(error is not None and error.get("kind") == "in_doubt" for error in errors)


def _told(value: Json) -> Json:
    """An error without what differs from run to run; anything else without the instants of decisions."""
    if isinstance(value, dict) and "kind" in value and "message" in value:
        return {"kind": value["kind"], "message": value["message"]}
    return _untimed(value)


def _outcomes(result: Result) -> dict[str, Json]:
    """How each step ended; what only says when (an instant in an approval's output) is left out."""
    return {step.path: [step.status, step.attempts, _untimed(step.output)] for step in result.tree.steps}


def _untimed(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _untimed(part) for name, part in value.items() if name != "at"}
    return [_untimed(part) for part in value] if isinstance(value, list) else value
