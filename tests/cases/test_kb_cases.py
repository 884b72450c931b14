"""Cases of the topic kb_write: one version per logical write, whatever happens around it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from stepwell.engine.engine import open_engine
from stepwell.engine.knowledge_performer import KnowledgePerformer
from stepwell.engine.performer import CallContext
from stepwell.engine.settings import Settings
from stepwell.errors import StepFailed
from stepwell.interpreter.effect import KnowledgeRead, KnowledgeWrite
from stepwell.ports import DocumentWrite
from stepwell.stores.knowledge_memory import MemoryKnowledge

ACCOUNT = "default"
KB = {"id": "kb", "type": "kb_write", "document": "case-{{workflow_input.id}}", "content": "note {{workflow_input.id}}"}


class Project:
    def __init__(self, folder):
        self.folder = folder

    def engine(self):
        return open_engine(f"sqlite:///{self.folder}/s.db", settings=Settings(root=self.folder))

    def workflow(self, steps):
        file = self.folder / "w.json"
        file.write_text(json.dumps({"workflow": "w", "steps": steps}), encoding="utf-8")
        return file

    async def run(self, engine, steps, value):
        handle = await engine.start(engine.load(self.workflow(steps)), value)
        return await handle.wait()


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def call(key="r/kb", attempt=1):
    return CallContext(ACCOUNT, "r", "/kb", attempt, key, 5.0, "ana")


class FailsAfterStoring(MemoryKnowledge):
    """Stores the document and then says that it could not."""

    def __init__(self, failures):
        super().__init__()
        self.failures = failures

    async def write(self, account, write):
        made = await super().write(account, write)
        if self.failures:
            self.failures -= 1
            raise StepFailed("server_error", "503 after it was stored")
        return made


async def test_c051_a_retry_after_a_write_that_was_stored_makes_no_second_version():
    store = FailsAfterStoring(2)
    perform = KnowledgePerformer(store)
    effect = KnowledgeWrite(document="case-1", content="note")
    for attempt in (1, 2):
        with pytest.raises(StepFailed):
            await perform(effect, call(attempt=attempt))
    performed = await perform(effect, call(attempt=3))
    assert performed.value == {"document": "case-1", "version": 1, "chunks": 1}
    kept = await store.document(ACCOUNT, "case-1")
    assert (kept["newest"], kept["text"]) == (1, "note")
    assert kept["origin"] == {"run": "r", "path": "/kb", "requester": "ana"}


async def test_c051_each_iteration_and_round_is_a_write_of_its_own():
    store = MemoryKnowledge()
    perform = KnowledgePerformer(store)
    effect = KnowledgeWrite(document="log", content="line")
    for key in ("r/loop/0/kb", "r/loop/1/kb", "r/loop/1/kb", "r/loop/1/kb#2"):
        await perform(effect, call(key))
    assert (await store.document(ACCOUNT, "log"))["newest"] == 3


async def test_c051_a_loop_writes_once_per_item_and_a_resumed_run_writes_nothing_again(project):
    steps = [
        {
            "id": "each",
            "type": "loop",
            "over": "workflow_input.ids",
            "concurrency": 5,
            "steps": [{"id": "note", "type": "kb_write", "document": "log", "content": "item {{loop_item}}"}],
        },
        KB,
        {"id": "g", "type": "approval"},
        {"id": "last", "type": "kb_write", "document": "log", "content": "end"},
    ]
    async with project.engine() as engine:
        run = await project.run(engine, steps, {"id": 1, "ids": list(range(20))})
        assert run.status == "pending_approval", run.error
    async with project.engine() as engine:
        await engine.decide((await engine.waits(run_id=run.id))[0].id, "approved")
        handle = await engine.resume(run.id)
        run = await handle.wait()
        assert run.status == "completed"
        log = await engine.knowledge.document(ACCOUNT, "log")
        assert log["newest"] == 21
        assert sorted(log["text"].split("\n\n")) == sorted([*(f"item {number}" for number in range(20)), "end"])
        assert (await engine.knowledge.document(ACCOUNT, "case-1"))["newest"] == 1


async def test_c051_runs_that_write_one_document_at_the_same_time_lose_nothing(project):
    async with project.engine() as engine:
        steps = [KB | {"document": "shared"}]
        loaded = engine.load(project.workflow(steps))
        handles = await asyncio.gather(*[engine.start(loaded, {"id": number}) for number in range(30)])
        runs = await asyncio.gather(*[handle.wait() for handle in handles])
        assert {run.status for run in runs} == {"completed"}
        assert sorted(run.output["version"] for run in runs) == list(range(1, 31))
        shared = await engine.knowledge.document(ACCOUNT, "shared")
        assert sorted(shared["text"].split("\n\n")) == sorted(f"note {number}" for number in range(30))


async def test_c051_of_runs_that_replace_one_document_the_record_says_whose_version_went(project):
    async with project.engine() as engine:
        steps = [KB | {"document": "shared", "mode": "replace"}]
        loaded = engine.load(project.workflow(steps))
        handles = await asyncio.gather(*[engine.start(loaded, {"id": number}) for number in range(8)])
        runs = [await handle.wait() for handle in handles]
        assert {run.status for run in runs} == {"completed"}
        versions = {one["version"]: one for one in await engine.knowledge.versions(ACCOUNT, "shared")}
        assert sorted(versions) == list(range(1, 9))
        for number in range(2, 9):
            replaced = versions[number]["origin"]["replaced"]
            assert (replaced["version"], replaced["run"]) == (number - 1, versions[number - 1]["origin"]["run"])
        texts = {(await engine.knowledge.document(ACCOUNT, "shared", version=number))["text"] for number in versions}
        assert texts == {f"note {number}" for number in range(8)}


KILLED = """
import asyncio, os, pathlib, signal, sys
from stepwell.engine.engine import open_engine
from stepwell.engine.settings import Settings
from stepwell.stores.knowledge_sqlite import SqliteKnowledge
write = SqliteKnowledge.write
async def write_and_die(self, account, asked):
    await write(self, account, asked)
    os.kill(os.getpid(), signal.SIGKILL)
