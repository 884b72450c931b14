"""Step kinds: one file each; a new file, or an entry point of the group `stepwell.kinds`, is a new kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import get_args

from stepwell.interpreter.kind import RunnableStep


class StepKinds:
    """The step kinds that a definition may use: an explicit value, passed to whoever parses."""

    def __init__(self, kinds: Iterable[type[RunnableStep]]) -> None:
        self._kinds = {word_of(kind): kind for kind in kinds}

    def get(self, type_: str) -> type[RunnableStep] | None:
        return self._kinds.get(type_)

    def names(self) -> Sequence[str]:
        return sorted(self._kinds)

    def __iter__(self) -> Iterator[type[RunnableStep]]:
        return iter(self._kinds[name] for name in self.names())


def word_of(kind: type[RunnableStep]) -> str:
    """The word that names a kind in a definition."""
    return str(get_args(kind.model_fields["type"].annotation)[0])


@cache
def discover() -> StepKinds:
    """Stepwell's own kinds and those of installed plug-ins."""
    found: list[type[RunnableStep]] = []
    for module in iter_modules(__path__):
        found += _kinds_in(import_module(f"{__name__}.{module.name}"))
    for point in entry_points(group="stepwell.kinds"):
        found.append(point.load())
    return StepKinds(found)


def _kinds_in(module: object) -> list[type[RunnableStep]]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, RunnableStep)
        and value.__module__ == getattr(module, "__name__", "")
    ]
