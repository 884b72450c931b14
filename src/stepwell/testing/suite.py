"""Test files of a project: YAML that names a workflow, what its steps answer, and what must come of it.

    workflow: ../workflows/refund.yaml
    mock: {classify: {output: {label: refund}}}          # for every test; a test may say otherwise
    tests:
      - name: a large refund asks a person and is paid once
        input: {ticket: "..."}
        mock: {sign-off: {decision: approved, by: ana, delay: 2h}}
        expect: {status: completed, output: {reference: R1}, calls: {pay: 1}}

The law of the file: a test file is checked whole before any of it runs, and every problem is told with its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from stepwell.definition import yaml_text
from stepwell.definition.fields import Expression, seconds
from stepwell.definition.limits import LARGEST_FILE
from stepwell.definition.load import LoadedWorkflow
from stepwell.definition.positions import Location, Positions, plain
from stepwell.definition.report import Report, TooWrong
from stepwell.definition.step import walk
from stepwell.definition.suggest import did_you_mean
from stepwell.errors import DefinitionError, NotFound, Problem
from stepwell.expressions import ExpressionError
from stepwell.interpreter.instants import instant
from stepwell.testing.running import Project, everything
from stepwell.testing.scripted_world import ScriptedWorld
from stepwell.testing.scripts import bare, located, read_scripts
from stepwell.testing.virtual_time import START, VirtualClock

Json: TypeAlias = Any

TOP = ("workflow", "description", "mock", "input", "people", "start", "tests")
TEST = (
    "name", "workflow", "input", "mock", "expect", "people", "start", "jumps", "once", "requester", "strict",
)  # fmt: skip
EXPECT = (
    "status", "output", "exact", "error", "steps", "calls", "that", "notifications", "waits", "refused",
)  # fmt: skip
STATUSES = (
    "completed", "failed", "compensated", "cancelled", "timed_out", "pending_approval", "waiting", "suspended",
)  # fmt: skip
THAT_NAMES = frozenset({"output", "calls"})
"""What expressions of `that` see besides `workflow_input`, `steps`, `step`, `run` and `error`."""
ENDINGS = ("*.test.yaml", "*.test.yml")


@dataclass(frozen=True, slots=True)
class TestCase:
    """One test of a file."""

    __test__ = False  # no test of pytest's, whatever its name

    name: str
    project: Project
    input: Json
    mock: dict[str, Json]
    expect: dict[str, Json]
    that: tuple[Expression, ...]
    start: str = START
    jumps: tuple[tuple[str, float], ...] = ()
    """When the wall clock is set, and by how many hours."""
    once: frozenset[str] = frozenset()
    people: tuple[dict[str, Json], ...] = ()
    requester: str = ""
    strict: bool = True
    where: Location = ()

    def world(self) -> ScriptedWorld:
        return ScriptedWorld(
            self.mock, strict=self.strict, once=self.once, known=self.project.tools, people=self.people
        )

    def clock(self) -> VirtualClock:
        clock = VirtualClock(self.start)
        for after, hours in self.jumps:
            clock.jump(hours=hours, after=after)
        return clock


@dataclass(frozen=True, slots=True)
class Suite:
    """A test file, checked."""

    file: Path
    tests: tuple[TestCase, ...]
    positions: Positions

    def place(self, where: Location) -> str:
        """Where something is written: file:line."""
        line, _ = self.positions.place(where, key=True)
        return f"{self.file}:{line}" if line else str(self.file)


@dataclass(slots=True)
class _Reading:
    """A file being read."""

    file: Path
    positions: Positions
    problems: list[Problem] = field(default_factory=list)
    projects: dict[Path, Project | None] = field(default_factory=dict)

    def wrong(self, where: Location, message: str, hint: str = "", code: str = "test") -> None:
        line, column = self.positions.place(where, key=True)
        pointer = "".join(f"/{part}" for part in where)
        self.problems.append(Problem("error", code, message, hint, str(self.file), line, column, pointer))

    def known(self, given: Json, names: tuple[str, ...], where: Location, what: str) -> dict[str, Json]:
        """An object with these names alone; {} where it is none."""
        if not isinstance(given, dict):
            self.wrong(where, f"{what} is an object, this is {given!r}")
            return {}
        for name in given:
            if name not in names:
                self.wrong((*where, name), f"{what} has no {name!r}", did_you_mean(str(name), names))
        return given


def find_suites(places: list[Path]) -> list[Path]:
    """The test files of these files and folders, sorted. Raises NotFound where there is none."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            found += sorted({file for ending in ENDINGS for file in place.rglob(ending) if file.is_file()})
        elif place.is_file():
            found.append(place)
        else:
            raise NotFound(f"there is no file or folder {place}")
    if not found:
        looked = ", ".join(str(place) for place in places)
        raise NotFound(f"there are no tests in {looked}; they are files named  *.test.yaml")
    return list(dict.fromkeys(found))


