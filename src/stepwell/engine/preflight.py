"""Preflight: everything that stands in the way of a run, all at once, before its first effect.

The law of the file: it executes nothing; a check that cannot be made says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.check.calls import check_calls
from stepwell.definition.http_call import HTTP
from stepwell.definition.schemas import problems_of, with_defaults
from stepwell.definition.step import Location, NoRecipes, Step
from stepwell.definition.suggest import did_you_mean
from stepwell.engine.budget_checks import check_budgets
from stepwell.engine.deciders import undecidable
from stepwell.engine.limit_settings import limit_in_force
from stepwell.engine.retrieval import Retrieval
from stepwell.engine.tool_checks import UNASKED, servers_wanted, tool_problems
from stepwell.errors import DefinitionError, NotFound, Problem, Severity
from stepwell.extras import installing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepwell.definition.load import LoadedWorkflow
    from stepwell.engine.parts import Parts
    from stepwell.ports import Person, VectorCount

Json: TypeAlias = Any


_SEVERITY: dict[str, Severity] = {"model_fallback": "warning", "model_name": "warning", UNASKED: "note"}
"""Of what does not stand in the way of a run, by code."""


class Preflight:
    """The checks of one engine."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.retrieval = Retrieval(parts)
        self._passed: LoadedWorkflow | None = None
        """The workflow whose steps were found right last, as it was loaded."""
        self._unreachable: dict[str, str] | None = {}
        """MCP servers that did not answer when they were last asked, and why; None if none was asked."""
        self._asks = False
        """Whether that one asks people, whom the directory must have."""

    async def check(
        self, loaded: LoadedWorkflow, value: Json, *, requester: str = "", connects: bool = True
    ) -> tuple[Json, list[Problem]]:
        """The input with its defaults, and every problem but those that loading already told.

        Without `connects`, MCP servers are not asked what they offer, and a note says so.
        """
        filled, problems = checked_input(loaded.workflow.input, value)
        problems += self._parts.vault.stray(filled, "the input", "input")
        if self._passed is not loaded:
            await self._reach(loaded, connects=connects)
            found = [*check_calls(loaded, _Callees(self._parts, loaded.file)), *self._steps(loaded)]
            if not any(problem.severity == "error" for problem in found):  # else what is called may not load
                called = self._parts.called_by(loaded)
                found += [problem for child in called for problem in self._steps(child)]
                found += check_budgets(self._parts, loaded, called)
                self._asks = any(_asks(one) for one in (loaded, *called))
            self._passed = None if found else loaded
            problems += found
        if self._asks and not any(problem.severity == "error" for problem in problems):
            people = await self._parts.store.people.people(self._parts.account)
            for one in (loaded, *self._parts.called_by(loaded)):
                problems += self._told(one, lambda step: undecidable(step, people, requester))
        if not any(problem.severity == "error" for problem in problems):
            problems += await self.retrieval.check(loaded)
        return filled, problems

    async def _reach(self, loaded: LoadedWorkflow, *, connects: bool) -> None:
        """Ask the MCP servers that a workflow and those below it need what they offer."""
        self._unreachable = {} if connects else None
        if self._parts.servers is None or not connects:
            return
        try:
            called = self._parts.called_by(loaded)
        except (DefinitionError, NotFound):  # told by the checks of calls
            called = []
        wanted: set[str] = set()
        for one in (loaded, *called):
            wanted |= servers_wanted(one.workflow.every_step(), self._parts.servers)
        self._unreachable = await self._parts.servers.reach(wanted)

    def _steps(self, loaded: LoadedWorkflow) -> Iterator[Problem]:
        yield from self._told(loaded, lambda step: self._step(step, loaded))
        yield from self._parts.vault.missing(loaded, _everything(loaded))
        yield from self._parts.vault.stray(loaded.data, "the definition", loaded.file)

    def _told(
        self, loaded: LoadedWorkflow, check: Callable[[Step], Iterator[tuple[str, str, str]]]
    ) -> Iterator[Problem]:
        for where, step in _everything(loaded):
            for code, message, hint in check(step):
                place = (*where, code if hasattr(step, code) else "type")
                line, column = loaded.positions.place(place)
                pointer = "".join(f"/{part}" for part in place)
                severity = _SEVERITY.get(code, "error")
                yield Problem(severity, code, f"step {step.id}: {message}", hint, loaded.file, line, column, pointer)

    def _step(self, step: Step, loaded: LoadedWorkflow) -> Iterator[tuple[str, str, str]]:
        parts = self._parts
        tool, recipe = getattr(step, "tool", None), getattr(step, "recipe", None)
        if parts.servers is not None:
            yield from tool_problems(step, parts.servers, self._unreachable)
        elif step.type == "browser_action":
            yield (
                "server",
                f"there is no MCP server {getattr(step, 'server', '')!r}",
                "write [mcp.NAME] into stepwell.toml",
            )
        offered = parts.servers is not None and isinstance(tool, str) and parts.servers.server_of(tool)
        if step.type == "tool_call" and isinstance(tool, str) and not offered and parts.tools.get(tool) is None:
            known = parts.tools.names()
            hint = (
                installing("http")
                if tool == HTTP
                else did_you_mean(tool, known)
                or (
                    f"registered tools: {', '.join(known[:20])}"
                    if known
                    else "name its file with --tools FILE.py or in stepwell.toml"
                )
            )
            yield "tool", f"no tool {tool!r} is registered", hint
        for name in getattr(step, "tools", ()):
            if parts.tools.get(name) is None:
                known = parts.tools.names()
                yield (
                    "tools",
                    f"no tool {name!r} is registered",
                    did_you_mean(name, known) or "name its file with --tools",
                )
        if step.type == "recipe" and isinstance(recipe, str) and recipe.partition("@")[0]:
            finder = parts.finder(loaded.file)
            if isinstance(finder, NoRecipes):
                yield "recipe", f"there is no recipe {recipe!r}", "put it into recipes/ beside the workflow"
                return
            try:
                found = finder.find(recipe).definition
            except (NotFound, DefinitionError) as error:
                yield "recipe", *_not_usable(recipe, error)
                return
            model = getattr(step, "model", None) or found.model.model_dump(exclude_defaults=True) or None
            yield from self._model(model, found.task)
        elif step.type == "llm_call":
            yield from self._model(getattr(step, "model", None), "generate")

    def _model(self, model: Json, task: str) -> Iterator[tuple[str, str, str]]:
        if self._parts.models is None:
            yield "model", "no model is configured", "install the extra `local`, or name a model in stepwell.toml"
            return
        for problem in self._parts.models.problems_with(model, task):
            yield problem.code, problem.message, problem.hint

    async def doctor(self) -> list[Problem]:
        """What works and what is missing; severity note for what is fine."""
        parts = self._parts
        unreachable = await parts.servers.reach(parts.servers.servers) if parts.servers is not None else {}
        found = [Problem("error", "server", f"the MCP server {name!r} cannot be asked: {why}",
                         f"see [mcp.{name}] in stepwell.toml") for name, why in unreachable.items()]  # fmt: skip
        found += [_tools_known(parts.tools.names())]
        if parts.models is None:
            found.append(Problem("error", "model", "no model is configured", "install the extra `local`"))
        else:
            problems = list(parts.models.available())
            found += problems or [Problem("note", "model", "every configured model can be asked")]
        documents = await parts.knowledge.documents("default")
        found.append(_knowledge_known(len(documents), await parts.knowledge.vectors("default")))
        if parts.limiter is not None:
            found.append(limit_in_force(await parts.limiter.standing(parts.account)))
        found.append(_people_known(await parts.store.people.people("default")))
        return found


