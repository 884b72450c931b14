"""Showing a run that is not being followed: the tree, one step in full, the journal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits
from stepwell.cli.aftermath import is_in_doubt, return_lines
from stepwell.cli.follow import Ending, tell_ending
from stepwell.cli.lines import money_text, spent_texts
from stepwell.cli.program import program
from stepwell.cli.progress import Progress, by_text
from stepwell.cli.screen import PlainScreen, still
from stepwell.cli.standing import left_alone, resuming
from stepwell.cli.text import duration, json_text, table, visible, visible_lines
from stepwell.journal.view import instant
from stepwell.ports import FINAL

if TYPE_CHECKING:
    from stepwell.journal.entry import Entry
    from stepwell.journal.view import RunTree, StepRecord

Json: TypeAlias = Any


def print_run(tree: RunTree, *, columns: int, tail: str = "", whole: bool = False) -> int:
    """The run's head, its steps, and how it stands."""
    run: Any = tree.run
    progress = Progress.of(tree, whole=whole)
    click.echo(f"{click.style(visible(run.workflow), bold=True)}  run {run.id}")
    facts = [f"started {instant(run.started or run.created)}"]
    if run.ended:
        facts.append(f"ended {instant(run.ended)}")
    facts.append(f"active {duration(run.active)}")
    facts += [text for text, _ in spent_texts(run.usage)]
    click.echo(click.style("  ".join(facts), dim=True))
    for line in return_lines(tree):
        click.echo(line)
    click.echo(still(progress, columns=columns))
    click.echo()
    alone = "" if run.status in FINAL else left_alone(run, tree.waits)
    if run.status in {"queued", "running"}:
        by = f" by {visible(run.owner)}" if run.owner else ""
        click.echo(f"{run.status}: {alone}" if alone else f"{run.status}{by}")
    else:
        now = time.time()
        waits: Any = () if run.status in FINAL else tuple(w for w in tree.waits if not 0 < w.deadline <= now)
        if not alone or waits:
            tell_ending(Ending(run, waits, tree if run.status in FINAL else None), PlainScreen(progress), tail)
        if alone:
            click.echo(click.style(alone, fg="yellow", bold=True))
    if alone or (run.status == "queued" and not run.owner):
        click.echo(f"  carry it on: {resuming(run.id, tail)}")
    click.echo(f"  a step in full: {program()} runs show {run.id} --step STEP{tail}")
    return exits.OK


