"""`stepwell runs redrive` and `runs rerun`: going back in a run, planned first and done once the plan is confirmed.

The law of the file: without a confirmation nothing is done; what a confirmed plan did not say is refused by the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.lines import dollars
from stepwell.cli.opening import database_tail, find_run, opened, run_async
from stepwell.cli.program import program

if TYPE_CHECKING:
    from stepwell.engine.engine import Engine
    from stepwell.engine.reruns import RerunPlan, Wish
    from stepwell.journal.view import RunTree
    from stepwell.ports import Run

Json: TypeAlias = Any

_MOST = 30
"""Steps of a plan that are told one by one."""


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for on the command line."""

    run: str
    confirm: str
    yes: bool
    repeat_anyway: bool
    acting: str
    database: str
    as_json: bool
    path: str = ""
    fields: tuple[str, ...] = ()
    new_run: bool = False

    def command(self, run: str) -> str:
        """The same call again, as far as it says what is wished."""
        import shlex

        acting = f" --as {shlex.quote(self.acting)}" if self.acting else ""
        if not self.path:
            return f"{program()} runs redrive {run}{acting}"
        edits = "".join(f" -i {shlex.quote(pair)}" for pair in self.fields)
        wish = f"--from {shlex.quote(self.path)}{edits}{' --new-run' * self.new_run}"
        return f"{program()} runs rerun {run} {wish}{acting}"


_AGAIN = "With --yes: also if calls that may not be repeated would be made again."


def _planned(function: Callable[..., None]) -> Callable[..., None]:
    """The options of both."""
    for decorate in (
        options.as_json,
        options.database,
        options.acting,
        click.option("--repeat-anyway", is_flag=True, help=_AGAIN),
        click.option("--yes", is_flag=True, help="Plan and confirm at once."),
        click.option("--confirm", default="", metavar="HASH", help="Do what the plan with this hash says."),
        click.argument("run"),
    ):
        function = decorate(function)
    return function


_EPILOG = (
    "Without --confirm or --yes the plan is printed and nothing is done (exit code 0). Exit codes once it is done: as "
    "those of `stepwell run`; 1 if it is refused."
)


@click.command(
    "redrive",
    cls=Command,
    epilog=_EPILOG,
    example="stepwell runs redrive 019c\nstepwell runs redrive 019c --confirm 1f2e3d4c5b6a\n"
    "stepwell runs redrive 019c --yes",
)
@_planned
def redrive(**given: Any) -> None:
    """Go on with a run that failed: what is finished is used again, only the rest is executed."""
    click.get_current_context().exit(run_async(_work(Order(**given))))


_EDIT = "Another value for an argument of the step; NAME:=JSON is JSON."


@click.command(
    "rerun",
    cls=Command,
    epilog=_EPILOG,
    example="stepwell runs rerun 019c --from /draft\nstepwell runs rerun 019c --from /items/2/check -i strict:=true\n"
    "stepwell runs rerun 019c --from /draft --new-run --yes",
)
@click.option("--from", "path", required=True, metavar="PATH", help="The step to begin at, as `runs show` prints it.")
@click.option("-i", "fields", multiple=True, metavar="NAME=VALUE", help=_EDIT)
@click.option("--new-run", is_flag=True, help="Leave the run as it is, and make another that begins with what it has.")
@_planned
def rerun(**given: Any) -> None:
    """Do a step again, and all that comes after it."""
    click.get_current_context().exit(run_async(_work(Order(**given))))


async def _work(order: Order) -> int:
    from stepwell.cli.acting import actor
    from stepwell.cli.runs import carry_on

    async with opened(order.database) as engine:
        where = order.database or engine.settings.database
        tail = database_tail(order.database, engine.settings)
        run = await find_run(engine, order.run)
        plan = await _plan(engine, run, order)
        if not (order.confirm or order.yes):
            _print(plan, order, tail)
            return exits.OK
        if not order.confirm:
            _agree(plan, order, tail)
        due = await engine.reruns.carry_out(plan, order.confirm or plan.hash, by=await actor(engine, order.acting))
    _tell_done(plan, due, as_json=order.as_json)
    return (await carry_on(due.id, database=where, as_json=order.as_json)).code


# ── planning ──


async def _plan(engine: Engine, run: Run, order: Order) -> RerunPlan:
    """The plan. Raises InputError with near paths where there is no such step."""
    from stepwell.engine.reruns import Wish
    from stepwell.errors import InputError

    if not order.path:
        return await engine.reruns.plan(run.id, Wish())
    tree = await engine.tree(run.id)
    path = _path(order.path, tree)
    wish: Wish = Wish(path, _edits(tree, path, order.fields), order.new_run)
    try:
        return await engine.reruns.plan(run.id, wish)
    except InputError as error:
        raise _with_near(error, path, tree) from None


def _path(said: str, tree: RunTree) -> str:
    """The path that is meant; the id of a step that the run has in one place will do. Raises Refusal."""
    from stepwell.journal.path import bare

    if said.startswith("/"):
        return said
    places = dict.fromkeys(bare(step.path) for step in tree.steps if step.id == said and "/~" not in step.path)
    if len(places) > 1:
        raise exits.Refusal(f"the run has {said} in {len(places)} places", hint=f"say which: {_some(places)}")
    return next(iter(places), f"/{said}")


