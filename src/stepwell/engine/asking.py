"""Asking a model: one question, put again once where the answer does not fit, and what all its requests took.

The law of the file: every request to a model goes through `Asking.ask`, so that whatever bounds or counts requests has
one place. The timeout of a request runs once the request holds its slots, not while it waits for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.adapters.limits.queueing import Queueing
from stepwell.adapters.models import bounds
from stepwell.adapters.models.answer import parse_answer
from stepwell.adapters.models.conversation import schema_in_words
from stepwell.engine.flight import LAST_WORD
from stepwell.engine.model_choice import Choice, falls_back
from stepwell.engine.telling import Telling
from stepwell.errors import StepFailed
from stepwell.ports import LanguageModel, ModelReply, ModelRequest

if TYPE_CHECKING:
    from stepwell.engine.spending import Purse

Json: TypeAlias = Any

SHOWN = 8_000
"""Characters of a wrong answer that the repair request shows to the model."""
LONG = 100_000
"""Characters from which an answer is parsed in a thread, so that the event loop goes on."""
QUEUED = 0.01
"""Seconds in a queue that are worth telling."""


@dataclass(slots=True)
class Usage:
    """What the requests of one call took together."""

    model: str = ""
    finish_reason: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    repairs: int = 0
    cached_tokens: int = 0
    unpriced: int = 0
    """Tokens whose price nobody knows."""
    fell_back: list[dict[str, Json]] = field(default_factory=list)
    """Models that did not answer, and why."""
    queued: float = 0.0
    """Seconds that the requests waited for slots, or for room in a budget."""
    budget: dict[str, Json] = field(default_factory=dict)
    """What was done because of a budget."""

    def add(self, reply: ModelReply) -> None:
        self.model = reply.model
        self.finish_reason = reply.finish_reason
        self.input_tokens += reply.input_tokens
        self.output_tokens += reply.output_tokens
        self.cached_tokens += reply.cached_tokens
        if reply.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + reply.cost_usd
        else:
            self.unpriced += reply.input_tokens + reply.output_tokens

    def meta(self) -> dict[str, Json]:
        facts: dict[str, Json] = {
            "model": self.model,
            "way": "model",
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "repairs": self.repairs,
        }
        if self.finish_reason not in {"stop", "tool_call"}:
            facts["finish_reason"] = self.finish_reason
        if self.cost_usd is not None:
            facts["cost_usd"] = self.cost_usd
            if self.unpriced:
                facts["tokens_without_price"] = self.unpriced
        if self.cached_tokens:
            facts["cached_tokens"] = self.cached_tokens
        if self.fell_back:
            facts["fell_back"] = self.fell_back
        if self.queued >= QUEUED:
            facts["queued_ms"] = round(1000 * self.queued)
        if self.budget:
            facts["budget"] = self.budget
        return facts


class Asking:
    """The requests of one performed model call. `slot` is held around each of them, and `purse` pays for it.

    `others` are asked in turn when the model fails in a way that says nothing against the question; `name` is what the
    settings call the model. `on_queue` hears when a request waits for a slot, and when it does no more.
    """

    def __init__(
        self,
        model: LanguageModel,
        slot: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        purse: Purse | None = None,
        *,
        name: str = "",
        others: Sequence[Choice] = (),
        on_queue: Callable[[bool], None] | None = None,
    ) -> None:
        self.usage = Usage() if purse is None else Usage(budget=purse.facts)
        self._asked = [Choice(name, model), *others]
        self._purse = purse
        self._slot = slot
        self._queueing = Queueing(on_queue)

    async def ask(self, request: ModelRequest) -> ModelReply:
        """One request. Raises StepFailed, with what the call has taken so far in `detail["usage"]`."""
        await _prepared(self._asked[0].model)
        try:
            async with asyncio.timeout(request.timeout + LAST_WORD) as deadline:
                with self._queueing.watching(deadline):
                    reply = await self._first_answer(request)
        except TimeoutError:
            raise self.with_usage(StepFailed("timeout", f"no result within {request.timeout:g} s")) from None
        except StepFailed as failure:
            raise self.with_usage(self._after_others(failure)) from None
        finally:
            self.usage.queued = self._queueing.seconds
        self.usage.add(reply)
        return reply

    async def _first_answer(self, request: ModelRequest) -> ModelReply:
        """The answer of the first model that gives one; what another one may answer is left to it.

        With others to come, a model gets at most half of the time that is left. One that did not answer is not asked
        again in this call.
        """
        until = self.worked() + request.timeout
        left = request.timeout
        while len(self._asked) > 1:
            try:
                return await self._complete(self._asked[0].model, self._put(request, left / 2))
            except StepFailed as failure:
                left = until - self.worked()
                if not falls_back(failure) or left <= 0:
                    raise
                self._leave(failure)
        return await self._complete(self._asked[0].model, self._put(request, left))

    def _after_others(self, failure: StepFailed) -> StepFailed:
        """A failure that also says which models had failed before; who reads it knows the first one best."""
        if self.usage.fell_back:
            before = ", ".join(f"{one['model']}: {one['kind']}" for one in self.usage.fell_back)
            failure.message = f"{failure.message} (and before it {before})"
            failure.args = (failure.message,)
        return failure

    def _leave(self, failure: StepFailed) -> None:
        """Go on to the next model; what the last one took counts."""
        name = self._asked.pop(0).name
        self.usage.fell_back.append({"model": name, "kind": failure.kind, "message": failure.message})
        if isinstance(failure.detail, dict) and "usage" in failure.detail:
            self.usage.add(ModelReply(**failure.detail["usage"]))

    def _put(self, request: ModelRequest, left: float) -> ModelRequest:
        """The request as it goes to the model whose turn it is."""
        if not self.usage.fell_back:
            return replace(request, timeout=left)
        choice = self._asked[0]
        key = f"{request.key}~{choice.name}" if request.key else ""
        return replace(request, model=choice.own_name, timeout=left, key=key)

    async def _complete(self, model: LanguageModel, request: ModelRequest) -> ModelReply:
        if self._purse is None:
            return await self._send(model, request)
        return await self._purse.pay(model, request, self._send)

    async def _send(self, model: LanguageModel, request: ModelRequest) -> ModelReply:
        async with self._slot():
            if isinstance(request.on_text, Telling):
                request.on_text.begin()
            return await model.complete(request)

    def worked(self) -> float:
        """A clock that stands still while a request waits for a slot."""
        return time.monotonic() - self._queueing.seconds

    async def text(self, request: ModelRequest) -> ModelReply:
        """An answer with words in it, or with calls of tools."""
        reply = await self.ask(request)
        if not reply.text.strip() and not reply.calls and reply.finish_reason != "stop":
            raise self.with_usage(_without_text(reply))
        return reply

    async def structured(self, request: ModelRequest) -> Json:
        """The value that the model gives under `request.schema`; an answer that does not fit is put right once."""
        begun = self.worked()
        return await self.fitting(await self.ask(request), request, begun)

    async def fitting(self, reply: ModelReply, request: ModelRequest, begun: float) -> Json:
        """The value in an answer; one that does not fit is put right once in the time left; `begun` is of `worked`."""
        try:
            return await _parsed(reply, request)
        except StepFailed as failure:
            if failure.kind != "output_invalid":
                raise self.with_usage(failure) from None
            left = request.timeout - (self.worked() - begun)
            if left <= 0:
                raise self.with_usage(failure) from None
            again = _repair(request, failure, reply.text, left)
        self.usage.repairs += 1
        reply = await self.ask(again)
        try:
            return await _parsed(reply, request)
        except StepFailed as failure:
            raise self.with_usage(failure) from None

    def with_usage(self, failure: StepFailed) -> StepFailed:
        """The failure with what the call has taken, the failing request included."""
        detail = failure.detail if isinstance(failure.detail, dict) else {}
        if "usage" in detail:  # what the failing request itself took
            self.usage.add(ModelReply(**detail["usage"]))
        if self.usage.model or self.usage.fell_back:
            failure.detail = detail | {"usage": self.usage.meta()}
        return failure


async def _prepared(model: LanguageModel) -> None:
    """Have a model load its library: seconds of the first call that are none of a request's, and reserve nothing."""
    prepare = getattr(bounds.innermost(model), "prepare", None)
    if prepare is not None:
        await prepare()


