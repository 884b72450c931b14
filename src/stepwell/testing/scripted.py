"""A scripted world: tools that answer from a script, count every call, and take the time they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stepwell.errors import StepFailed
from stepwell.ports import Tool, ToolCallContext

Json: TypeAlias = Any
Answer: TypeAlias = Json | StepFailed | Callable[[dict[str, Json]], Json]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a tool received."""

    tool: str
    path: str
    attempt: int
    arguments: dict[str, Json]
    key: str


@dataclass(slots=True)
class ScriptedTools:
    """Implements `ports.Tools`. `answers` gives, by path or tool name, a list consumed per attempt (the last repeats).

    An answer is a value, a StepFailed to be raised, or a function of the arguments. What is not scripted echoes its
    arguments. `delays` are seconds by path or tool name; `once` names tools that are not idempotent.
    """

    answers: Mapping[str, Sequence[Answer]] = field(default_factory=dict)
    delays: Mapping[str, float] = field(default_factory=dict)
    once: frozenset[str] = frozenset()
    calls: list[Call] = field(default_factory=list)

    def get(self, name: str) -> Tool | None:
        return Tool(name, "scripted", {"type": "object"}, name not in self.once)

    def names(self) -> list[str]:
        return sorted(set(self.answers) | self.once)

    def called(self, tool: str) -> list[dict[str, Json]]:
        """The arguments of every call of a tool, in order."""
        return [call.arguments for call in self.calls if call.tool == tool]

    async def call(self, name: str, arguments: dict[str, Json], context: ToolCallContext) -> Json:
        self.calls.append(Call(name, context.path, context.attempt, arguments, context.key))
        delay = self.delays.get(context.path, self.delays.get(name, 0.0))
        if delay:
            await asyncio.sleep(delay)
        script = self.answers.get(context.path, self.answers.get(name))
        if not script:
            return dict(arguments)
        answer = script[min(context.attempt, len(script)) - 1]
        if isinstance(answer, StepFailed):
            kept = False if answer.final else None
            raise StepFailed(answer.kind, answer.message, kept, answer.retry_after, answer.detail)
        return answer(arguments) if callable(answer) else answer
