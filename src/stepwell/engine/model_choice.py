"""Which models a call asks: the one that a step, a recipe or the settings name, and those after it.

The law of the file: every name is known before the first request, or the call is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from stepwell.definition.suggest import did_you_mean
from stepwell.errors import Problem, StepFailed
from stepwell.ports import LanguageModel

Json: TypeAlias = Any

WORDS = ("provider", "name", "temperature", "max_tokens", "fallback")
"""What `model` of a step or recipe may say."""

FALLS_BACK = frozenset(
    {"rate_limit", "overloaded", "server_error", "connection_error", "timeout", "not_found", "auth_error"}
)
"""Kinds of failures that say nothing against the question: another model may answer it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A model that answers, and how. `name` is what the step or the settings call it."""

    name: str
    model: LanguageModel
    own_name: str = ""
    """The provider's name of the model, where it is not the one of the settings."""
    temperature: float | None = None
    max_tokens: int | None = None

    @property
    def judges(self) -> bool:
        """Whether it may be asked to classify."""
        return bool(getattr(self.model, "judges", True))

    def available(self) -> list[Problem]:
        """What is missing on this machine for it."""
        return list(getattr(self.model, "available", list)())


class Models:
    """The models of the settings by name, `default` one of them; `fallbacks` are those that are asked after each."""

    def __init__(
        self,
        models: Mapping[str, LanguageModel],
        default: str,
        fallbacks: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.by_name = models
        self.default = default
        self._fallbacks = fallbacks or {}

    def choose(self, model: Json) -> Choice:
        """The model that is asked first. Raises StepFailed("not_found") or ("validation_error")."""
        provider, name = _named(model)
        options = model if isinstance(model, Mapping) else {}
        found = self._found(provider, name)
        return Choice(found.name, found.model, found.own_name, options.get("temperature"), options.get("max_tokens"))

    def after(self, model: Json) -> list[Choice]:
        """Those that are asked in turn when it fails: the step's or recipe's own list, else that of the settings."""
        first = self.choose(model)
        named = model.get("fallback") if isinstance(model, Mapping) else None
        names = self._fallbacks.get(first.name, ()) if named is None else named
        return [self._configured(name) for name in names]

    def problems_with(self, model: Json) -> list[Problem]:
        """What cannot be chosen, with the fix."""
        if problems := _misspelt(model):
            return problems
        provider, name = _named(model)
        try:
            self._found(provider, name)
        except StepFailed:
            problems.append(self.unknown(name or provider or self.default))
        return problems + [self.unknown(other) for other in self._listed(model) if other not in self.by_name]

    def doubts_about(self, model: Json) -> list[Problem]:
        """A warning for a name that is taken for the provider's own and is nearly one of the settings."""
        provider, name = _named(model)
        if provider or not name or name in self.by_name or not (close := did_you_mean(name, sorted(self.by_name))):
            return []
        said = f"no model of stepwell.toml is called {name!r}, so that {self.default} is asked for it by this name"
        return [Problem("warning", "model_name", said, close)]

    def unknown(self, name: str) -> Problem:
        known = ", ".join(sorted(self.by_name)) or "none"
        message = f"there is no model {name!r}; configured: {known}"
        hint = did_you_mean(name, sorted(self.by_name)) or f"add [models.{name}]"
        return Problem("error", "model_unknown", message, hint)

    def _listed(self, model: Json) -> Sequence[str]:
        return tuple(model.get("fallback") or ()) if isinstance(model, Mapping) else ()

    def _configured(self, name: str) -> Choice:
        """A model of the settings. Raises StepFailed("not_found")."""
        if (found := self.by_name.get(name)) is None:
            raise StepFailed("not_found", self.unknown(name).message)
        return Choice(name, found)

    def _found(self, provider: str, name: str) -> Choice:
        """A name that the settings do not know is the provider's own, if a provider is configured."""
        wanted = name or provider or self.default
        if (found := self.by_name.get(wanted)) is not None:
            return Choice(wanted, found)
        whose = provider or self.default
        found = self.by_name.get(whose)
        if found is None or not (made := Choice(whose, found, name)).judges:
            raise StepFailed("not_found", self.unknown(wanted).message)
        return made


def _named(model: Json) -> tuple[str, str]:
    """Provider and name, "" where not given. Raises StepFailed("validation_error")."""
    if problems := _misspelt(model):
        raise StepFailed("validation_error", problems[0].message, detail={"hint": problems[0].hint})
    if isinstance(model, Mapping):
        return str(model.get("provider") or ""), str(model.get("name") or "")
    return "", str(model or "")


def _misspelt(model: Json) -> list[Problem]:
    """What `model` says that means nothing."""
    if not isinstance(model, Mapping):
        return []
    found = []
    for word, value in model.items():
        if word not in WORDS:
            hint = did_you_mean(word, WORDS) or f"known: {', '.join(WORDS)}"
            found.append(Problem("error", "model", f"`model` says {word!r}, which means nothing", hint))
        elif word == "fallback" and not _is_names(value):
            hint = "write fallback: [other, third]"
            found.append(Problem("error", "model", "`fallback` of `model` lists names of models", hint))
    return found


def _is_names(value: Json) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) and name for name in value)


def falls_back(failure: StepFailed) -> bool:
    """Whether another model may answer what this one did not."""
    return failure.kind in FALLS_BACK
