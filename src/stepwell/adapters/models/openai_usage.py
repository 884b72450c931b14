"""What servers behind OpenAI's interface say that an answer took, also where they say it badly.

The law of the file: an answer is never lost because of what is said of its tokens; numbers that cannot be are no
numbers.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from openai.types import CompletionUsage
from openai.types.completion_usage import PromptTokensDetails
from pydantic import ValidationError

Json: TypeAlias = Any

MOST = 1_000_000_000
"""Tokens of one request above which nobody is believed."""


def believable(said: Json) -> CompletionUsage | None:
    """The tokens that are told of; None where they cannot be those of an answer."""
    facts = said.model_dump(warnings=False) if isinstance(said, CompletionUsage) else said
    if not isinstance(facts, dict):
        return None
    going_in, coming_out = _count(facts.get("prompt_tokens")), _count(facts.get("completion_tokens"))
    if going_in is None or coming_out is None:
        return None
    details = facts.get("prompt_tokens_details")
    told = details.get("cached_tokens") if isinstance(details, dict) else None
    cached = _count(told)
    sound = told is None or (cached is not None and cached <= going_in)
    try:
        whole = CompletionUsage.model_validate(facts | {"total_tokens": going_in + coming_out})
    except ValidationError:
        sound = False
    if sound:
        return whole
    kept = PromptTokensDetails(cached_tokens=min(cached, going_in)) if cached is not None else None
    return CompletionUsage(
        prompt_tokens=going_in,
        completion_tokens=coming_out,
        total_tokens=going_in + coming_out,
        prompt_tokens_details=kept,
    )


def _count(value: Json) -> int | None:
    """A number of tokens, however it is written."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    return value if type(value) is int and 0 <= value <= MOST else None
