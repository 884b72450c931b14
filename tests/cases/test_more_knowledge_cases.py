"""Neighbours of the cases of kb_write: what other knowledge bases lose, keep twice or find although it is gone."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from tests.cases.test_kb_cases import ACCOUNT, FailsAfterStoring
from tests.engine_world import workflow

from stepwell.engine.engine import Engine
from stepwell.engine.events import Listeners
from stepwell.engine.knowledge_performer import KnowledgePerformer
from stepwell.engine.parts import Parts
from stepwell.engine.world import World
from stepwell.errors import StepFailed
from stepwell.interpreter.effect import KnowledgeRead, KnowledgeWrite
from stepwell.ports import DocumentWrite
from stepwell.stores.knowledge_memory import MemoryKnowledge
from stepwell.stores.knowledge_sqlite import SqliteKnowledge
from stepwell.stores.memory import MemoryRunStore
from stepwell.stores.sqlite.database import Database
from stepwell.testing.scripted import ScriptedTools

NOTE = {"id": "kb", "type": "kb_write", "document": "log", "content": "note {{loop_item}}"}


@asynccontextmanager
async def engine_on(knowledge, runs=None):
    from pathlib import Path
    from types import SimpleNamespace

    runs, tools = runs or MemoryRunStore(), ScriptedTools()
    performer = KnowledgePerformer(knowledge)
    world = World(runs, {KnowledgeWrite: performer, KnowledgeRead: performer}, tools, Listeners())
    engine = Engine(Parts(runs, world, tools, knowledge), SimpleNamespace(root=Path("/")), serves=False)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryKnowledge()
        return
    database = Database.open(tmp_path / "k.db")
    yield SqliteKnowledge(database)
    await database.close()


async def documents_with(store, word):
    return sorted({one.document for one in await store.search(ACCOUNT, word, limit=50) if word in one.text})


async def test_c051_the_engines_own_retry_after_a_write_that_was_stored_makes_one_version_an_iteration():
    store = FailsAfterStoring(4)
    retry = {"max_attempts": 5, "initial_delay": "5ms"}
    loop = {"id": "L", "type": "loop", "over": [1, 2, 3], "steps": [NOTE | {"retry": retry}]}
    async with engine_on(store) as engine:
        run = await (await engine.start(workflow([loop]), {})).wait()
        assert run.status == "completed", run.error
        steps = {step["path"]: step for step in (await engine.tree(run.id)).as_json()["steps"]}
    assert sum(steps[f"/L/{n}/kb"]["attempts"] for n in range(3)) == 3 + 4
    kept = await store.document(ACCOUNT, "log")
    assert (kept["newest"], kept["text"]) == (3, "note 1\n\nnote 2\n\nnote 3")
    assert store.failures == 0


async def test_c051_every_round_of_an_until_loop_and_every_turn_back_writes_once():
    store = MemoryKnowledge()
    rounds = {
        "id": "L",
        "type": "loop",
        "until": "loop.index == 2",
        "max_iterations": 5,
        "steps": [{"id": "kb", "type": "kb_write", "document": "log", "content": "same"}],
    }
    async with engine_on(store) as engine:
        run = await (await engine.start(workflow([rounds]), {})).wait()
        assert run.status == "completed", run.error
    assert (await store.document(ACCOUNT, "log"))["text"] == "same\n\nsame\n\nsame"


async def test_one_of_two_documents_with_the_same_text_goes_and_the_other_stays(store):
    for name in ("one", "two"):
        await store.write(ACCOUNT, DocumentWrite(name, "Refunds take fourteen days."))
    assert await documents_with(store, "fourteen") == ["one", "two"]
    await store.remove(ACCOUNT, "one")
    assert await documents_with(store, "fourteen") == ["two"]
    await store.write(ACCOUNT, DocumentWrite("two", "Nothing of it.", mode="replace"))
    assert await documents_with(store, "fourteen") == []


async def test_every_passage_of_a_long_document_is_found_and_not_its_last_alone(store):
    text = "\n\n".join(f"## Part {number}\n\nword{number}x " + "It goes on and on. " * 40 for number in range(40))
    made = await store.write(ACCOUNT, DocumentWrite("long", text))
    assert made.chunks >= 40
    for number in (0, 1, 17, 38, 39):
        assert await documents_with(store, f"word{number}x") == ["long"]


async def test_a_section_that_shrinks_or_grows_leaves_none_of_its_old_passages(store):
    def section(word, parts):
        return "\n\n".join(f"{word}{number} " + "and more of it. " * 50 for number in range(parts))

    async def put(word, parts):
        await store.write(ACCOUNT, DocumentWrite("d", section(word, parts), mode="upsert", section="s"))

    await store.write(ACCOUNT, DocumentWrite("d", "beside stays", mode="upsert", section="t"))
    for word, parts, gone in (("alpha", 9, ""), ("beta", 2, "alpha"), ("gamma", 12, "beta")):
        await put(word, parts)
        found = [await documents_with(store, f"{word}{number}") for number in range(parts)]
        assert found == [["d"]] * parts
        assert not gone or [await documents_with(store, f"{gone}{number}") for number in range(9)] == [[]] * 9
    assert await documents_with(store, "beside") == ["d"]


async def test_a_replacement_that_is_refused_leaves_what_was_there(store):
    await store.write(ACCOUNT, DocumentWrite("d", "the old rule"))
    with pytest.raises(StepFailed):
        await store.write(ACCOUNT, DocumentWrite("d", "the new rule", mode="replace", metadata={"x": "y" * 70_000}))
    assert (await documents_with(store, "old"), await documents_with(store, "new")) == (["d"], [])
    assert (await store.document(ACCOUNT, "d"))["newest"] == 1


async def test_writers_and_readers_at_the_same_time_see_whole_versions_only(store):
    """Each version says one word in many passages: nobody finds two words in one version of the document."""
    words = ["alpha", "beta", "gamma", "delta"]
    await store.write(ACCOUNT, DocumentWrite("d", "\n\n".join(["alpha " + "goes on. " * 90] * 8)))
    mixed, seen, done = [], set(), asyncio.Event()

    async def read():
        while not done.is_set():
            found = await store.search(ACCOUNT, " ".join(words), documents=["d"], limit=50)
            said = {word for one in found for word in words if word in one.text}
            seen.update(said)
            if len(said) != 1:
                mixed.append(said)
            await asyncio.sleep(0)

    readers = [asyncio.create_task(read()) for _ in range(2)]
    for turn in range(12):
        word = words[turn % 4]
        text = "\n\n".join([f"{word} " + "goes on. " * 90] * 8)
        await store.write(ACCOUNT, DocumentWrite("d", text, mode="replace"))
        await asyncio.sleep(0.01)
    done.set()
    await asyncio.gather(*readers)
    assert mixed == []
    assert len(seen) > 1


async def test_text_of_a_document_is_never_read_as_a_template_or_a_query(store):
    evil = '{{workflow_input.key}} {% raw %} NEAR("a" b) -x *:* "'
    steps = [
        {"id": "kb", "type": "kb_write", "document": evil, "content": "{{workflow_input.text}}"},
        {"id": "found", "type": "kb_search", "query": "{{workflow_input.text}}"},
        {"id": "again", "type": "kb_write", "document": "copy", "content": "{{step.found.passages.0.text}}"},
    ]
    steps[0]["document"] = "{{workflow_input.name}}"
    async with engine_on(store) as engine:
        given = {"key": "CANARY", "text": evil, "name": evil}
        run = await (await engine.start(workflow(steps), given)).wait()
        assert run.status == "completed", run.error
    kept = [await store.document(ACCOUNT, name) for name in (evil, "copy")]
    assert [one["text"] for one in kept] == [evil, evil]
    assert "CANARY" not in json.dumps(kept, default=str)
