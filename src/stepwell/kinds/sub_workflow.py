"""Run another workflow and wait for it (understood and checked; not performed by this version)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from stepwell.definition.fields import Duration, Template, Value
from stepwell.definition.policy import RetryPolicy
from stepwell.definition.step import Location
from stepwell.interpreter.kind import Control


class SubWorkflow(Control):
    """Runs a workflow (`id`, or `id@version`) inside this run; the output is its output."""

    type: Literal["sub_workflow"]
    workflow: Template
    inputs: dict[str, Value] = {}
    timeout: Duration | None = None
    retry: RetryPolicy | None = None

    def unperformed(self) -> Iterable[tuple[Location, str]]:
        yield ("type",), "sub-workflows"
