"""Reading an answer that is streamed: its text is told as it comes, and the whole is the same as without a stream.

The law of the file: a stream that ends before the provider said why it ends is a failure, never a short answer; what
had come is kept in the failure. Leaving early, by a failure or a cancellation, closes the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.adapters.models.answer import KEPT
from stepwell.adapters.models.conversation import OUTPUT, tokens_told
from stepwell.errors import StepFailed

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse, ModelResponseStreamEvent
    from pydantic_ai.models import StreamedResponse

    from stepwell.adapters.models.price import Price

Json: TypeAlias = Any

LONGEST = 16_000_000
"""Characters of an answer that are read; what a step may give is far below it."""
MISSHAPEN = (LookupError, TypeError, AttributeError, ValueError)
"""What the library trips over when an answer has not the form of the API (no choices, no message, no JSON)."""


async def streamed(
    opened: AbstractAsyncContextManager[StreamedResponse],
    on_text: Callable[[str], None],
    failed: Callable[[Exception], StepFailed],
    price: Price | None,
) -> ModelResponse:
    """The whole answer. Raises StepFailed with `detail["partial"]` once something had come; else what was raised."""
    telling = _Telling(on_text)
    answer: ModelResponse | None = None
    try:
        async with opened as stream:
            try:
                async for event in stream:
                    telling.tell(event)
            finally:
                answer = stream.get()
    except Exception as error:
        if not telling.begun and not isinstance(error, MISSHAPEN):
            raise
        raise _with_partial(failed(error), telling.text, answer, price) from None
    if not has_ended(answer):
        raise _with_partial(broken_off(), telling.text, answer, price)
    return answer


def broken_off() -> StepFailed:
    """The failure of an answer that came in part."""
    return StepFailed("connection_error", "the stream of the answer broke off before its end")


class _Telling:
    """Tells the text of an answer, and the arguments of the output tool, which are the answer's text too."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._output: set[int] = set()
        self._pieces: list[str] = []
        self._length = 0
        self.begun = False
        """Whether anything of an answer has come, such as words, thoughts or a call."""

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def tell(self, event: ModelResponseStreamEvent) -> None:
        self.begun = True
        if event.event_kind == "part_start":
            part = event.part
            if part.part_kind == "text":
                self._say(part.content)
            elif part.part_kind == "tool-call" and part.tool_name == OUTPUT:
                self._output.add(event.index)
                self._say(part.args)
        elif event.event_kind == "part_delta":
            delta = event.delta
            if delta.part_delta_kind == "text":
                self._say(delta.content_delta)
            elif delta.part_delta_kind == "tool_call" and event.index in self._output:
                self._say(delta.args_delta)

    def _say(self, piece: Json) -> None:
        if isinstance(piece, str) and piece:
            self._length += len(piece)
            if self._length > LONGEST:
                raise too_large(LONGEST, "characters")
            self._pieces.append(piece)
            self._on_text(piece)


def has_ended(answer: ModelResponse) -> bool:
    """Whether the provider said why the answer ended; the library makes a reason up where none came."""
    return bool((answer.provider_details or {}).get("finish_reason")) or answer.finish_reason == "content_filter"


def _with_partial(failure: StepFailed, text: str, answer: ModelResponse | None, price: Price | None) -> StepFailed:
    detail: dict[str, Json] = dict(failure.detail or {}) | {"partial": text[:KEPT]}
    going_in = tokens_told(answer.usage.input_tokens) if answer is not None else 0
    coming_out = tokens_told(answer.usage.output_tokens) if answer is not None else 0
    if answer is not None and (going_in or coming_out):
        detail["usage"] = {
            "text": "",
            "model": answer.model_name or "",
            "input_tokens": going_in,
            "output_tokens": coming_out,
            "cost_usd": price.of(going_in, coming_out) if price else None,
        }
    failure.detail = detail
    return failure


def too_large(limit: int, unit: str) -> StepFailed:
    """The failure of an answer beyond a bound."""
    detail: dict[str, Json] = {"limit": limit}
    return StepFailed("output_too_large", f"the answer has more than {limit:,} {unit}", retryable=False, detail=detail)


def refused_for_size(error: BaseException) -> StepFailed | None:
    """The failure for size that libraries have wrapped into their own errors."""
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None or (isinstance(seen, StepFailed) and seen.kind == "output_too_large"):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None