async def _parsed(reply: ModelReply, request: ModelRequest) -> Json:
    assert request.schema is not None
    if len(reply.text) > LONG:
        return await asyncio.to_thread(parse_answer, reply.text, request.schema, finish_reason=reply.finish_reason)
    return parse_answer(reply.text, request.schema, finish_reason=reply.finish_reason)


def _repair(request: ModelRequest, failure: StepFailed, answer: str, left: float) -> ModelRequest:
    """The same question with the answer and what is wrong with it, for the seconds that are left."""
    assert request.schema is not None
    wrong = "\n".join(f"- {problem}" for problem in failure.detail["problems"])
    prompt = (
        f"{request.prompt}\n\nYou answered this before:\n{answer[:SHOWN]}\n\nThat answer cannot be used:\n{wrong}\n\n"
        f"Answer again. {schema_in_words(request.schema)}"
    )
    key = f"{request.key}.1" if request.key else ""
    tools = request.tools if request.turns else ()  # providers refuse a history of calls without the tools
    return replace(request, prompt=prompt, timeout=left, key=key, tools=tools, on_text=None)


def _without_text(reply: ModelReply) -> StepFailed:
    detail = {"answer": reply.text, "problems": ["the answer is empty"], "finish_reason": reply.finish_reason}
    if reply.finish_reason == "length":
        failure = StepFailed("truncated_output", "the answer was cut before its first word; raise max_tokens")
    else:
        failure = StepFailed("output_invalid", f"the model gave no text ({reply.finish_reason})")
    failure.detail = detail
    return failure