def _not_usable(recipe: str, error: NotFound | DefinitionError) -> tuple[str, str]:
    """Why a recipe cannot be called, and what helps."""
    if isinstance(error, DefinitionError):
        wrong = [problem for problem in error.problems if problem.severity == "error"]
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        first = str(wrong[0]).splitlines()[0]
        return (
            f"the recipe {recipe!r} is wrong: {first}{more}",
            f"`stepwell validate {wrong[0].file}` lists its problems",
        )
    if "has no version" in str(error):
        return str(error), "name one of these, or keep the other one as recipes/ID@VERSION.yaml or in the library"
    message, _, hint = str(error).partition("; ")
    return message, hint or "put it into recipes/ beside the workflow"


def _knowledge_known(documents: int, count: VectorCount) -> Problem:
    said = f"{documents} document{'' if documents == 1 else 's'}"
    said += f", {count.vectors} of {count.passages} passages with a vector"
    if count.problem:
        severity: Severity = "warning" if count.passages else "note"
        hint = "stepwell kb index" if count.vectors else f"install the extra: {installing('local')}"
        return Problem(severity, "knowledge", f"{said}; found by words alone: {count.problem}", hint)
    if count.vectors < count.passages:
        return Problem("note", "knowledge", f"{said} so far", "stepwell kb index makes the others now")
    return Problem("note", "knowledge", said)


