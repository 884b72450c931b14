"""Calls of other definitions: sub-workflows exist and do not call in a circle, and what is called gets its inputs.

The law of the file: a definition that a text names only at run time is not looked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from stepwell.definition.check.survey import survey
from stepwell.definition.parse import Parsed
from stepwell.definition.report import Finding, Report
from stepwell.definition.schemas import problems_of
from stepwell.definition.suggest import did_you_mean
from stepwell.errors import DefinitionError, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepwell.definition.check.survey import StepSite
    from stepwell.definition.fields import Value
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.definition.step import Location, Schema
    from stepwell.errors import Problem

Json: TypeAlias = Any

_SIMPLE = frozenset({"type", "title", "description", "default", "examples"})
"""Keywords for which a value is judged without the library."""
_TYPES: dict[Json, type] = {"string": str, "boolean": bool, "array": list, "object": dict, "null": type(None)}


class Callees(Protocol):
    """What can be called, as a file sees it."""

    def recipe_input(self, recipe: str) -> Schema | None:
        """The schema of a recipe's input; None where the recipe is unknown or wrong."""

    def workflow(self, name: str, file: str) -> LoadedWorkflow:
        """The workflow that `id` or `id@version` names in a file. Raises NotFound, DefinitionError."""


def check_calls(loaded: LoadedWorkflow, library: Callees) -> list[Problem]:
    """What is wrong with the calls of a workflow that is right by itself."""
    calls = _Calls(loaded, library)
    report = Report(loaded.file)
    report.locate(calls.findings(), loaded.positions)
    return report.sorted()


class _Calls:
    def __init__(self, loaded: LoadedWorkflow, library: Callees) -> None:
        self._loaded = loaded
        self._library = library
        self._called: dict[tuple[str, str], LoadedWorkflow | NotFound | DefinitionError] = {}
        self._straight: set[str] = set()

    def findings(self) -> Iterator[Finding]:
        for site in survey(Parsed(self._loaded.workflow)).steps:
            if site.step.type == "recipe":
                schema = self._library.recipe_input(str(getattr(site.step, "recipe", "")))
                if schema:
                    yield from _inputs(site, schema, "the recipe")
            elif (name := _static_name(site)) is not None:
                yield from self._sub_workflow(site, name)

    def _sub_workflow(self, site: StepSite, name: str) -> Iterator[Finding]:
        where = (*site.where, "workflow")
        child = self._child(name, self._loaded.file)
        if isinstance(child, NotFound):
            message, _, looked = str(child).partition("; ")
            yield Finding("workflow", message, where, looked)
        elif isinstance(child, DefinitionError):
            wrong = [problem for problem in child.problems if problem.severity == "error"]
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            yield Finding("workflow", f"the workflow '{name}' is wrong: {str(wrong[0]).splitlines()[0]}{more}", where,
                          "`stepwell validate` lists its problems")  # fmt: skip
        else:
            circle = self._circle(child, [self._loaded.workflow.workflow])
            if circle:
                message = f"workflows call each other in a circle: {' > '.join(circle)}"
                yield Finding("recursion", message, where, "a workflow named by a template may; it is bounded by depth")
            if child.workflow.input:
                yield from _inputs(site, child.workflow.input, f"the workflow '{name}'")

    def _child(self, name: str, file: str) -> LoadedWorkflow | NotFound | DefinitionError:
        found = self._called.get((name, file))
        if found is None:
            try:
                found = self._library.workflow(name, file)
            except (NotFound, DefinitionError) as error:
                found = error
            self._called[name, file] = found
        return found

    def _circle(self, start: LoadedWorkflow, chain: list[str]) -> list[str] | None:
        """The ids of a circle of calls that a workflow leads into; each workflow is looked into once."""
        chain = [*chain]
        waiting = [(start, iter([start]))]
        while waiting:
            _, children = waiting[-1]
            child = next(children, None)
            if child is None:
                waiting.pop()
                if waiting:
                    self._straight.add(chain.pop())
                continue
            called = child.workflow.workflow
            if called in chain:
                return [*chain[chain.index(called) :], called]
            if called not in self._straight:
                chain.append(called)
                waiting.append((child, self._children(child)))
        return None

    def _children(self, loaded: LoadedWorkflow) -> Iterator[LoadedWorkflow]:
        for site in survey(Parsed(loaded.workflow)).steps:
            name = _static_name(site)
            child = self._child(name, loaded.file) if name is not None else None
            if child is not None and not isinstance(child, NotFound | DefinitionError):
                yield child


def _static_name(site: StepSite) -> str | None:
    """The workflow that a step names for certain."""
    name = getattr(site.step, "workflow", None)
    if site.step.type != "sub_workflow" or name is None or not name.compiled.is_constant:
        return None
    return str(name.source)


def _inputs(site: StepSite, schema: Schema, what: str) -> Iterator[Finding]:
    """Inputs that are missing, unknown, or constant and unfit."""
    given: Mapping[str, Value] = getattr(site.step, "inputs", {})
    properties = schema.get("properties")
    declared: dict[str, Json] = properties if isinstance(properties, dict) else {}
    place: Location = (*site.where, "inputs")
    for name in schema.get("required") or ():
        described = declared.get(name)
        if name not in given and not (isinstance(described, dict) and "default" in described):
            yield Finding("input", f"{what} needs the input '{name}'", place if given else site.where,
                          f"add inputs: {{{name}: ...}}")  # fmt: skip
    closed = schema.get("additionalProperties") is False
    for name, value in given.items():
        if name in declared:
            yield from _constant(value, declared[name], (*place, name), f"the input '{name}' of {what}")
        elif declared and "patternProperties" not in schema and (closed or "additionalProperties" not in schema):
            hint = did_you_mean(name, sorted(declared), "inputs")
            yield Finding("input", f"{what} declares no input '{name}'", (*place, name), hint,
                          "error" if closed else "warning", key=True)  # fmt: skip


def _constant(value: Value, schema: Json, where: Location, what: str) -> Iterator[Finding]:
    """A value that is known beforehand fits, where its schema stands by itself."""
    if not isinstance(schema, dict) or "$ref" in str(schema) or not value.tree.is_constant:
        return
    if schema.keys() <= _SIMPLE and _is_of(value.source, schema.get("type")):
        return
    for problem in problems_of(schema, value.source):
        yield Finding("input", f"{what} does not fit: {problem.partition(': ')[2]}", where)


def _is_of(value: Json, word: Json) -> bool:
    """Whether a value surely is of a type; None is any type."""
    if word == "integer":
        return type(value) is int
    if word == "number":
        return type(value) in {int, float}
    return word is None or (isinstance(word, str) and word in _TYPES and isinstance(value, _TYPES[word]))
