"""How the two families of providers write what they say: whole answers, failures, and answers as streams of events.

The law of the file: it knows the providers' formats from their documentation, and nothing of the adapters it is for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from stepwell.ports import ToolRequest
from stepwell.testing.provider_reply import Reply

Json: TypeAlias = Any

PIECE = 8
"""Characters in one piece of a stream."""


class Shape(Protocol):
    """One family's format."""

    def answer(self, reply: Reply, model: str) -> Json:
        """The body of a whole answer."""

    def failure(self, reply: Reply) -> Json:
        """The body of an error."""

    def events(self, reply: Reply, asked: Json) -> Iterator[str]:
        """The server-sent events of a streamed answer, each with the blank line that ends it."""


def pieces(text: str) -> list[str]:
    """A text in the pieces in which it is streamed."""
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def _text(arguments: Json) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


class OpenAIShape:
    """Chat completions."""

    def answer(self, reply: Reply, model: str) -> Json:
        message: dict[str, Json] = {"role": "assistant", "content": reply.content}
        if reply.refusal is not None:
            message |= {"content": None, "refusal": reply.refusal}
        if reply.calls:
            message |= {"content": reply.content or None, "tool_calls": [_function(call) for call in reply.calls]}
        choice = {"index": 0, "message": message, "finish_reason": _openai_finish(reply)}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": model,
            "choices": [choice],
            "usage": _openai_usage(reply),
        }

    def failure(self, reply: Reply) -> Json:
        kind = "server_error" if reply.status >= 500 else "invalid_request_error"
        return {"error": {"message": reply.content or "refused", "type": kind, "code": None}}

    def events(self, reply: Reply, asked: Json) -> Iterator[str]:
        model = str(asked.get("model", ""))
        for delta in self._deltas(reply):
            yield self._chunk(model, [{"index": 0, "delta": delta, "finish_reason": None}])
        yield self._chunk(model, [{"index": 0, "delta": {}, "finish_reason": _openai_finish(reply)}])
        if (asked.get("stream_options") or {}).get("include_usage"):
            yield self._chunk(model, [], _openai_usage(reply))
        yield "data: [DONE]\n\n"

    def _deltas(self, reply: Reply) -> Iterator[Json]:
        yield {"role": "assistant", "content": ""}
        if reply.refusal is not None:
            yield from ({"refusal": piece} for piece in pieces(reply.refusal))
            return
        yield from ({"content": piece} for piece in pieces(reply.content or ""))
        for index, call in enumerate(reply.calls):
            begun = _function(call) | {"index": index}
            yield {"tool_calls": [begun | {"function": {"name": call.name, "arguments": ""}}]}
            for piece in pieces(_text(call.arguments)):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}

    def _chunk(self, model: str, choices: Sequence[Json], usage: Json = None) -> str:
        chunk = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": model,
            "choices": choices,
            "usage": usage,
        }
        return f"data: {json.dumps(chunk)}\n\n"


def _function(call: ToolRequest) -> dict[str, Json]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": _text(call.arguments)},
    }


def _openai_finish(reply: Reply) -> str:
    return "tool_calls" if reply.calls and reply.finish_reason == "stop" else reply.finish_reason


def _openai_usage(reply: Reply) -> Json:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
    }


_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
_FINISHES = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}


class AnthropicShape:
    """Messages."""

    def answer(self, reply: Reply, model: str) -> Json:
        blocks: list[Json] = []
        if reply.content and reply.refusal is None:
            blocks.append({"type": "text", "text": reply.content})
        blocks += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in reply.calls
        ]
        return self._message(reply, model) | {
            "content": blocks,
            "usage": self._read(reply) | {"output_tokens": reply.output_tokens},
            **self._end(reply),
        }

    def failure(self, reply: Reply) -> Json:
        kind = _ERRORS.get(reply.status, "api_error" if reply.status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": reply.content or "refused"}}

    def events(self, reply: Reply, asked: Json) -> Iterator[str]:
        begun = self._message(reply, str(asked.get("model", ""))) | {
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._read(reply) | {"output_tokens": 1},
        }
        yield self._event("message_start", {"message": begun})
        blocks: list[tuple[Json, list[Json]]] = []
        if reply.content and reply.refusal is None:
            text = [{"type": "text_delta", "text": piece} for piece in pieces(reply.content)]
            blocks.append(({"type": "text", "text": ""}, text))
        for call in reply.calls:
            written = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(_text(call.arguments))]
            blocks.append(({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, written))
        for index, (block, deltas) in enumerate(blocks):
            yield self._event("content_block_start", {"index": index, "content_block": block})
            for delta in deltas:
                yield self._event("content_block_delta", {"index": index, "delta": delta})
            yield self._event("content_block_stop", {"index": index})
        ended = {"delta": self._end(reply), "usage": {"output_tokens": reply.output_tokens}}
        yield self._event("message_delta", ended)
        yield self._event("message_stop", {})

    def _message(self, reply: Reply, model: str) -> dict[str, Json]:
        del reply
        return {"id": "msg_1", "type": "message", "role": "assistant", "model": model}

    def _read(self, reply: Reply) -> dict[str, Json]:
        """Tokens of the input; those that were cached are counted apart."""
        fresh = reply.input_tokens - reply.cached_tokens
        return {"input_tokens": fresh, "cache_read_input_tokens": reply.cached_tokens, "cache_creation_input_tokens": 0}

    def _end(self, reply: Reply) -> dict[str, Json]:
        reason = _FINISHES.get(reply.finish_reason, reply.finish_reason)
        if reply.refusal is not None:
            details = {"type": "refusal", "explanation": reply.refusal, "category": None}
            return {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}
        if reply.calls and reply.finish_reason == "stop":
            reason = "tool_use"
        return {"stop_reason": reason, "stop_sequence": None}

    def _event(self, kind: str, data: dict[str, Json]) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"
