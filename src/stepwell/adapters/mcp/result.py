"""What a tool's answer is to a workflow: plain JSON of a bounded size."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.adapters.mcp.failures import McpRefused

if TYPE_CHECKING:
    from mcp_types import CallToolResult

Json: TypeAlias = Any

LARGEST_DATA = 1_500_000
"""Characters of base64 that one answer may carry; more is left out and said to be."""
SAID = 2000
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def plain(answer: CallToolResult) -> Json:
    """The result of a call: its structured content; else its text, or what the text is if that is JSON.

    With anything besides text, `{text, attachments}`. Raises McpRefused for an answer that is an error.
    """
    texts, attachments = _parts(answer)
    text = _joined(texts)
    if answer.is_error:
        raise McpRefused(text[:SAID] or "the tool failed and said nothing", "tool_error")
    if answer.structured_content is not None:
        return answer.structured_content
    if attachments:
        return {"text": text, "attachments": attachments}
    return _read(text)


def text_of(answer: CallToolResult) -> str:
    """All texts of an answer, without the colours of terminals."""
    return _joined(_parts(answer)[0])


def _joined(texts: list[str]) -> str:
    return _ANSI.sub("", "\n".join(texts))


def _read(text: str) -> Json:
    """The object or list that a text is, else the text."""
    bare = text.strip()
    if (bare[:1], bare[-1:]) in {("{", "}"), ("[", "]")}:
        try:
            return json.loads(bare)
        except (ValueError, RecursionError):
            pass
    return text


def _parts(answer: CallToolResult) -> tuple[list[str], list[dict[str, Json]]]:
    texts: list[str] = []
    attachments: list[dict[str, Json]] = []
    left = LARGEST_DATA
    for block in answer.content:
        if block.type == "text":
            texts.append(block.text)
            continue
        described = block.model_dump(mode="json", by_alias=False, exclude_none=True, exclude={"annotations", "meta"})
        held = described.get("resource", described)
        if isinstance(held.get("text"), str):  # a text resource that came along
            texts.append(held["text"])
            continue
        data = held.pop("data", None) or held.pop("blob", None)
        if data is not None:
            left -= len(data)
            held |= {"data": data} if left >= 0 else {"left_out": f"{len(data)} characters of base64"}
        attachments.append(described)
    return texts, attachments
