"""The test kit: run a workflow to its end in virtual time, against scripted answers, with crashes where you want them.

from stepwell.testing import ScriptedWorld, run_to_end

def test_a_large_refund_asks_a_person():
    result = run_to_end("workflows/refund.yaml", {"ticket": "..."}, {"sign-off": {"decision": "approved"}})
    assert result.status == "completed"
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell.testing.crashes import every_crash
    from stepwell.testing.result import Moment, Result
    from stepwell.testing.running import NotScripted, run_to_end
    from stepwell.testing.scripted_world import Call, ScriptedWorld
    from stepwell.testing.virtual_time import VirtualClock, run_in_virtual_time

__all__ = [
    "Call",
    "Moment",
    "NotScripted",
    "Result",
    "ScriptedWorld",
    "VirtualClock",
    "every_crash",
    "run_in_virtual_time",
    "run_to_end",
]

_PLACES = {
    "Call": "scripted_world",
    "Moment": "result",
    "NotScripted": "running",
    "Result": "result",
    "ScriptedWorld": "scripted_world",
    "VirtualClock": "virtual_time",
    "every_crash": "crashes",
    "run_in_virtual_time": "virtual_time",
    "run_to_end": "running",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'stepwell.testing' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"stepwell.testing.{_PLACES[name]}"), name)
    return found
