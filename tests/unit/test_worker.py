"""A worker and the runs that it carries on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell.ports import Run
from stepwell.stores.memory import MemoryRunStore
from stepwell.testing.bench import definitions
from stepwell.testing.bench.workloads import workflow
from stepwell.testing.bench.world import Setup, bench_engine


async def test_a_run_that_has_just_parked_is_taken_up_again_to_be_cancelled(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[asyncio.Task[Run]] = []
    release = MemoryRunStore.release

    async def and_then_cancel(self: MemoryRunStore, *given: Any) -> bool:
        parked = await release(self, *given)
        if not cancelled:  # its first step comes before the worker hears that the pass is over
            cancelled.append(asyncio.create_task(engine.cancel(given[0].run_id, "stop")))
        return parked

    monkeypatch.setattr(MemoryRunStore, "release", and_then_cancel)
    async with bench_engine(Setup(tmp_path, "memory")) as engine:
        handle = await engine.start(workflow(definitions.approval()), {"number": 1})
        await handle.wait()
        assert (await cancelled[0]).status == "cancelled"
        assert (await engine.run(handle.run_id)).status == "cancelled"
