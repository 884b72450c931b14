"""A run as a test: what it recorded, written as a test file that runs it again against the same answers.

The law of the file: nothing is made up; what the journal does not hold is left out, and whoever reads the file can
change every line of it.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from stepwell.engine.engine import ACCOUNT, OPERATOR, Engine
from stepwell.interpreter.instants import instant, instant_text
from stepwell.journal.view import RunTree, StepRecord
from stepwell.ports import Person, Wait
from stepwell.testing.scripts import bare

Json: TypeAlias = Any
CALLING = frozenset({"recipe", "llm_call", "tool_call", "browser_action", "kb_search", "kb_write"})
_SETTLING = ("action", "edits", "output", "by", "comment")
_DECIDING = ("decision", "by", "comment", "data")
_BORING = frozenset({"", OPERATOR})


async def as_test(engine: Engine, run_id: str, target: Path) -> str:
    """The text of a test file at `target` for a run. Raises NotFound."""
    tree = await engine.tree(run_id)
    waits = await engine._store.waits(ACCOUNT, run_id=run_id, pending_only=False)  # noqa: SLF001 -- of all kinds
    people = await engine.people.known()
    run = await engine.run(run_id)
    workflow = run.project.get("file") or f"{run.workflow}.yaml"
    given: dict[str, Json] = {"workflow": _relative(Path(str(workflow)), target)}
    if people:
        given["people"] = [_person(person) for person in people]
    test: dict[str, Json] = {"name": f"as run {run.id} went", "start": instant_text(run.created), "input": run.input}
    if run.requester not in _BORING:
        test["requester"] = run.requester
    if scripts := _scripts(tree, waits):
        test["mock"] = scripts
    test["expect"] = _expected(tree)
    text = yaml.safe_dump({**given, "tests": [test]}, sort_keys=False, allow_unicode=True, width=110)
    return f"# Run {run.id} of {run.workflow}, which was {run.status}.\n{text}"


def _relative(file: Path, target: Path) -> str:
    return Path(os.path.relpath(file, target.resolve().parent)).as_posix()


def _person(person: Person) -> dict[str, Json]:
    facts = {"name": person.name, "email": person.email, "roles": [*person.roles]}
    facts |= {"departments": [*person.departments]}
    return {name: value for name, value in facts.items() if value}


def _scripts(tree: RunTree, waits: Sequence[Wait]) -> dict[str, Json]:
    """Answers by step id, or by path for a step that ran at several places; rounds of one place follow each other."""
    answers: defaultdict[str, list[dict[str, Json]]] = defaultdict(list)
    for step in sorted(tree.steps, key=lambda step: step.started):
        if step.turns:
            for name, call in _turns(step):
                answers[f"{bare(step.path)}{name}"].append(call)
        elif step.type in CALLING:
            answers[bare(step.path)] += _calls(step.attempt_log, step.output)
        elif step.type == "wait" and isinstance(step.output, dict) and step.output.get("woken_by") == "event":
            came = {"event": step.output.get("data"), **_delay(step.started, step.ended)}
            answers[bare(step.path)].append(came)
    for wait in waits:
        answers[bare(wait.path.partition("/!")[0])] += _acts(wait)
    places = Counter(place.rpartition("/")[2] for place, given in answers.items() if given)
    found: dict[str, Json] = {}
    for place, given in answers.items():
        name = place.rpartition("/")[2]
        if given:
            found[name if places[name] == 1 else place] = given[0] if len(given) == 1 else given
    return found


def _turns(step: StepRecord) -> Iterator[tuple[str, dict[str, Json]]]:
    """What each turn of an agent step came to, under "", and each call that it asked for, under ".TOOL"."""
    for turn in step.turns:
        asked = [{"tool": call["tool"], "arguments": call["arguments"]} for call in turn["calls"]]
        output = {"text": turn["text"], "calls": asked} if asked else step.output
        yield from (("", given) for given in _calls(turn["attempt_log"], output))
        for call in turn["calls"]:
            yield from ((f".{call['tool']}", given) for given in _calls(call["attempt_log"], call["output"]))


def _calls(log: Iterable[dict[str, Json]], output: Json) -> Iterator[dict[str, Json]]:
    """What each attempt came to."""
    for attempt in log:
        error = attempt["error"]
        if attempt["status"] == "failed" and error:
            detail = error.get("detail")
            cause = detail.get("cause") if isinstance(detail, dict) and error["kind"] == "in_doubt" else None
            yield {"error": _error(cause if isinstance(cause, dict) else error)}
        elif attempt["status"] in {"completed", "compensated"}:
            yield {"output": output}


def _error(error: dict[str, Json]) -> dict[str, Json]:
    return {name: error[name] for name in ("kind", "message", "retryable", "retry_after") if name in error}


def _acts(wait: Wait) -> Iterator[dict[str, Json]]:
    """What people did to a wait, each after the time that it took."""
    said = wait.decision if isinstance(wait.decision, dict) else {}
    if wait.status != "decided":
        return
    if wait.kind == "incident":
        yield {name: said[name] for name in _SETTLING if _told(said, name)} | _delay(wait.opened, wait.decided)
    elif wait.kind == "approval":
        before = wait.opened
        for vote in wait.votes or (said,):
            at = instant(vote["at"]) if vote.get("at") else wait.decided
            yield {name: vote[name] for name in _DECIDING if _told(vote, name)} | _delay(before, at)
            before = at


def _told(said: dict[str, Json], name: str) -> bool:
    value = said.get(name)
    return value is not None and value not in ("", OPERATOR)


def _delay(begin: float, end: float) -> dict[str, Json]:
    return {"delay": f"{end - begin:.3f}s"} if end - begin >= 1 else {}


def _untimed(value: Json) -> Json:
    """A value without the instants of decisions: another run has others."""
    if isinstance(value, dict):
        return {name: _untimed(part) for name, part in value.items() if name != "at" or "decision" not in value}
    return [_untimed(part) for part in value] if isinstance(value, list) else value


def _expected(tree: RunTree) -> dict[str, Json]:
    run = tree.run
    expect: dict[str, Json] = {"status": run.status}
    if run.status == "completed":
        expect["output"] = _untimed(run.output)
    if run.error is not None:
        expect["error"] = {"kind": run.error["kind"]}
    last = {bare(step.path): step for step in tree.steps}
    ids = Counter(place.rpartition("/")[2] for place in last)
    expect["steps"] = {
        step.id if ids[step.id] == 1 else place: {"status": step.status, "attempts": step.attempts}
        if step.attempts > 1
        else step.status
        for place, step in last.items()
    }
    if tree.waits:
        expect["waits"] = [wait.path for wait in tree.waits if getattr(wait, "kind", "") != "timer"]
    return expect