SqliteKnowledge.write = write_and_die
async def main():
    folder = pathlib.Path(sys.argv[1])
    async with open_engine(f"sqlite:///{folder}/s.db", settings=Settings(root=folder)) as engine:
        handle = await engine.start(engine.load(folder / "w.json"), {"id": 7})
        await handle.wait()
asyncio.run(main())
"""


async def test_c051_a_crash_between_the_write_and_its_journal_entry_makes_no_second_version(project):
    project.workflow([KB])
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", KILLED, str(project.folder)],
        timeout=60,
        check=False,
        env=dict(os.environ),
    )
    assert killed.returncode == -signal.SIGKILL
    async with project.engine() as engine:
        kept = await engine.knowledge.document(ACCOUNT, "case-7")
        assert kept["newest"] == 1
        (run,) = await engine.runs()
        assert run.status == "running"
        handle = await engine.resume(run.id)
        run = await handle.wait()
        assert (run.status, run.output) == ("completed", {"document": "case-7", "version": 1, "chunks": 1})
        assert (await engine.knowledge.document(ACCOUNT, "case-7"))["text"] == "note 7"


async def test_a_search_gives_passages_and_an_empty_knowledge_base_gives_none(project):
    steps = [
        {"id": "before", "type": "kb_search", "query": "{{workflow_input.q}}"},
        KB | {"content": "审批步骤 need {{workflow_input.q}}", "collection": "policies"},
        {"id": "after", "type": "kb_search", "query": "审批", "collections": ["policies"], "limit": 1},
    ]
    async with project.engine() as engine:
        run = await project.run(engine, steps, {"id": 3, "q": 'refund" OR *'})
        assert run.status == "completed", run.error
        tree = (await engine.tree(run.id)).as_json()
        outputs = {step["path"]: step["output"] for step in tree["steps"]}
    assert outputs["/before"] == {"passages": []}
    (passage,) = outputs["/after"]["passages"]
    assert (passage["document"], passage["text"]) == ("case-3", '审批步骤 need refund" OR *')
    assert passage["score"] > 0


async def test_the_performer_passes_on_what_the_step_says():
    store = MemoryKnowledge()
    perform = KnowledgePerformer(store)
    effect = KnowledgeWrite("d", "new section", "help", "upsert", "s", {"a": 1})
    await perform(effect, call())
    await perform(replace(effect, content="newer section"), call("other"))
    kept = await store.document(ACCOUNT, "d")
    assert (kept["collection"], kept["section"], kept["metadata"], kept["text"]) == (
        "help",
        "s",
        {"a": 1},
        "newer section",
    )
    found = await perform(KnowledgeRead("section", ("help",)), call())
    assert [passage["text"] for passage in found.value["passages"]] == ["newer section"]
    with pytest.raises(StepFailed, match="key is empty"):
        await perform(KnowledgeWrite("d", "x", mode="upsert"), call("third"))
    assert (await store.write(ACCOUNT, DocumentWrite("e", "x"))).version == 1