def _some(places: Iterable[str]) -> str:
    found = [*places]
    return ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")


def _edits(tree: RunTree, path: str, fields: tuple[str, ...]) -> dict[str, Json] | None:
    """The arguments that are given anew; each is of the type that the old one has, where the text can be read so."""
    from stepwell.cli.inputs import read_pairs_like
    from stepwell.journal.path import bare

    if not fields:
        return None
    inputs = [step.input for step in tree.steps if bare(step.path) == bare(path)]
    return read_pairs_like(fields, next(reversed(inputs), None))


def _with_near(error: Exception, path: str, tree: RunTree) -> Exception:
    """The same problems; where there is no such step, with the paths that are nearest."""
    import difflib
    from dataclasses import replace

    from stepwell.errors import InputError
    from stepwell.journal.path import bare

    assert isinstance(error, InputError)
    known = dict.fromkeys(bare(step.path) for step in tree.steps if "/~" not in step.path)
    near = difflib.get_close_matches(path, known, n=3, cutoff=0.5) if path not in known else []
    hint = f"did you mean {' or '.join(near)}?" if near else ""
    return InputError([replace(one, hint=hint or one.hint) if one.code == "path" else one for one in error.problems])


def _agree(plan: RerunPlan, order: Order, tail: str) -> None:
    """Raises Refusal where `--yes` does not cover what the plan says."""
    if not order.as_json:
        _print(plan, order, tail, asks=False)
    if plan.repeats and not order.repeat_anyway:
        paths = _some(one["path"] for one in plan.repeats)
        hint = f"--repeat-anyway if that is right, or confirm the plan: --confirm {plan.hash}"
        raise exits.Refusal(
            f"calls that may not be repeated would be made again: {paths}",
            hint=hint,
            code=exits.FAILED,
            kind="conflict",
        )


# ── telling ──


def _print(plan: RerunPlan, order: Order, tail: str, *, asks: bool = True) -> None:
    from stepwell.cli.text import json_text

    if order.as_json:
        click.echo(json_text(plan.as_json(), indent=2))
        return
    click.echo("\n".join(_plan_lines(plan)))
    if asks:
        click.echo("\nnothing has been done; do it with:")
        click.echo(f"  {order.command(plan.run.id)} --confirm {plan.hash}{tail}")


def _plan_lines(plan: RerunPlan) -> Iterable[str]:
    from stepwell.cli.text import table, visible

    run, wish = plan.run, plan.wish
    place = f" from {visible(wish.path)}" if wish.path else ""
    whose = "a new run that begins with what it has" if wish.new_run else "in place"
    head = f"{plan.action} {visible(run.workflow)}{place}"
    yield f"{click.style(head, bold=True)}  run {run.id} ({run.status}), {whose}"
    for name, value in (wish.edits or {}).items():
        yield f"  {visible(name)} becomes {visible(_json(value))}"
    yield f"\nexecutes {len(plan.executes)}, as far as is known:"
    rows = [(one["path"], f"{one['because']}{_asking(one)}") for one in plan.executes[:_MOST]]
    yield from (f"  {line}" for line in table(rows, ["STEP", "BECAUSE"]))
    if len(plan.executes) > _MOST:
        yield f"  … and {len(plan.executes) - _MOST} more"
    yield f"\nuses again {len(plan.reuses)}" + (f": {visible(_some(plan.reuses))}" if plan.reuses else "")
    if plan.repeats:
        yield click.style("\nwould be made again, although it may not be repeated:", fg="red", bold=True)
        yield from (f"  {visible(one['path'])}  {_stood(one)}" for one in plan.repeats)
    if plan.approvals and wish.edits:
        yield click.style("\nwhat people decided is used again, although they saw other arguments:", fg="yellow")
        yield from (
            f"  {visible(one['path'])}  {one['decision']} by {visible(str(one['by']))}" for one in plan.approvals
        )
    yield _cost_line(plan.cost)


def _asking(one: Mapping[str, Json]) -> str:
    return ", asks people again" if one["type"] == "approval" and one["because"] != "was not reached" else ""


def _stood(one: Mapping[str, Json]) -> str:
    """How a call ended that would be made again."""
    return f"{one['status']}: {one['error']}" if one.get("error") else str(one["status"])


def _cost_line(cost: Mapping[str, Json]) -> str:
    tokens = (cost.get("input_tokens") or 0) + (cost.get("output_tokens") or 0)
    money = f", {dollars(cost['cost_usd'])}" if cost.get("cost_usd") else ""
    return f"\nlikely cost, as it was before: {tokens} tokens{money}" if tokens or money else "\nno cost was recorded"


def _json(value: Json) -> str:
    from stepwell.cli.text import json_text

    return json_text(value)


def _tell_done(plan: RerunPlan, due: Run, *, as_json: bool) -> None:
    if as_json:
        said = {"run": due.id, "event": f"run_{plan.action}", "path": plan.wish.path, "hash": plan.hash}
        click.echo(_json(said | {"from_run": plan.run.id}))
    elif due.id != plan.run.id:
        click.echo(f"run {due.id} begins with what run {plan.run.id} has")
