"""Flights: effects while they are being performed.

The law of the file: however a performer ends, its attempt says how; a call that may not be repeated is known to the
journal before it is made, and is awaited even if whoever asked for it is not there any more. Values of secrets come in
here, into what is performed, and what comes of it leaves without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.engine.vault import NO_VAULT, Vault
from stepwell.errors import StepFailed, Unavailable
from stepwell.interpreter.normalise import normalised_json
from stepwell.interpreter.runtime import Attempt
from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Draft

if TYPE_CHECKING:
    from stepwell.adapters.redaction import Redactor
    from stepwell.engine.ledger import Ledger
    from stepwell.engine.performer import CallContext, Performer
    from stepwell.interpreter.effect import Effect

Json: TypeAlias = Any

LAST_WORD = 0.25
"""Seconds by which a performer, which keeps the timeout itself, may say more of it than that it passed."""


class Flights:
    """The effects that one pass has in flight."""

    def __init__(
        self,
        performers: Mapping[type[Effect], Performer],
        ledger: Ledger,
        clock: Callable[[], float],
        vault: Vault = NO_VAULT,
    ) -> None:
        self.aloft: dict[str, Attempt] = {}
        self._performers = performers
        self._ledger = ledger
        self._clock = clock
        self._vault = vault
        self._stragglers: dict[str, tuple[asyncio.Task[None], Attempt, str]] = {}

    async def perform(self, effect: Effect, context: CallContext, attempt: Attempt, text: bytes, digest: str) -> None:
        """Perform an effect once and put how it ended into `attempt`."""
        path = context.path
        if not effect.again() and not await self._intend(path, attempt, text, digest):
            return
        self.aloft[path] = attempt
        self._ledger.freshen(path)
        flight = self._fly(self._performers[type(effect)], effect, context, attempt)
        try:
            if effect.again():
                await flight
            else:
                await self._once(path, asyncio.ensure_future(flight), attempt, digest)
                attempt.failure = _doubtful(attempt.failure)
        finally:
            del self.aloft[path]

    async def _once(self, path: str, task: asyncio.Task[None], attempt: Attempt, digest: str) -> None:
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            self._stragglers[path] = (task, attempt, digest)
            raise

    async def _intend(self, path: str, attempt: Attempt, text: bytes, digest: str) -> bool:
        """Record that a call which may not be repeated is about to be made; false if that was said before."""
        place = paths.start(paths.attempt(path, attempt.number))
        if place in self._ledger.outcomes:
            attempt.failure = StepFailed(
                "in_doubt",
                "the process ended during this call, which may not be repeated: nobody knows whether it took effect",
                retryable=False,
            )
            return False
        draft = Draft(place, "started", Body(started=attempt.started), digest=digest)
        draft.arguments(text)
        await self._ledger.record(draft)
        return True

    def outlives(self, path: str) -> bool:
        """Whether the call of a step goes on although nobody awaits it."""
        return path in self._stragglers

    async def land(self, grace: float | None) -> None:
        """Wait for calls that outlived whoever asked for them (`grace` seconds, None: their own timeouts); record all.

        Those still in flight then are recorded as in doubt.
        """
        if self._stragglers:
            await asyncio.wait([task for task, _, _ in self._stragglers.values()], timeout=grace)
        for path, (task, attempt, digest) in self._stragglers.items():
            body = Body(started=attempt.started, ended=attempt.ended, attempts=attempt.number, meta=attempt.meta)
            draft = Draft(path, "succeeded", body, digest=digest)
            if not task.done():
                task.cancel()
                body.status, body.ended, body.reason = "cancelled", self._clock(), {"type": "in_doubt"}
                draft.kind = "cancelled"
            elif (failure := _doubtful(attempt.failure)) is not None:
                body.error, draft.kind = failure.record(), "failed"
            else:
                draft.value(attempt.value, attempt.text)
            self._ledger.ride(draft)
        self._stragglers.clear()

    async def _fly(self, performer: Performer, effect: Effect, context: CallContext, attempt: Attempt) -> None:
        """Perform an effect within `context.timeout` seconds. Only the store's failure and a cancellation leave."""
        hide = self._vault.redactor
        try:
            revealed = self._vault.reveal(effect)
            if getattr(performer, "keeps_time", False):
                performed = await performer(revealed, context)
            else:
                async with asyncio.timeout(context.timeout + LAST_WORD):
                    performed = await performer(revealed, context)
            attempt.value, attempt.text = hide.result(*normalised_json(performed.value))
            attempt.meta, attempt.outgoing = hide.json(performed.meta), performed.outgoing
        except StepFailed as failure:
            attempt.failure = without_secrets(failure, hide)
            usage = failure.detail.get("usage") if isinstance(failure.detail, dict) else None
            attempt.meta = usage if isinstance(usage, dict) else None
        except TimeoutError:
            attempt.failure = StepFailed("timeout", f"no result within {context.timeout:g} s")
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 -- a fault of an adapter is this step's failure, not the engine's
            attempt.failure = without_secrets(StepFailed("tool_error", f"{type(error).__name__}: {error}"), hide)
        attempt.ended = max(attempt.started, self._clock())


def without_secrets(failure: StepFailed, hide: Redactor) -> StepFailed:
    """The failure with no secret in any of its parts."""
    if not hide:
        return failure
    told = hide.failure(failure.record())
    if told == failure.record():
        return failure
    clean = StepFailed.of(told)
    clean.final, clean.suspends = failure.final, failure.suspends
    return clean


def _doubtful(failure: StepFailed | None) -> StepFailed | None:
    """What became of a call that may not be repeated, if nobody can say whether it took effect."""
    if failure is None or failure.kind not in {"timeout", "connection_error"}:
        return failure
    if isinstance(failure.detail, dict) and failure.detail.get("sent") is False:
        return failure
    message = f"{failure.message}; the call may not be repeated, and nobody knows whether it took effect"
    return StepFailed("in_doubt", message, retryable=False, detail={"cause": failure.record()})
