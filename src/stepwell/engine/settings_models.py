"""Settings of models: the sections `[models.NAME]`, and the environment over them.

The law of the file: a key is known or an error; what a provider's key is stands in no file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

from stepwell.adapters.models.price import Price
from stepwell.engine.secret import NO_SECRET, Secret
from stepwell.engine.settings_secrets import named_secret, secret_from

if TYPE_CHECKING:
    from stepwell.engine.settings_text import Reading

Json: TypeAlias = Any
Provider: TypeAlias = Literal["openai", "anthropic", "embedded"]

EMBEDDED = "embedded"
PROVIDERS: tuple[Provider, ...] = ("openai", "anthropic", "embedded")
PRICES = ("usd_per_million_input", "usd_per_million_output", "usd_per_million_cached_input")
MODEL_KEYS = ("provider", "base_url", "api_key", "model", "max_concurrency", "fallback", *PRICES)
_LONGEST_FIRST = sorted(MODEL_KEYS, key=len, reverse=True)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model that workflows may name. `max_concurrency` counts calls in flight; 0 is no limit.

    `fallback` are names of models that are asked in turn when this one fails; prices are in US dollars per million
    tokens, None where they are not said.
    """

    name: str
    provider: Provider
    base_url: str = ""
    api_key: Secret = NO_SECRET
    model: str = ""
    max_concurrency: int = 10
    fallback: tuple[str, ...] = ()
    usd_per_million_input: float | None = None
    usd_per_million_output: float | None = None
    usd_per_million_cached_input: float | None = None

    @property
    def price(self) -> Price | None:
        """What the settings say that tokens cost."""
        if self.usd_per_million_input is None or self.usd_per_million_output is None:
            return None
        return Price(self.usd_per_million_input, self.usd_per_million_output, self.usd_per_million_cached_input)


def read_models(
    reading: Reading, sections: Mapping[str, Json], root: Path, environ: Mapping[str, str]
) -> dict[str, ModelSettings]:
    """The models that the sections describe, with what the environment says of them; what is wrong is noted."""
    sections = _with_twins(sections, environ)
    models: dict[str, ModelSettings] = {}
    for name, section in sections.items():
        if not isinstance(section, dict):
            reading.refuse(("models", name), f"models.{name} is a section", f"write [models.{name}]")
        elif (model := _model(reading, name, section, root, environ)) is not None:
            models[name] = model
    _check_fallbacks(reading, models, (*sections, EMBEDDED))
    return models


