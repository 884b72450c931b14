"""The engine: makes workflows real. Its names are loaded when they are first used: reading settings needs no engine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell.engine.engine import ACCOUNT, OPERATOR, Engine, RunHandle, open_engine

__all__ = ["ACCOUNT", "OPERATOR", "Engine", "RunHandle", "open_engine"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'stepwell.engine' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module("stepwell.engine.engine"), name)
    return found
