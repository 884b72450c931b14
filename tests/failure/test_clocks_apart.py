"""Processes whose wall clocks differ share a database: a lease knows nothing of that."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stepwell.journal.entry import Body, Draft
from stepwell.ports import Batch, NewRun, Verdict
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.stores.sqlite.database import Database

HOUR = 3600.0


def opened(file: Path, ahead: float) -> SqliteRunStore:
    return SqliteRunStore(Database.open(file), clock=lambda: time.time() + ahead)


def waiting(path: str) -> Batch:
    return Batch((Draft(path, "succeeded", Body()).entry(generation=0, at=time.time()),))


@pytest.mark.parametrize("apart", [600.0, 12 * HOUR, -600.0, -12 * HOUR])
async def test_two_workers_whose_clocks_differ_never_both_own_a_run(tmp_path: Path, apart: float) -> None:
    first, second = opened(tmp_path / "runs.db", 0.0), opened(tmp_path / "runs.db", apart)
    try:
        run, _ = await first.create(
            NewRun("r1", "default", "w", "1", "d", None, "", created=time.time()),
        )
        [lease] = await first.claim("one", 600.0, run_id=run.id)
        assert await second.claim("two", 600.0, run_id=run.id) == []
        assert await second.claim("two", 600.0, limit=10) == []
        await first.append(lease, waiting("/a"))
        assert await first.renew([lease], 600.0) == []
        assert await second.claim("two", 600.0, run_id=run.id) == []
        assert await first.release(lease, waiting("/b"), Verdict("waiting", wake_at=time.time() + HOUR))
        due = await second.claim("two", 600.0, limit=10)
        assert len(due) == (apart > HOUR)  # what is due is another question: that goes by the clock
        if due:
            assert await first.claim("one", 600.0, run_id=run.id) == []
    finally:
        await first.close()
        await second.close()