def names_of(sections: Mapping[str, Json], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The names that sections and environment give."""
    return tuple(_with_twins(sections, environ))


def known_variables(models: Sequence[str]) -> list[str]:
    """The environment twins of every key."""
    return [f"STEPWELL_MODELS_{_twin(name)}_{key.upper()}" for name in models for key in MODEL_KEYS]


def _with_twins(sections: Mapping[str, Json], environ: Mapping[str, str]) -> dict[str, Json]:
    """The sections with what STEPWELL_MODELS_<NAME>_<KEY> says of them; a name that is not there is added."""
    merged = {name: dict(section) if isinstance(section, dict) else section for name, section in sections.items()}
    spelt = {_twin(name): name for name in sections}
    for variable, value in environ.items():
        if not variable.startswith("STEPWELL_MODELS_") or not value:
            continue
        rest = variable.removeprefix("STEPWELL_MODELS_")
        key = next((key for key in _LONGEST_FIRST if rest.endswith(f"_{key.upper()}")), None)
        if key is None:
            continue
        upper = rest[: -len(key) - 1]
        section = merged.setdefault(spelt.get(upper, upper.lower()), {})
        if isinstance(section, dict):
            section[key] = _FromEnvironment(value, variable)
    return merged


class _FromEnvironment(str):
    """A value of the environment: a number may be written as text, and a key as it is."""

    __slots__ = ("variable",)
    variable: str

    def __new__(cls, value: str, variable: str) -> Self:
        made = super().__new__(cls, value)
        made.variable = variable
        return made


def _twin(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name).upper()


def _model(
    reading: Reading, name: str, section: dict[str, Json], root: Path, environ: Mapping[str, str]
) -> ModelSettings | None:
    before = len(reading.problems)
    found: dict[str, Json] = {}
    for key, value in section.items():
        where = ("models", name, key)
        said = value.variable if isinstance(value, _FromEnvironment) else ""
        if key not in MODEL_KEYS:
            reading.refuse_unknown(where, MODEL_KEYS)
        elif key == "max_concurrency":
            found[key] = _count(reading, where, value, said)
        elif key in PRICES:
            found[key] = _price(reading, where, value, said)
        elif key == "fallback":
            found[key] = _names(reading, where, value, said)
        elif not isinstance(value, str) or not value:
            reading.refuse(where, f"{key} is text", f'write {key} = "..."', said=said)
        elif key == "api_key":
            found[key] = _secret(reading, where, value, root, environ)
        else:
            found[key] = str(value)
    _check_model(reading, name, found)
    if len(reading.problems) > before:
        return None
    return ModelSettings(name=name, **found)


def _count(reading: Reading, where: tuple[str, ...], value: Json, said: str) -> Json:
    number = int(value) if said and value.isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        reading.refuse(where, "max_concurrency is a whole number of calls, 0 for no limit", "", said=said)
    return number


def _price(reading: Reading, where: tuple[str, ...], value: Json, said: str) -> Json:
    try:
        number = float(value) if said else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
        hint = f"write {where[-1]} = 2.5, or 0 for what costs nothing"
        reading.refuse(where, "a price is US dollars per million tokens", hint, said=said)
        return None
    return float(number)


def _names(reading: Reading, where: tuple[str, ...], value: Json, said: str) -> tuple[str, ...]:
    names = [part for part in value.split(os.pathsep) if part] if isinstance(value, str) and said else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        reading.refuse(where, "fallback lists names of models", 'write fallback = ["other", "third"]', said=said)
        return ()
    return tuple(names)


def _secret(reading: Reading, where: tuple[str, ...], value: str, root: Path, environ: Mapping[str, str]) -> Secret:
    if isinstance(value, _FromEnvironment):
        return secret_from(value, root, environ) or Secret.given(str(value), value.variable)
    return named_secret(reading, where, value, root, environ)


def _check_model(reading: Reading, name: str, found: dict[str, Json]) -> None:
    provider = found.get("provider", EMBEDDED if name == EMBEDDED else None)
    where = ("models", name, "provider")
    if provider is None:
        reading.refuse(("models", name), f"the model {name!r} has no provider", f"one of {', '.join(PROVIDERS)}")
    elif provider not in PROVIDERS:
        reading.refuse_unknown(where, PROVIDERS, name=str(provider), noun="provider")
    elif provider != EMBEDDED and not found.get("model"):
        reading.refuse(("models", name), f"the model {name!r} has no `model`", 'write model = "the provider\'s name"')
    found["provider"] = cast("Provider", provider)
    url = found.get("base_url", "")
    if url and not url.startswith(("http://", "https://")):
        reading.refuse(("models", name, "base_url"), f"base_url begins with http:// or https://, this is {url!r}", "")
    given = [key for key in PRICES[:2] if found.get(key) is not None]
    if len(given) == 1 or (not given and found.get(PRICES[2]) is not None):
        missing = next(key for key in PRICES[:2] if key not in given)
        message = f"the model {name!r} has half a price: {missing} is not said"
        reading.refuse(("models", name), message, f"write {missing} = 10, or 0 for what costs nothing")


def _check_fallbacks(reading: Reading, models: Mapping[str, ModelSettings], known: tuple[str, ...]) -> None:
    for name, model in models.items():
        where = ("models", name, "fallback")
        for other in _doubtful(name, model):
            reading.refuse(where, f"the model {name!r} falls back to {other!r} more than once", "name each model once")
        for other in model.fallback:
            if other not in known:
                reading.refuse_unknown(where, known, name=other, noun="model")


def _doubtful(name: str, model: ModelSettings) -> Iterator[str]:
    seen = {name}
    for other in model.fallback:
        if other in seen:
            yield other
        seen.add(other)
