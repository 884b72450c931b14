"""What a test expects, held against what came of the run.

The law of the file: every difference is told, each with where it was expected, and none hides another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from stepwell.definition.positions import Location
from stepwell.expressions import ExpressionError
from stepwell.interpreter.reasons import explain
from stepwell.testing.result import Result, short
from stepwell.testing.suite import TestCase

Json: TypeAlias = Any
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not as expected. `what` names it, `where` is the expectation's place in the file."""

    what: str
    expected: Json
    found: Json
    where: Location = ()

    def lines(self) -> list[str]:
        """For people."""
        found = "nothing" if self.found is _ABSENT else short(self.found)
        return [self.what, f"  expected  {short(self.expected)}", f"  found     {found}"]

    def as_json(self) -> dict[str, Json]:
        found = None if self.found is _ABSENT else self.found
        return {"what": self.what, "expected": self.expected, "found": found}


def differences(test: TestCase, result: Result) -> list[Difference]:
    """Everything that is not as the test expects; what it says nothing of is right."""
    where: Location = (*test.where, "expect")
    expect = test.expect
    status = expect.get("status", "failed" if "error" in expect else "completed")
    found = []
    if result.status != status:
        found.append(Difference("status", status, result.status, (*where, "status")))
    if "output" in expect:
        found += unlike("output", expect["output"], result.output, (*where, "output"), exact=bool(expect.get("exact")))
    if "error" in expect:
        said = expect["error"]
        said = {"kind": said} if isinstance(said, str) else said
        found += unlike("error", said, result.error, (*where, "error"))
    for name, said in (expect.get("steps") or {}).items():
        found += _step(str(name), said, result, (*where, "steps", name))
    for name, said in (expect.get("calls") or {}).items():
        found += _calls(str(name), said, result, (*where, "calls", name))
    counts: dict[str, list[Json]] = {"notifications": [*result.notifications], "refused": [*result.refused]}
    for name, these in counts.items():
        if name in expect and expect[name] != len(these):
            found.append(Difference(f"number of {name}", expect[name], len(these), (*where, name)))
    if "waits" in expect:
        open_waits = [wait.path for wait in result.waits]
        wanted = [f"/{str(path).strip('/')}" for path in expect["waits"]]
        if sorted(wanted) != sorted(open_waits):
            found.append(Difference("what the run waits for", wanted, open_waits, (*where, "waits")))
    return [*found, *_expressions(test, result, where)]


def unlike(what: str, expected: Json, found: Json, where: Location, *, exact: bool = False) -> Iterator[Difference]:
    """How a value differs from what is expected of it; where not `exact`, an object may have more than is expected."""
    if isinstance(expected, dict) and isinstance(found, dict):
        names = {**expected, **found} if exact else expected
        for name in names:
            if name not in expected:
                yield Difference(f"{what}.{name}", "nothing", found[name], where)
            else:
                inner = found.get(name, _ABSENT)
                yield from unlike(f"{what}.{name}", expected[name], inner, (*where, name), exact=exact)
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from unlike(f"{what}[{index}]", one, other, (*where, index), exact=exact)
    elif not _same(expected, found):
        yield Difference(what, expected, found, where)


def _same(one: Json, other: Json) -> bool:
    """Equality of JSON, in which true is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def _step(name: str, said: Json, result: Result, where: Location) -> Iterator[Difference]:
    wanted: Mapping[str, Json] = said if isinstance(said, dict) else {"status": said}
    try:
        record = result.steps[name]
    except KeyError as missing:
        if (status := branch_status(name, result)) is not None:
            if wanted.get("status") != status:
                yield Difference(f"branch {name}", wanted.get("status"), status, where)
        elif wanted.get("status") != "skipped" or "places" in str(missing):
            yield Difference(f"step {name}", said, missing.args[0], where)
        return
    facts = record.as_json()
    if isinstance(wanted.get("error"), str):
        wanted = {**wanted, "error": {"kind": wanted["error"]}}
    for field, expected in wanted.items():
        found = facts.get(field, _ABSENT)
        yield from unlike(f"step {name}: {field}", expected, found, (*where, field) if said is wanted else where)


def branch_status(name: str, result: Result) -> str | None:
    """Whether a branch of a condition (`decide/else`) was taken (completed) or skipped; None if it is none."""
    container, slash, branch = name.strip("/").rpartition("/")
    try:
        record = result.steps[container] if slash else None
    except KeyError:
        return None
    if record is None or record.type != "condition":
        return None
    taken = record.output.get("branch") if isinstance(record.output, dict) else None
    return "completed" if taken == branch else "skipped"


def _calls(name: str, said: Json, result: Result, where: Location) -> Iterator[Difference]:
    plain = name if name.startswith("/") or "/" not in name else f"/{name}"
    made = result.called(plain)
    if not isinstance(said, list):
        if not _same(said, len(made)):
            yield Difference(f"calls of {name}", said, len(made), where)
        return
    if len(said) != len(made):
        yield Difference(f"calls of {name}", said, made, where)
        return
    for index, (one, other) in enumerate(zip(said, made, strict=True)):
        yield from unlike(f"call {index + 1} of {name}", one, other, (*where, index))


def _expressions(test: TestCase, result: Result, where: Location) -> Iterator[Difference]:
    records = {step.id: _record(step.as_json()) for step in result.tree.steps}
    context = {
        "workflow_input": result.run.input,
        "output": result.output,
        "error": result.error,
        "steps": records,
        "step": {name: record["output"] for name, record in records.items() if record["status"] != "skipped"},
        "run": {"id": result.run.id, "status": result.status, "seconds": result.virtual_seconds},
        "calls": {step: len(result.called(step)) for step in records},
    }
    for index, expression in enumerate(test.that):
        try:
            found: Json = expression.program.evaluate(context)
            if found is False:
                found = {"false, for": explain(expression, context)["values"]}
        except ExpressionError as error:
            found = f"{error.message}" + (f" ({error.hint})" if error.hint else "")
        if found is not True:
            yield Difference(expression.source, expected=True, found=found, where=(*where, "that", index))


def _record(told: dict[str, Json]) -> dict[str, Json]:
    """A step as expressions see it, with the words of the language for its output and its skip."""
    return told | {"result": told["output"], "skip_reason": (told["skip_reason"] or {}).get("type")}
