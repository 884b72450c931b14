"""The scripted world: every effect of a run answered from a script, every call kept.

The law of the file: nothing outside is touched. A step without a script is never answered by chance: it fails, with
how to write its script, or, where `strict` is off, answers something that fits its schema.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stepwell.definition.schemas import problems_of
from stepwell.definition.step import Step
from stepwell.engine.knowledge_performer import KnowledgePerformer
from stepwell.engine.notify_performer import NotifyPerformer
from stepwell.engine.performer import CallContext, Performed, Performer
from stepwell.errors import InputError, Problem, StepFailed
from stepwell.interpreter.effect import Effect, KnowledgeRead, KnowledgeWrite, ModelCall, Notify, ToolCall
from stepwell.ports import KnowledgeStore, Person, Tool, ToolCallContext, Tools
from stepwell.stores.knowledge_memory import MemoryKnowledge
from stepwell.testing.fitting import fitting
from stepwell.testing.scripts import Answer, Scripts, bare

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a step made. `kind` is tool, model, kb_search, kb_write or notify; `at` is UTC seconds."""

    path: str
    step: str
    attempt: int
    kind: str
    arguments: Json
    tool: str = ""
    key: str = ""
    at: float = 0.0


@dataclass(slots=True)
class ScriptedWorld:
    """What answers a run's steps, people and events in a test.

    `scripts` maps a step id or path to one answer or a list of them (see `testing/scripts.py`); `once` names tools
    that are not idempotent. A world keeps what happened in it: use a new one for each run.
    """

    scripts: Mapping[str, Json] | Scripts = field(default_factory=dict)
    strict: bool = True
    people_agree: bool = False
    """Whether approvals and waits for events without a script are answered: everybody approves, and events come."""
    once: frozenset[str] = frozenset()
    known: Tools | None = None
    """Registered tools: whether one may be repeated is theirs to say. None of them is called."""
    people: Sequence[Person | Mapping[str, Json]] = ()
    """Who is known: `Person`, or the same as plain data. Without anybody, every name may decide everything."""
    knowledge: KnowledgeStore = field(default_factory=MemoryKnowledge)
    """Where `kb_search` and `kb_write` steps without a script read and write."""
    calls: list[Call] = field(default_factory=list)
    unscripted: dict[str, str] = field(default_factory=dict)
    """How to write the scripts that were missed, by path."""
    steps: Mapping[str, Step] = field(default_factory=dict)
    """The steps of the workflow and of those that it calls, by id: for the schemas of answers."""
    ended: Callable[[], bool] = lambda: False
    """Whether the engine has been killed: it calls nobody any more."""
    clock: Callable[[], float] = lambda: 0.0
    _begun: dict[str, list[tuple[str, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.scripts, Scripts):
            self.scripts = Scripts(self.scripts)

    def known_people(self) -> list[Person]:
        """Raises InputError for one who is described wrongly."""
        try:
            return [one if isinstance(one, Person) else Person(**_person(one)) for one in self.people]
        except TypeError as wrong:
            hint = "write  {name: ana, roles: [approver], departments: [care]}"
            raise InputError([Problem("error", "people", f"no person is described so: {wrong}", hint)]) from None

    def answers(self) -> Scripts:
        assert isinstance(self.scripts, Scripts)
        return self.scripts

    def called(self, name: str) -> list[Json]:
        """The arguments of every call of a tool, or of a step by its id or path, in order."""
        return [call.arguments for call in self.calls if name in {call.tool, call.step, call.path}]

    def performers(self) -> dict[type[Effect], Performer]:
        """Performers for every type of effect."""
        own = KnowledgePerformer(self.knowledge)
        notify = NotifyPerformer(clock=lambda: self.clock())  # noqa: PLW0108 -- the clock is set later

        def over(behind: Performer | None) -> Performer:
            async def perform(effect: Effect, context: CallContext) -> Performed:
                return await self._perform(effect, context, behind)

            return perform

        return {
            ModelCall: over(None),
            ToolCall: over(None),
            KnowledgeRead: over(own),
            KnowledgeWrite: over(own),
            Notify: over(notify),
        }

    async def _perform(self, effect: Effect, context: CallContext, behind: Performer | None) -> Performed:
        if self.ended():
            raise asyncio.CancelledError
        path = context.path
        step = bare(path.partition("/$")[0]).rpartition("/")[2]
        tool = effect.tool if isinstance(effect, ToolCall) else ""
        number = self._number(path, context.attempt, tool)
        self.calls.append(
            Call(path, step, context.attempt, effect.word, effect.arguments(), tool, context.key, self.clock())
        )
        script = self.answers().find(path, tool)
        if script is None or not script.calls:
            return await (behind(effect, context) if behind else self._unscripted(effect, step, path))
        answer = script.calls[min(number, len(script.calls)) - 1]
        if answer.delay:
            await asyncio.sleep(answer.delay)
        if answer.word == "error":
            raise answer.failure()
        return Performed(_shaped(effect, answer), answer.usage)

    def _number(self, path: str, attempt: int, tool: str) -> int:
        """Which call at its place this is, from 1; rounds go on counting, and a repeated call counts once.

        Calls of an earlier process are not known here, but its rounds and attempts are in the path.
        """
        if "/$" in path:  # the calls of an agent step are read on together, by turn or by tool
            return self._number_of_part(path, attempt, tool)
        seen = self._begun.setdefault(bare(path), [])
        if (path, attempt) not in seen:
            seen.append((path, attempt))
        rounds = sum(int(segment.partition("#")[2] or 1) - 1 for segment in path.split("/"))
        return max(seen.index((path, attempt)) + 1, attempt, rounds + 1)

    def _number_of_part(self, path: str, attempt: int, tool: str) -> int:
        step = path.partition("/$")[0]
        seen = self._begun.setdefault(f"{bare(step)}.{tool}", [])
        if (path, attempt) not in seen:
            seen.append((path, attempt))
        turn = 0 if tool else int(path.rpartition("$t")[2])  # an earlier process may have taken turns
        return max(seen.index((path, attempt)) + 1, turn)

    async def _unscripted(self, effect: Effect, step: str, path: str) -> Performed:
        schema = self._schema(effect, step)
        try:
            example = fitting(schema) if schema is not None else None
        except ValueError:
            schema = example = None
        if not self.strict and schema is not None:
            return Performed(example, {"way": "fitted"})
        written = "..." if schema is None else example
        name = f"{step}.{effect.tool}" if isinstance(effect, ToolCall) and "/$" in path else step
        how = f"{name}: {{output: {written}}}"
        self.unscripted[path] = how
        raise StepFailed("unscripted", f"{path} has no script; write  {how}", retryable=False)

    def _schema(self, effect: Effect, step: str) -> dict[str, Json] | None:
        if isinstance(effect, ModelCall):
            if effect.schema is not None:
                return effect.schema
            if effect.task == "classify":
                return {"type": "object", "properties": {"label": {"enum": list(effect.labels or ["label"])}}}
            return {"type": "object", "properties": {"text": {"type": "string"}}}
        found = self.steps.get(step)
        return getattr(found, "output_schema", None)


def _person(said: Mapping[str, Json]) -> dict[str, Json]:
    return {name: tuple(part) if isinstance(part, list) else part for name, part in said.items()}


def _shaped(effect: Effect, answer: Answer) -> Json:
    """The answer's output in the form that the effect gives. Raises StepFailed for one that does not fit its schema."""
    value = answer.value(effect.arguments()) if callable(answer.value) else answer.value
    if not isinstance(effect, ModelCall):
        return value
    if effect.task == "classify" and (label := value.get("label") if isinstance(value, dict) else value):
        labels = list(effect.labels or ())
        scores = {name: 1.0 if name == label else 0.0 for name in labels}
        value = {"label": label, "confidence": 1.0, "scores": scores} | (value if isinstance(value, dict) else {})
    elif effect.task == "extract_summary" and isinstance(value, str):
        value = {"text": value, "sentences": [value]}
    elif effect.schema is None and isinstance(value, str):
        value = {"text": value}
    if effect.offers and isinstance(value, dict) and set(value) <= {"calls", "text"} and "calls" in value:
        return {
            "text": value.get("text", ""),
            "calls": [_asked(index, call) for index, call in enumerate(value["calls"])],
        }
    if effect.schema is not None and (wrong := list(problems_of(effect.schema, value))):
        detail = {"answer": value, "problems": wrong}
        raise StepFailed("output_invalid", f"the answer does not fit the output schema: {wrong[0]}", detail=detail)
    return {"answer": value} if effect.offers else value


def _asked(index: int, call: Mapping[str, Json]) -> dict[str, Json]:
    """A call that a scripted model asks for, written `{tool, arguments}`."""
    return {"id": f"call_{index}", "name": call["tool"], "arguments": call.get("arguments", {})}


class AnyTools:
    """Implements `ports.Tools` for a scripted world: every tool is there, and none is called through it."""

    def __init__(self, world: ScriptedWorld) -> None:
        self._world = world

    def get(self, name: str) -> Tool | None:
        known = self._world.known.get(name) if self._world.known else None
        return known or Tool(name, "scripted", {"type": "object"}, name not in self._world.once)

    def names(self) -> list[str]:
        return self._world.known.names() if self._world.known else sorted(self._world.once)

    async def call(self, name: str, arguments: dict[str, Json], context: ToolCallContext) -> Json:
        del arguments, context
        raise StepFailed("unscripted", f"the tool {name} is not called in a scripted world", retryable=False)


class AnyModels:
    """Implements what preflight asks of models: whatever a step names will do."""

    def available(self) -> Sequence[Problem]:
        return ()

    def problems_with(self, model: Json, task: str = "generate") -> Sequence[Problem]:
        del model, task
        return ()

    def unpriced(self, model: Json, task: str = "generate") -> Sequence[str]:
        del model, task
        return ()

    def budget_of(self, workflow: str) -> Sequence[Any]:
        del workflow
        return ()
