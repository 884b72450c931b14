"""Stepwell: a durable engine for AI workflows written in YAML or JSON.

Names are loaded when they are first used, so that `import stepwell` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stepwell.tool import IdempotencyKey, tool  # at once: the module of the same name must not take its place

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.engine.engine import Engine, RunHandle
    from stepwell.engine.engine import open_engine as open  # noqa: A004 -- `stepwell.open` reads as it should
    from stepwell.engine.events import Event
    from stepwell.engine.incidents import Action as IncidentAction
    from stepwell.engine.incidents import Filter as IncidentFilter
    from stepwell.engine.reruns import Wish
    from stepwell.engine.settings import Settings
    from stepwell.engine.short import load, run
    from stepwell.errors import (
        AlreadyDecided,
        Conflict,
        DefinitionError,
        Forbidden,
        Gone,
        InputError,
        NonDeterminism,
        NotFound,
        Problem,
        StepFailed,
        StepwellError,
        Unavailable,
    )
    from stepwell.journal.view import RunTree
    from stepwell.ports import Run, Wait
    from stepwell.tool_log import logger

_HOMES = {
    "AlreadyDecided": "errors",
    "Conflict": "errors",
    "DefinitionError": "errors",
    "Engine": "engine.engine",
    "Event": "engine.events",
    "Forbidden": "errors",
    "Gone": "errors",
    "IncidentAction": "engine.incidents",
    "IncidentFilter": "engine.incidents",
    "InputError": "errors",
    "LoadedWorkflow": "definition.load",
    "NonDeterminism": "errors",
    "NotFound": "errors",
    "Problem": "errors",
    "Run": "ports",
    "RunHandle": "engine.engine",
    "RunTree": "journal.view",
    "Settings": "engine.settings",
    "StepFailed": "errors",
    "StepwellError": "errors",
    "Unavailable": "errors",
    "Wait": "ports",
    "Wish": "engine.reruns",
    "load": "engine.short",
    "logger": "tool_log",
    "open": "engine.engine",
    "run": "engine.short",
}
_OTHER_NAMES = {"open": "open_engine", "IncidentAction": "Action", "IncidentFilter": "Filter"}

__all__ = [
    "AlreadyDecided",
    "Conflict",
    "DefinitionError",
    "Engine",
    "Event",
    "Forbidden",
    "Gone",
    "IdempotencyKey",
    "IncidentAction",
    "IncidentFilter",
    "InputError",
    "LoadedWorkflow",
    "NonDeterminism",
    "NotFound",
    "Problem",
    "Run",
    "RunHandle",
    "RunTree",
    "Settings",
    "StepFailed",
    "StepwellError",
    "Unavailable",
    "Wait",
    "Wish",
    "load",
    "logger",
    "open",
    "run",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stepwell' has no attribute {name!r}")
    found = getattr(import_module(f"stepwell.{_HOMES[name]}"), _OTHER_NAMES.get(name, name))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