def load_suite(file: Path) -> Suite:
    """A test file. Raises DefinitionError with all that is wrong with it and with the workflows that it names."""
    report = Report(str(file))
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError([Problem("error", "file", f"cannot read the file: {error}", "", str(file))]) from None
    try:
        if len(text) > LARGEST_FILE:
            raise report.stop((1, 1), "size", "the file is too large", "split it")
        root = yaml_text.compose(text, report)
    except TooWrong:
        raise report.error() from None
    reading = _Reading(file, Positions(root), list(report.problems))
    tests = tuple(_tests(plain(root), reading))
    if reading.problems:
        raise DefinitionError(
            sorted(reading.problems, key=lambda problem: (problem.file, problem.line, problem.column))
        )
    return Suite(file, tests, reading.positions)


def _tests(data: Json, reading: _Reading) -> Iterator[TestCase]:
    top = reading.known(data, TOP, (), "a test file")
    tests = top.get("tests")
    if not isinstance(tests, list) or not tests:
        reading.wrong(("tests",), "a test file has a list of tests", "write  tests: [{name: ..., expect: ...}]")
        return
    shared = _mapping(top, "mock", (), reading)
    names: set[str] = set()
    for index, given in enumerate(tests):
        where: Location = ("tests", index)
        said = reading.known(given, TEST, where, "a test")
        name = said.get("name")
        if not isinstance(name, str) or not name.strip():
            reading.wrong(where, "a test has a name", "write  name: a large refund asks a person")
        elif name in names:
            reading.wrong((*where, "name"), f"there are two tests named {name!r}")
        names.add(str(name))
        project = _project(said.get("workflow", top.get("workflow")), where, reading)
        facts = _facts({**top, **said}, where, reading)
        mock = shared | _mapping(said, "mock", where, reading)
        if project is not None:
            test = TestCase(name=str(name), project=project, mock=mock, where=where, **facts)
            _check_names(test, reading, own=set(said.get("mock") or ()))
            yield test


def _facts(said: dict[str, Json], where: Location, reading: _Reading) -> dict[str, Any]:
    """The fields of a test that need no workflow."""
    expect = reading.known(said.get("expect", {}), EXPECT, (*where, "expect"), "expect")
    if (status := expect.get("status")) is not None and status not in STATUSES:
        hint = did_you_mean(str(status), STATUSES) or f"one of {', '.join(STATUSES)}"
        reading.wrong((*where, "expect", "status"), f"no run is {status!r} when a test looks at it", hint)
    start = said.get("start", START)
    try:
        instant(str(start))
    except ValueError as error:
        reading.wrong((*where, "start"), str(error))
    return {
        "input": said.get("input"),
        "expect": expect,
        "that": tuple(_that(expect, where, reading)),
        "start": str(start),
        "jumps": tuple(_jumps(said.get("jumps", []), (*where, "jumps"), reading)),
        "once": frozenset(map(str, said.get("once") or ())),
        "people": tuple(said.get("people") or ()),
        "requester": str(said.get("requester") or ""),
        "strict": said.get("strict") is not False,
    }