def print_steps(tree: RunTree, wanted: str) -> int:
    """Every round and iteration of one step, in full."""
    found = [step for step in tree.steps if wanted in {step.id, step.path, step.path.lstrip("/")}]
    if not found:
        import difflib

        close = difflib.get_close_matches(wanted, [step.id for step in tree.steps], n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"`{program()} runs show RUN` lists the steps"
        raise exits.Refusal(f"run {tree.run.id} has no step {wanted} so far", hint=hint)
    for step in found:
        _print_step(step, f"{tree.run.id}{(step.error or {}).get('path') or step.path}")
    return exits.OK


def _print_step(step: StepRecord, key: str) -> None:
    """One step; `key` is the idempotency key of its calls."""
    took = f"  {duration(step.ended - step.started)}" if step.ended and step.started else ""
    by = f"  {visible(by_text(step.meta))}" if by_text(step.meta) else ""
    click.echo(f"{click.style(visible(step.path), bold=True)}  {visible(step.type)}  {step.status}{by}{took}")
    if is_in_doubt(step):
        click.echo(f"  nobody knows whether the call took effect; its key: {visible(key)}")
    for log in step.attempt_log:
        error = f"  {visible(log['error'].get('kind'))}: {visible(log['error'].get('message'))}" if log["error"] else ""
        click.echo(f"  attempt {log['number']}  {log['status']}  {log['started_at']}{error}")
        for line in _taken(log.get("usage")):
            click.echo(f"    {line}")
    for turn in step.turns:
        _print_turn(turn)
    _print_sources(step.meta or {})
    why = step.skip_reason
    for name, value in (("input", step.input), ("output", step.output), ("error", step.error), ("why", why)):
        if value is not None:
            lines = visible_lines(json_text(value, indent=2))
            click.echo("\n".join([f"  {name}: {lines[0]}", *(f"    {line}" for line in lines[1:])]))


def _taken(usage: dict[str, Json] | None) -> Iterator[str]:
    """Which model answered and what it took, and which ones did not, and why."""
    if not usage:
        return
    for one in usage.get("fell_back") or ():
        yield f"not {visible(one['model'])}: {visible(one['kind'])}: {visible(one['message'])}"
    tokens = f"{usage.get('input_tokens') or 0} + {usage.get('output_tokens') or 0} tokens"
    cached = f" ({usage['cached_tokens']} cached)" if usage.get("cached_tokens") else ""
    queued = f"  waited {duration(usage['queued_ms'] / 1000)}" if usage.get("queued_ms") else ""
    cut = "  cut at the limit of tokens" if usage.get("finish_reason") == "length" else ""
    yield f"{visible(usage.get('model') or 'no model')}  {tokens}{cached}  {money_text(usage)}{queued}{cut}"


def _print_sources(meta: dict[str, Json]) -> None:
    """What the model was given from the knowledge base, and what it cited that was not there."""
    if (sources := meta.get("sources")) is None:
        return
    searched = ", ".join(name for names in meta.get("searched", {}).values() for name in names)
    found = f"{len(sources)} sources" if sources else "no sources found"
    click.echo(f"  {found} in {visible(searched)}")
    for one in sources:
        page = f", page {one['page']}" if one.get("page") else ""
        heading = f"  {visible(one['heading'])}" if one["heading"] else ""
        click.echo(f"    [{one['n']}] {visible(one['document'])}@{one['version']}{heading}{page}  {one['score']:.2f}")
    if invented := meta.get("invented"):
        click.echo(f"  cited and not there, so taken out: {visible(', '.join(invented))}")


def _print_turn(turn: dict[str, Json]) -> None:
    """One turn of an agent step: what the model asked for, and what came of it."""
    text = f"  {visible(turn['text'])}" if turn["text"] else ""
    click.echo(f"  turn {turn['turn']}  {turn['status']}{text}{_took(turn)}{_because(turn)}")
    for line in _taken((turn["attempt_log"][-1] if turn["attempt_log"] else {}).get("usage")):
        click.echo(f"    {line}")
    for call in turn["calls"]:
        click.echo(f"    {visible(call['tool'])}  {call['status']}{_took(call)}{_because(call)}")
        click.echo(f"      arguments: {visible(json_text(call['arguments']))}")
        if call["output"] is not None:
            click.echo(f"      output: {visible(json_text(call['output']))}")


def _took(part: dict[str, Json]) -> str:
    if not part["started_at"] or not part["ended_at"]:
        return ""
    began, ended = (datetime.fromisoformat(part[name]) for name in ("started_at", "ended_at"))
    return f"  {duration((ended - began).total_seconds())}"


def _because(part: dict[str, Json]) -> str:
    error = part["error"]
    return f"  {visible(error.get('kind'))}: {visible(error.get('message'))}" if error else ""


def print_journal(entries: Iterable[Entry], *, as_json: bool) -> None:
    """The journal as it is stored."""
    import msgspec

    rows = []
    for entry in entries:
        body = msgspec.json.decode(entry.body)
        if as_json:
            told = {"order": entry.order, "path": entry.path, "kind": entry.kind, "generation": entry.generation}
            click.echo(json_text({**told, "at": instant(entry.at), "digest": entry.digest, "body": body}))
        else:
            rows.append((entry.order, instant(entry.at), entry.kind, entry.path, _short(body)))
    if not as_json:
        click.echo("\n".join(table(rows, ["ORDER", "AT", "KIND", "PATH", "SAYS"])))


def _short(body: Json) -> str:
    status = str(body.get("status") or "")
    error = body.get("error")
    if error:
        return f"{status} {error.get('kind')}: {error.get('message')}".strip()
    value = json_text(body["value"]) if "value" in body else ""
    return f"{status} {value[:120]}".strip()
