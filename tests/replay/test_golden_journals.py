"""Journals that released versions wrote are replayed by this one: nothing is performed, the verdict is the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepwell.journal.entry import Entry
from stepwell.ports import FINAL, PARKED, Run, Wait
from tests.laws.worlds import ACCOUNT, Pinned, plan_of, replay_journal
from tests.replay.record import JOURNALS
from tests.replay.workflows import WORKFLOWS

Json = Any
KEPT = sorted(JOURNALS.glob("*/*.json"))


def read(file: Path) -> tuple[Json, Pinned]:
    found = json.loads(file.read_text(encoding="utf-8"))
    return found, plan_of(found["definition"])


async def replayed(found: Json, pinned: Pinned, state: Json) -> tuple[Json, list[str]]:
    """The verdict of a pass over a kept journal, and the paths that it would record."""
    kept = state["run"]
    run = Run("r1", ACCOUNT, "law", "", "d", found["input"], "running", created=kept["created"], active=kept["active"])
    entries = [
        Entry(one["path"], one["kind"], one["body"].encode(), one["digest"], order=one["order"])
        for one in state["entries"]
    ]
    waits = [Wait(**one, request=None, run_id="r1", account=ACCOUNT, workflow="law") for one in state["waits"]]
    verdict, wanted = await replay_journal(run, entries, pinned, lambda digest: found["blobs"][digest].encode(), waits)
    assert verdict is not None
    said = {"status": verdict.status, "output": verdict.output, "error": verdict.error}
    return said, [entry.path for entry in wanted]


@pytest.mark.parametrize("file", KEPT, ids=lambda file: f"{file.parent.name}-{file.stem}")
@pytest.mark.parametrize("state", ["parked", "finished"])
async def test_a_kept_journal_is_replayed_without_a_deed_to_the_same_verdict(file: Path, state: str) -> None:
    found, pinned = read(file)
    kept = found[state]["run"]
    assert kept["status"] in (PARKED if state == "parked" else FINAL)
    said, wanted = await replayed(found, pinned, found[state])
    assert said == {name: kept[name] for name in said}
    assert wanted == []


def test_every_construct_has_a_kept_journal() -> None:
    assert {file.stem for file in KEPT} == set(WORKFLOWS)


async def test_a_journal_of_another_definition_is_noticed() -> None:
    found, _ = read(next(file for file in KEPT if file.stem == "sequence"))
    found["definition"]["steps"][0]["arguments"] = {"other": 1}
    said, _ = await replayed(found, plan_of(found["definition"]), found["finished"])
    assert (said["status"], said["error"]["path"]) == ("stuck", "/a")
