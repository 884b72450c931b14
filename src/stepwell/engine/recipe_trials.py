"""Trying a recipe: one question asked as a run would ask it, and no run.

The law of the file: a trial goes through the same performer as a run's step and stores nothing; a failure is a result.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.expectation import Unlike, unlike
from stepwell.definition.policy import RetryPolicy
from stepwell.engine.performer import CallContext
from stepwell.errors import StepFailed, Unavailable
from stepwell.interpreter import backoff
from stepwell.interpreter.effect import ModelCall
from stepwell.interpreter.recipes import PinnedRecipe

if TYPE_CHECKING:
    from stepwell.definition.recipe import RecipeTest
    from stepwell.engine.parts import Parts
    from stepwell.engine.performer import Performed, Performer
    from stepwell.library.recipes import FoundRecipe

Json: TypeAlias = Any

ONCE = RetryPolicy(max_attempts=1)
AS_A_RUN = RetryPolicy()
TIMEOUT = 60.0
"""Seconds of one attempt, as of a step that says nothing else."""
_SUMS = frozenset({"input_tokens", "output_tokens", "cached_tokens", "repairs", "cost_usd", "queued_ms"})
"""Facts of attempts that are added up."""
INVALID = frozenset({"output_invalid", "truncated_output"})
"""Kinds of answers that cannot be used; a run asks again."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A question to a recipe and what came of it: `output`, or `error` as a run would record it.

    `seconds` are those of the last attempt, without what it waited for slots; `usage` is that of all attempts.
    """

    recipe: str
    input: dict[str, Json]
    output: Json = None
    error: dict[str, Json] | None = None
    usage: dict[str, Json] = field(default_factory=dict)
    seconds: float = 0.0
    attempts: int = 1
    prompt: str = ""
    system: str = ""

    @property
    def answer(self) -> Json:
        """What was answered and cannot be used; None where nothing was."""
        detail = (self.error or {}).get("detail")
        return detail.get("answer") if isinstance(detail, dict) else None

    def as_json(self) -> dict[str, Json]:
        return {
            "recipe": self.recipe,
            "input": self.input,
            "output": self.output,
            "error": self.error,
            "usage": self.usage,
            "seconds": round(self.seconds, 4),
            "attempts": self.attempts,
        }


@dataclass(frozen=True, slots=True)
class Tested:
    """A test of a recipe, the trial, and what was not as expected."""

    test: RecipeTest
    number: int
    trial: Trial
    unlike: tuple[Unlike, ...]

    @property
    def name(self) -> str:
        return self.test.name or f"test {self.number}"

    @property
    def passed(self) -> bool:
        return self.trial.error is None and not self.unlike


class Trials:
    """Asks recipes with the models of one engine."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def ask(
        self,
        found: FoundRecipe,
        value: dict[str, Json],
        *,
        model: str = "",
        retry: RetryPolicy = ONCE,
        timeout: float = TIMEOUT,
    ) -> Trial:
        """Ask once, or as often as a run would with this policy."""
        try:
            effect = PinnedRecipe(found.reference, found.definition).call(value, model=model or None)
        except StepFailed as failure:
            return Trial(found.reference, value, error=failure.record(), attempts=0)
        return await _Asked(self._performer(), self._parts.account, found, effect, timeout).asked(retry)

    async def test(
        self, found: FoundRecipe, tests: Sequence[tuple[int, RecipeTest]], *, model: str, timeout: float
    ) -> list[Tested]:
        """The outcome of tests of a recipe, each with its number from 1, one after the other."""
        outcomes = []
        for number, test in tests:
            trial = await self.ask(found, test.input, model=model, timeout=timeout)
            wrong = tuple(unlike(test.expect, trial.output)) if trial.error is None else ()
            outcomes.append(Tested(test, number, trial, wrong))
        return outcomes

    def _performer(self) -> Performer:
        performer = self._parts.world.performers.get(ModelCall)
        if performer is None:
            raise StepFailed("not_found", "no model is configured")
        return performer


class _Asked:
    """One question, asked until it is answered or attempts are spent."""

    def __init__(
        self, performer: Performer, account: str, found: FoundRecipe, effect: ModelCall, timeout: float
    ) -> None:
        self._performer = performer
        self._account = account
        self._found = found
        self._effect = effect
        self._timeout = timeout
        self._id = f"trial-{secrets.token_hex(6)}"
        self._usage: dict[str, Json] = {}

    async def asked(self, retry: RetryPolicy) -> Trial:
        number = 1
        while True:
            begun = time.perf_counter()
            failure: StepFailed | None = None
            performed: Performed | None = None
            try:
                performed = await self._performer(self._effect, self._context(number))
            except StepFailed as failed:
                failure = failed
            except Unavailable as gone:
                failure = StepFailed("connection_error", str(gone))
            seconds = time.perf_counter() - begun
            if failure is None and performed is not None:
                self._add(performed.meta)
                seconds -= (performed.meta or {}).get("queued_ms", 0) / 1000
                return self._trial(number, max(0.0, seconds), output=performed.value)
            assert failure is not None
            self._add(failure.detail.get("usage") if isinstance(failure.detail, dict) else None)
            pause = backoff.delay(retry, number, failure, self._id)
            if number >= retry.max_attempts or not _may_retry(retry, failure) or pause > backoff.LONGEST_HINT:
                return self._trial(number, seconds, error=failure.record())
            await asyncio.sleep(pause)
            number += 1

    def _context(self, number: int) -> CallContext:
        path = f"/{self._found.definition.recipe}"
        return CallContext(self._account, self._id, path, number, f"{self._id}{path}", self._timeout)

    def _trial(self, number: int, seconds: float, *, output: Json = None, error: Json = None) -> Trial:
        return Trial(
            recipe=self._found.reference,
            input=self._effect.inputs,
            output=output,
            error=error,
            usage=self._usage,
            seconds=seconds,
            attempts=number,
            prompt=self._effect.prompt,
            system=self._effect.system,
        )

    def _add(self, meta: dict[str, Json] | None) -> None:
        """What an attempt took, besides what the ones before it took."""
        for name, value in (meta or {}).items():
            adds = name in _SUMS and value is not None
            self._usage[name] = self._usage.get(name, 0) + value if adds else value


def _may_retry(retry: RetryPolicy, failure: StepFailed) -> bool:
    return backoff.may_pass(retry, failure) or (failure.kind in INVALID and failure.kind not in retry.unless)