def _tools_known(names: Sequence[str]) -> Problem:
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    said = f"{len(names)} tool{'' if len(names) == 1 else 's'}: {', '.join(names[:20])}{more}"
    return Problem("note", "tools", said)


def _people_known(people: Sequence[Person]) -> Problem:
    if not people:
        said = (
            "no people are known: the local operator holds every role, and requesters may approve what they asked for"
        )
        return Problem("note", "people", said, "stepwell users add NAME --role approver")
    decide = sum(bool({"approver", "admin"} & {*one.roles}) for one in people)
    if not decide:
        said = f"{len(people)} people, and none may decide an approval that names no approvers"
        return Problem("warning", "people", said, "stepwell users add NAME --role approver")
    return Problem("note", "people", f"{len(people)} people, {decide} of them with the role approver or admin")


class _Callees:
    """What the steps of a file can call, for the checks of calls."""

    def __init__(self, parts: Parts, file: str) -> None:
        self._parts = parts
        self._recipes = parts.finder(file)

    def recipe_input(self, recipe: str) -> dict[str, Json] | None:
        if isinstance(self._recipes, NoRecipes):
            return None
        try:
            return self._recipes.find(recipe).definition.input
        except (NotFound, DefinitionError):  # told by the checks of recipes
            return None

    def workflow(self, name: str, file: str) -> LoadedWorkflow:
        return self._parts.child(name, file)


def _everything(loaded: LoadedWorkflow) -> Iterator[tuple[Location, Step]]:
    return (found for top, steps in loaded.workflow.lists() for found in _located(steps, top))


def _asks(loaded: LoadedWorkflow) -> bool:
    return any(step.type == "approval" for _, step in _everything(loaded))


def _located(steps: Iterable[Step], where: Location) -> Iterator[tuple[Location, Step]]:
    """All steps with their place in the definition."""
    for index, step in enumerate(steps):
        yield (*where, index), step
        for block in step.all_blocks():
            yield from _located(block.steps, (*where, index, *block.where))


def checked_input(schema: Mapping[str, Json], value: Json, what: str = "the workflow") -> tuple[Json, list[Problem]]:
    """The input with defaults for absent fields, and what does not fit; null is a value, absence is not."""
    value = {} if value is None else value
    if not isinstance(value, dict):
        kind = type(value).__name__
        return value, [
            Problem("error", "input", f"the input is an object, this is {kind}", "give name: value pairs", "input")
        ]
    if not schema:
        return value, []
    filled = with_defaults(dict(schema), value)
    problems = [Problem("error", "input", text.partition(": ")[2], "", "input", path=text.partition(": ")[0])
                for text in problems_of(dict(schema), filled)]  # fmt: skip
    properties = schema.get("properties")
    if isinstance(properties, dict) and "additionalProperties" not in schema and "patternProperties" not in schema:
        problems += [
            Problem("warning", "input", f"{what} declares no input {name!r}", did_you_mean(name, properties), "input")
            for name in value
            if name not in properties
        ]
    return filled, problems
