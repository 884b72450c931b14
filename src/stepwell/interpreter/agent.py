"""Agent steps: a model that uses tools, turn by turn, until it answers.

The law of the file: each turn of the model and each call of a tool is a fact of its own in the journal, so that a pass
goes on after the last of them and makes none twice; what a failed tool said is told to the model, which may do better.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.errors import NonDeterminism, StepFailed
from stepwell.interpreter.attempts import edits_of, effect_of, run_attempts
from stepwell.interpreter.effect import ModelCall, ToolCall, digest, encoded
from stepwell.interpreter.settle import settle_pool
from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Draft, encode

if TYPE_CHECKING:
    from stepwell.interpreter.effect import Effect
    from stepwell.interpreter.kind import Action
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome

Json: TypeAlias = Any

AT_ONCE = 8
"""Calls of one turn that are made at the same time."""
MOST_CALLS = 50
"""Calls that a model may ask for in one turn."""
SHOWN = 50_000
"""Characters of a tool's result that the model is shown; the journal keeps the whole."""
_STOPS = frozenset({"in_doubt", "budget_exceeded", "depth_exceeded"})
"""Failures of a tool that are not the model's to deal with."""
_SUMMED = ("input_tokens", "output_tokens", "cost_usd", "repairs", "cached_tokens", "tokens_without_price")


async def run_agent(step: Action, scope: Scope, *, max_turns: int) -> Outcome:
    """The outcome of a step whose model has answered, in at most so many turns.

    Raises StepFailed: what a turn's attempts came to, a call in doubt, max_turns_reached.
    """
    base = effect_of(step, scope)
    assert isinstance(base, ModelCall)
    offers = _begin(base, scope)
    conversation = _Conversation(base, offers, scope)
    allowed = max_turns * (1 + _granted(scope))
    while True:
        said = await conversation.turn()
        if "answer" in said:
            draft = scope.draft("completed", said["answer"], meta=conversation.taken())
            draft.digest = digest(base, encoded(base))
            draft.arguments(encoded(base))
            return await scope.runtime.record(draft)
        if conversation.length >= allowed:
            wanted = ", ".join(call["name"] for call in said["calls"])
            message = f"no answer after {allowed} turns (max_turns); the last one asks for {wanted}"
            raise StepFailed("max_turns_reached", message, detail={"turns": conversation.length})
        await conversation.answer(said)


def _begin(base: ModelCall, scope: Scope) -> list[dict[str, Json]]:
    """The tools as they were registered when the step began. Raises NonDeterminism where it began otherwise."""
    mark = digest(base, encoded(base))
    offers = [] if scope.runtime.recall(paths.start(scope.path)) else [scope.offer(name) for name in base.tools]
    begun = scope.begin(lambda: {"offers": offers, "asked": mark})
    if begun["asked"] != mark and not edits_of(scope):
        raise NonDeterminism(scope.path, begun["asked"], mark)
    found: list[dict[str, Json]] = begun["offers"]
    return found


def _granted(scope: Scope) -> int:
    """How often a person has let it go on after its last turn, for as many turns again."""
    granted = 0
    for number in count(1):
        told = scope.runtime.recall(paths.start(paths.trouble(scope.path, number)))
        if told is None:
            return granted
        settled = scope.runtime.recall(paths.wait(paths.trouble(scope.path, number)))
        retried = settled is not None and settled.status == "completed" and settled.value.get("action") == "retry"
        granted += retried and (told.error or {}).get("kind") == "max_turns_reached"
    raise AssertionError("troubles end")


