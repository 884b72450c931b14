"""The library's chat model, made to read what servers send that are only nearly OpenAI's.

The law of the file: it changes how answers are read and no request; an error in an answer is never an answer. It
imports the library, so it is imported when a model is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.usage import RequestUsage

from stepwell.adapters.models.openai_usage import believable

_STATUS_OF_WORDS = (
    (("rate_limit", "rate limit", "too many requests", "quota"), 429),
    (("overloaded", "capacity"), 529),
    (("auth", "api_key", "permission"), 401),
    (("not_found",), 404),
    (("invalid_request", "context_length", "bad_request"), 400),
)


class LenientChatModel(OpenAIChatModel):
    """Knows an error in the body of a 200, tool calls without an id, usage that is none or is told more than once."""

    def _validate_completion(self, response: ChatCompletion) -> Any:
        # Gateways say 200 before they know how the provider behind them does.
        extra = response.model_extra or {}
        choices = response.choices or []
        error = extra.get("error") or next((found for one in choices if (found := _error_of(one))), None)
        if error:
            raise ModelHTTPError(_status(error), self.model_name, {"error": error})
        for choice in choices:
            for call in getattr(getattr(choice, "message", None), "tool_calls", None) or []:
                if getattr(call, "id", None) is None:
                    call.id = ""  # the library makes one
        response.usage = believable(response.usage)
        return super()._validate_completion(response)

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _Streamed


class _Streamed(OpenAIStreamedResponse):
    """Usage in a stream is all that was taken so far: the last of it counts, and nothing is added up."""

    def _map_usage(self, response: ChatCompletionChunk) -> RequestUsage:
        response.usage = believable(response.usage)
        return super()._map_usage(response)

    def _add_usage(self, usage: RequestUsage, *, reported: bool, cumulative: bool = False) -> None:
        del cumulative
        if reported:
            super()._add_usage(usage, reported=True, cumulative=True)


def _error_of(choice: object) -> Any:
    """What stands as `error` in a choice."""
    return (getattr(choice, "model_extra", None) or {}).get("error")


def _status(error: object) -> int:
    """The HTTP status that an error in a body stands for; 500 where it does not say."""
    found = error if isinstance(error, Mapping) else {}
    for said in (found.get("code"), found.get("status")):
        number = int(said) if isinstance(said, int) or (isinstance(said, str) and said.isdecimal()) else 0
        if 400 <= number <= 599:
            return number
    words = f"{found.get('code')} {found.get('type')} {found.get('message', error)}".lower()
    return next((status for names, status in _STATUS_OF_WORDS if any(name in words for name in names)), 500)
