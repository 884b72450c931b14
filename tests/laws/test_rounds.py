"""Only stale steps run again, and rounds only grow."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stepwell.journal import path as paths
from stepwell.journal.entry import Entry, decode, read_body
from tests.laws.definitions import INPUT, definitions
from tests.laws.test_laws import LAW, script_of
from tests.laws.worlds import ACCOUNT, Script, finish, fresh, plan_of, start

Json = Any


async def journal_of(definition: Json, seed: int) -> tuple[list[Entry], Script]:
    store, pinned = fresh(), plan_of(definition)
    await start(store, INPUT)
    script = script_of(definition)
    script.seed = seed
    await finish(store, pinned, script)
    return [entry for entry in await store.history(ACCOUNT, "r1") if entry.path], script


def places(path: str) -> list[str]:
    """Every place that a path goes through, with its rounds; a fallback or `verify` is numbered by its trouble."""
    segments = path.split("/")[1:]
    found = ["/" + "/".join(segments[: end + 1]) for end in range(len(segments))]
    return [place for place in found if not place.rpartition("/")[2].startswith("~")]


def only_stale_steps_run_again(entries: list[Entry], script: Script) -> None:
    """Every call was made once, and every later round was asked for by an entry before it."""
    assert [name for name, count in script.calls.items() if count > 1] == []
    asked: dict[str, int] = {}
    for entry in entries:
        for place in places(entry.path):
            assert paths.round_number(place) <= 1 + asked.get(paths.bare(place), 0), f"nothing asked for {place}"
        body = read_body(entry)
        if entry.kind == "rewound":
            for path in decode(body.value)["stale"]:
                asked[path] = asked.get(path, 0) + 1
        elif body.retry_at and "@" not in entry.path:
            asked[paths.bare(entry.path)] = asked.get(paths.bare(entry.path), 0) + 1


def rounds_only_grow(entries: list[Entry]) -> None:
    """Once a step is in a later round, nothing of an earlier one is recorded any more."""
    reached: dict[str, int] = {}
    for entry in entries:
        if entry.kind == "cancelled":
            continue
        for place in places(entry.path):
            bare, number = paths.bare(place), paths.round_number(place)
            assert number >= reached.get(bare, 1), f"{entry.path} comes after a later round"
            reached[bare] = number


@LAW
@given(definitions(failing=True), st.integers(0, 99))
def test_only_stale_steps_run_again_and_rounds_only_grow(definition: Json, seed: int) -> None:
    entries, script = asyncio.run(journal_of(definition, seed))
    only_stale_steps_run_again(entries, script)
    rounds_only_grow(entries)
