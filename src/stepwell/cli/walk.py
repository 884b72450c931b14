"""`stepwell run --dry-run`: a walk through a workflow in which nothing is performed.

The law of the file: what is shown is what the engine would do with these answers; where an answer is not known, the
walk ends there and says so, and nothing is made up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits
from stepwell.cli.text import cut, duration, json_text, table, visible
from stepwell.definition.step import walk
from stepwell.errors import StepwellError
from stepwell.testing.result import short
from stepwell.testing.running import Project, run_to_end
from stepwell.testing.scripted_world import ScriptedWorld

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.engine.engine import Engine
    from stepwell.journal.view import StepRecord
    from stepwell.testing.result import Result

Json: TypeAlias = Any
_WIDE = 90


def dry_run(engine: Engine, loaded: LoadedWorkflow, value: Json, scripts: dict[str, Json], *, as_json: bool) -> int:
    """Show the steps in written order, then what would be done one after another. Returns the exit code."""
    rows = _planned(loaded)
    world = ScriptedWorld(scripts, strict=False, people_agree=True, known=engine.tools)
    result: Result | None = None
    stopped = ""
    try:
        result = run_to_end(Project(loaded, engine.settings), value, world)
    except StepwellError as problem:  # what the walk cannot find (published recipes) stands in no run's way
        stopped = str(problem)
    if as_json:
        steps = [{"id": step, "type": kind, "depth": depth, "order": note} for step, kind, depth, note in rows]
        told = {"run": None, "event": "plan", "status": "checked", "steps": steps, "walk": _walked(result, stopped)}
        click.echo(json_text(told))
        return exits.OK
    shown = [("  " * depth + step, kind, note) for step, kind, depth, note in rows]
    click.echo("\n".join(table(shown, ["STEP", "KIND", "WHEN"])))
    click.echo(f"\nchecked: {len(rows)} steps, nothing was executed\n")
    for line in _lines(result, world, stopped):
        click.echo(visible(line))
    return exits.OK


def _planned(loaded: LoadedWorkflow) -> list[tuple[str, str, int, str]]:
    """All steps with their kind, depth, and what stands before them."""
    depths: dict[str, int] = {}
    only: dict[str, str] = {}
    rows = []
    for step in walk(loaded.workflow.steps):
        depth = depths.setdefault(step.id, 0)
        for block in step.all_blocks():
            depths.update({inner.id: depth + 1 for inner in block.steps})
            if block.purpose:
                only.update({inner.id: f"only for {block.purpose} of {step.id}" for inner in block.steps})
        when = f"if {step.condition.source}" if step.condition is not None else ""
        after = "" if step.depends_on is None else f"after {', '.join(step.depends_on) or 'nothing'}"
        note = ", ".join(part for part in (only.get(step.id, ""), after, when) if part)
        rows.append((step.id, step.type, depth, note))
    return rows


def _would(step: StepRecord, result: Result) -> dict[str, Json] | None:
    """The first call that a step makes in the walk."""
    call = next((call for call in result.calls if call.path == step.path), None)
    return None if call is None else {"kind": call.kind, "tool": call.tool or None, "arguments": call.arguments}


def _walked(result: Result | None, stopped: str) -> dict[str, Json]:
    if result is None:
        return {"status": "not_walked", "problem": stopped, "steps": []}
    steps = [
        {"path": step.path, "type": step.type, "status": step.status, "would": _would(step, result)}
        for step in result.tree.steps
    ]
    return {"status": result.status, "error": result.error, "virtual_seconds": result.virtual_seconds, "steps": steps}


def _lines(result: Result | None, world: ScriptedWorld, stopped: str) -> list[str]:
    if result is None:
        return [f"no walk was possible: {stopped}"]
    lines = ["it would go so, if people approve (a model step that --mock does not answer gives something that fits):"]
    for step in result.tree.steps:
        would = _would(step, result)
        what = f"  {would['kind']} {would['tool'] or ''}  {short(would['arguments'])}" if would else ""
        lines.append(cut(f"{'  ' * step.path.count('/')}{step.path}  {step.status}{what}", _WIDE))
    if world.unscripted:
        lines += ["", "the walk ends where an answer is not known; give it with --mock FILE:"]
        lines += [f"  {how}" for how in dict.fromkeys(world.unscripted.values())]
    else:
        lines.append(f"{result.status} after {duration(result.virtual_seconds)} of waiting")
    return lines