def _that(expect: dict[str, Json], where: Location, reading: _Reading) -> Iterator[Expression]:
    given = expect.get("that", [])
    for index, text in enumerate(given if isinstance(given, list) else [given]):
        try:
            yield Expression(str(text), names=THAT_NAMES)
        except ExpressionError as error:
            place = (*where, "expect", "that", index) if isinstance(given, list) else (*where, "expect", "that")
            reading.wrong(place, f"{error.message} in {text!r}", error.hint or "", code="expression")


def _jumps(given: Json, where: Location, reading: _Reading) -> Iterator[tuple[str, float]]:
    for index, jump in enumerate(given if isinstance(given, list) else [given]):
        said = reading.known(jump, ("after", "hours"), (*where, index), "a jump")
        after, hours = said.get("after", "0s"), said.get("hours")
        try:
            seconds(after)
        except ValueError as error:
            reading.wrong((*where, index, "after"), str(error))
            continue
        if isinstance(hours, bool) or not isinstance(hours, int | float):
            reading.wrong((*where, index), "a jump sets the clock by hours", "write  {after: 10m, hours: -12}")
        else:
            yield str(after), float(hours)


def _mapping(said: dict[str, Json], name: str, where: Location, reading: _Reading) -> dict[str, Json]:
    """The scripts of a test or a file, without those that are wrong."""
    given = said.get(name, {})
    if not isinstance(given, dict):
        reading.wrong((*where, name), f"{name} is a map from a step to its answers, this is {given!r}")
        return {}
    scripts, problems = read_scripts(given, (*where, name))
    reading.problems += [located(problem, str(reading.file), reading.positions) for problem in problems]
    return {key: given[key] for key in scripts}


def _project(name: Json, where: Location, reading: _Reading) -> Project | None:
    """The workflow of a test, loaded once; its problems are told once too."""
    if not isinstance(name, str):
        reading.wrong(where, "a test is of a workflow", "write  workflow: ../workflows/refund.yaml  at the top")
        return None
    file = (reading.file.parent / name).resolve()
    if file not in reading.projects:
        try:
            reading.projects[file] = Project.of(file)
        except DefinitionError as error:
            reading.projects[file] = None
            reading.problems += error.problems
    return reading.projects[file]


def _check_names(test: TestCase, reading: _Reading, own: set[str]) -> None:
    """That scripts and expectations are of steps that there are."""
    steps = [step for loaded in everything(test.project) for step in walk(blocks(loaded))]
    ids = {step.id: step.type for step in steps}
    tools = {tool for step in steps for tool in getattr(step, "tools", ())}
    # the calls of agent steps are scripted by tool
    for name in test.mock:
        step = bare(f"/{name.strip('/').partition('/$')[0]}").rpartition("/")[2]
        agent, _, tool = step.partition(".")
        if step in tools or (agent in ids and tool in tools):
            continue
        where = (*test.where, "mock", name) if name in own else ("mock", name)
        if step not in ids:
            reading.wrong(
                where, f"there is no step {step!r} to be scripted", did_you_mean(step, [*ids, *tools]), "script"
            )
        elif ids[step] in {"loop", "condition", "parallel", "set", "end", "sub_workflow"}:
            hint = "script the steps inside it" if ids[step] not in {"set", "end"} else "leave it out"
            reading.wrong(where, f"{step} is a {ids[step]}, which calls nothing and asks nobody", hint, "script")
    for part in ("steps", "calls"):
        given = test.expect.get(part, {})
        if not isinstance(given, dict):
            reading.wrong((*test.where, "expect", part), f"{part} is a map from a step, this is {given!r}")
            continue
        for name in given:
            segments = bare(f"/{str(name).strip('/')}").split("/")[1:]
            if part == "steps" and not set(segments) & set(ids):
                hint = did_you_mean(segments[-1], ids)
                reading.wrong((*test.where, "expect", part, name), f"there is no step {name!r}", hint)


def blocks(loaded: LoadedWorkflow) -> tuple[Any, ...]:
    """The steps of a workflow, also those that run once it has failed."""
    failing = loaded.workflow.on_failure
    return (*loaded.workflow.steps, *(failing.steps if failing else ()))