class _Conversation:
    """The turns of one agent step so far."""

    def __init__(self, base: ModelCall, offers: list[dict[str, Json]], scope: Scope) -> None:
        self._base = base
        self._scope = scope
        self._offers = {offer["name"]: offer for offer in offers}
        self._turns: list[dict[str, Json]] = []
        self._meta: dict[str, Json] = {}
        self._calls = 0
        self.length = 0

    def taken(self) -> dict[str, Json]:
        """What all turns took together."""
        return self._meta | {"turns": self.length, "tool_calls": self._calls}

    async def turn(self) -> dict[str, Json]:
        """What the model says next: `{answer}`, or `{text, calls}`."""
        self.length += 1
        told = tuple({word: offer[word] for word in ("name", "description", "parameters")}
                     for offer in self._offers.values())  # fmt: skip
        asked = replace(self._base, offers=told, turns=tuple(self._turns))
        here = self._scope.part(paths.turn(self._scope.path, self.length))
        outcome = await _once(asked, self._scope, here, f"turn {self.length}")
        self._add(outcome.meta or {})
        said: dict[str, Json] = outcome.value
        if len(said.get("calls", ())) > MOST_CALLS:
            message = f"turn {self.length} asks for {len(said['calls'])} calls at once, more than {MOST_CALLS}"
            raise StepFailed("output_invalid", message, retryable=False)
        return said

    def _add(self, meta: dict[str, Json]) -> None:
        sums = {name: self._meta.get(name, 0) + meta[name] for name in _SUMMED if meta.get(name) is not None}
        self._meta = self._meta | meta | sums

    async def answer(self, said: dict[str, Json]) -> None:
        """Make the calls that the model asks for; what comes of them is what it is told next."""
        calls = said["calls"]
        places = [paths.turn_call(self._scope.path, self.length, index) for index in range(len(calls))]

        async def part(index: int) -> dict[str, Json]:
            return _told(calls[index], await self._call(calls[index], places[index]))

        answers = await settle_pool(
            self._scope, part, len(calls), AT_ONCE, begun=lambda index: self._scope.runtime.has_begun(places[index])
        )
        self._calls += len(calls)
        self._turns.append({"text": said["text"], "calls": calls, "answers": answers})

    async def _call(self, call: dict[str, Json], place: str) -> Outcome:
        """How one call ended; only what is not the model's to deal with is raised."""
        here = self._scope.part(place)
        offer = self._offers.get(call["name"])
        if offer is None or not isinstance(call["arguments"], dict):
            return self._scope.runtime.recall(place) or await _refuse(here, call, self._offers)
        effect = ToolCall(offer["name"], call["arguments"], offer["idempotent"])
        return await _once(effect, self._scope, here, f"turn {self.length}, tool {offer['name']}")


async def _refuse(here: Scope, call: dict[str, Json], offers: Iterable[str]) -> Outcome:
    """Record that a call could not be made at all."""
    if call["name"] in offers:
        failure = StepFailed("validation_error", "the arguments are not a JSON object")
    else:
        failure = StepFailed("not_found", f"there is no tool {call['name']!r}; there are {', '.join(offers)}")
    return await here.runtime.record(here.failure(failure))


async def _once(effect: Effect, scope: Scope, here: Scope, name: str) -> Outcome:
    """What is recorded at a place of the step at `scope`, else what comes of the effect.

    Raises StepFailed once the attempts of a turn are spent; a failed tool is an outcome like others.
    """
    known = here.runtime.recall(here.path)
    if known is not None:
        now = digest(effect, encoded(effect))
        if known.digest and known.digest != now and not edits_of(scope):
            raise NonDeterminism(here.path, known.digest, now)
        return known
    trouble = _next_trouble(scope)
    _raise_given_up(here, trouble)
    try:
        return await run_attempts(effect, here)
    except StepFailed as failure:
        if isinstance(effect, ToolCall) and failure.kind not in _STOPS and not failure.suspends:
            return await here.runtime.record(here.failure(failure))
        failure.path, failure.message = here.path, f"{name}: {failure.message}"
        if isinstance(effect, ToolCall):
            failure.detail = {"tool": effect.tool, "arguments": effect.call, "cause": failure.detail}
        await _give_up(here, failure, trouble)
        raise


def _next_trouble(scope: Scope) -> int:
    """The number of the trouble that the step comes to if it fails now."""
    number = 1
    while scope.runtime.recall(paths.start(paths.trouble(scope.path, number))) is not None:
        number += 1
    return number


def _raise_given_up(here: Scope, trouble: int) -> None:
    """Raise what an earlier pass gave up with, if it did not come to record what the step's rules say to that."""
    for number in count(1):
        known = here.runtime.recall(paths.attempt(here.path, number))
        if known is None:
            return
        reason = known.reason or {}
        if reason.get("type") == "given_up" and reason["trouble"] == trouble and known.error is not None:
            failure = StepFailed.of(known.error)
            failure.suspends = reason["suspends"]
            raise failure


async def _give_up(here: Scope, failure: StepFailed, trouble: int) -> None:
    """Record that this part is not tried again, before the step's own rules say what follows."""
    spent = here.spent
    assert spent is not None
    body = Body(error=failure.record(), started=spent.started, ended=spent.ended, attempts=spent.number)
    body.meta = spent.meta
    body.reason = {"type": "given_up", "trouble": trouble, "suspends": failure.suspends}
    await here.runtime.record(Draft(paths.attempt(here.path, spent.number), "failed", body))


def _told(call: dict[str, Json], outcome: Outcome) -> dict[str, Json]:
    """What the model is told of a call that it asked for."""
    failed = outcome.status != "completed"
    if failed:
        error = outcome.error or {}
        value: Json = f"{error.get('kind')}: {error.get('message')}"
    else:
        value = _shown(outcome.value)
    return {"id": call["id"], "name": call["name"], "value": value, "failed": failed}


def _shown(value: Json) -> Json:
    """A result as the model sees it: whole, or the beginning of a long one."""
    text = value if isinstance(value, str) else encode(value).decode()
    if len(text) <= SHOWN:
        return value
    return f"{text[:SHOWN]}\n[cut: the result has {len(text)} characters]"
