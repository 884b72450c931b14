"""How much a request to a model can take at most, before it is made.

The law of the file: a bound is never too low. A token is at least one byte of text; what is not text (the marks around
messages, a provider's own words about tools and schemas) is covered by fixed sums.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.adapters.models.price import price_for
from stepwell.ports import NANO

if TYPE_CHECKING:
    from stepwell.ports import LanguageModel, ModelRequest

Json: TypeAlias = Any

MAX_TOKENS = 4096
"""Of an answer under a budget, where neither step, recipe nor settings say it."""
_MESSAGE = 64
"""Tokens around a message."""
_INSTRUCTED = 1024
"""Tokens of a provider's own words about tools or a schema (Anthropic's are about 350)."""
_MILLION = Decimal(1_000_000)


def input_tokens(request: ModelRequest) -> int:
    """The most tokens that a request can have."""
    total = 2 * _MESSAGE + _bytes(request.prompt) + _bytes(request.system)
    if request.schema is not None:  # it may be sent twice: natively, bent to the provider's rules, and in words
        total += _INSTRUCTED + 2 * _json_bytes(request.schema)
    if request.tools:
        total += _INSTRUCTED
    for tool in request.tools:
        total += _MESSAGE + _bytes(tool.name) + _bytes(tool.description) + 2 * _json_bytes(tool.parameters)
    for turn in request.turns:
        total += _MESSAGE + _bytes(turn.text)
        total += sum(_MESSAGE + _bytes(call.id + call.name) + _json_bytes(call.arguments) for call in turn.calls)
        total += sum(_MESSAGE + _bytes(one.id + one.name) + _json_bytes(one.value) for one in turn.answers)
    return total


def nano_usd(model: LanguageModel, name: str, going_in: int, coming_out: int) -> int | None:
    """What so many tokens cost at most, in billionths of a US dollar; None where nobody knows the model's price.

    `name` is the provider's own, "" for the one that the settings name. May import the library's price list.
    """
    model = innermost(model)
    price = price_for(getattr(model, "price", None), str(getattr(model, "model", "")), name)
    if price is not None:
        dollars = (going_in * Decimal(str(price.input)) + coming_out * Decimal(str(price.output))) / _MILLION
        return math.ceil(dollars * NANO)
    return _listed(name or str(getattr(model, "model", "")), str(getattr(model, "base_url", "")), going_in, coming_out)


def has_price(model: LanguageModel) -> bool:
    """Whether the model's price is at hand, without a look into a list."""
    return getattr(innermost(model), "price", None) is not None


def name_of(model: LanguageModel) -> str:
    """The provider's name of a model, else that of the settings."""
    model = innermost(model)
    return str(getattr(model, "model", "") or getattr(model, "name", ""))


def nano_of(dollars: float) -> int:
    """An amount that was told in dollars."""
    return round(Decimal(repr(dollars)) * NANO)


def answer_tokens(model: LanguageModel) -> int:
    """How long an answer may be that nobody bounded."""
    return int(getattr(innermost(model), "max_tokens", 0) or MAX_TOKENS)


def innermost(model: LanguageModel) -> LanguageModel:
    """The model inside of what limits it."""
    while (inner := getattr(model, "inner", None)) is not None:
        model = inner
    return model


def _listed(model: str, base_url: str, going_in: int, coming_out: int) -> int | None:
    """By the price list that comes with the library, as the cost of an answer is."""
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    usage = Usage(input_tokens=going_in, output_tokens=coming_out)
    try:
        listed = calc_price(usage, model, provider_api_url=base_url)
    except LookupError:  # another provider's model behind the same kind of API: by its name, as its answers are
        try:
            listed = calc_price(usage, model, provider_id="openai")
        except LookupError:
            return None
    return math.ceil(Decimal(listed.total_price) * NANO)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _json_bytes(value: Json) -> int:
    return _bytes(json.dumps(value, ensure_ascii=True))
