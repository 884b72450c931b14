"""Three workflows of users over long texts: a book translated in passes, living pages, context for each section.

Each is killed in the middle and carried on by another process, against a server with a provider's interface.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepwell.engine.settings import Settings
from stepwell.stores.knowledge_sqlite import SqliteKnowledge
from stepwell.stores.sqlite.database import Database
from stepwell.testing.provider_server import ProviderServer, Received, Reply

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

Json = Any
ACCOUNT = "default"
DYING = """
import os, runpy, signal, sys
from stepwell.stores.knowledge_sqlite import SqliteKnowledge, writing
name, where = os.environ["KILL_AT"].split("@")
recorded, written = writing._record, SqliteKnowledge.write

def record(connection, account, prepared, made, now):
    recorded(connection, account, prepared, made, now)
    if where == "inside" and prepared.write.document == name:
        os.kill(os.getpid(), signal.SIGKILL)

async def write(self, account, asked):
    found = await written(self, account, asked)
    if where == "after" and asked.document == name:
        os.kill(os.getpid(), signal.SIGKILL)
    return found

writing._record, SqliteKnowledge.write = record, write
sys.argv[0] = "stepwell"
runpy.run_module("stepwell", run_name="__main__")
"""


class Project:
    """A folder with a workflow and tools, used through processes of the command line."""

    def __init__(self, folder: Path, server: ProviderServer | None = None) -> None:
        self.folder = folder
        url, key = (server.base_url, server.key) if server else ("http://127.0.0.1:9/v1", "none")
        (folder / "stepwell.toml").write_text(
            '[project]\ntools = ["tools.py"]\ndefault_model = "m"\n[models.m]\nprovider = "openai"\n'
            f'base_url = "{url}"\napi_key = "env:KEY"\nmodel = "some-model"\n'
        )
        self.environ = os.environ | {"KEY": key}

    def write(self, tools: str, steps: list[Json], **parts: Json) -> None:
        (self.folder / "tools.py").write_text(tools)
        text = yaml.safe_dump({"workflow": "w", "steps": steps, **parts}, sort_keys=False)
        (self.folder / "w.yaml").write_text(text)

    async def start(self, *words: str, dies: str = "") -> asyncio.subprocess.Process:
        program = ["-c", DYING] if dies else ["-m", "stepwell"]
        return await asyncio.create_subprocess_exec(
            sys.executable, *program, *words, cwd=self.folder,
            env=self.environ | ({"KILL_AT": dies} if dies else {}),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def stepwell(self, *words: str, dies: str = "") -> str:
        process = await self.start(*words, dies=dies)
        out, err = await process.communicate()
        assert process.returncode == (-signal.SIGKILL if dies else 0), out.decode() + err.decode()
        return out.decode()

    async def only_run(self) -> str:
        (run,) = json.loads(await self.stepwell("runs", "list", "--json"))
        return str(run["id"])

    async def ended(self, run_id: str) -> Json:
        return json.loads(await self.stepwell("runs", "show", run_id, "--all", "--json"))

    @asynccontextmanager
    async def knowledge(self) -> AsyncIterator[SqliteKnowledge]:
        """The knowledge base as the words of its passages alone find it."""
        path = Settings.load(self.folder, self.environ).database.removeprefix("sqlite:///")
        database = Database.open(Path(path))
        try:
            yield SqliteKnowledge(database)
        finally:
            await database.close()

    async def documents(self) -> dict[str, Json]:
        """Every document with its newest text and version, by name."""
        async with self.knowledge() as store:
            names = [one["document"] for one in await store.documents(ACCOUNT)]
            return {name: await store.document(ACCOUNT, name) for name in names}

    async def found(self, *queries: str) -> list[list[str]]:
        """For each word the documents of which a passage that is found for it holds it."""
        async with self.knowledge() as store:
            passages = [await store.search(ACCOUNT, query, limit=50) for query in queries]
            return [
                sorted({one.document for one in some if query in one.text})
                for query, some in zip(queries, passages, strict=True)
            ]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ── a book, translated in four passes ──

CHUNKS = 12
SPLIT = f"""
import stepwell

@stepwell.tool
def split() -> list:
    text = "He wrote {{{{step.terms.text}}}} and {{not a template}} and }}}}}} — 审批。\\n"
    return [f"<<{{n}}>> " + text * 150 for n in range({CHUNKS})]
"""
PASSES = [
    ("terms", "TERMS of {{loop_item}}"),
    ("literal", "LITERAL of {{loop_item}} by {{step.terms.text}}"),
    ("problems", "PROBLEMS of {{step.literal.text}} in {{loop_item}}"),
    ("free", "FREE of {{loop_item}} by {{step.terms.text}}, {{step.literal.text}}, {{step.problems.text}}"),
]


async def test_a_book_is_translated_chunk_by_chunk_over_a_kill_and_no_pass_sees_another_chunk(folder):
    """Four calls in a row in each iteration; each sees its own chunk and the passes before it, literal braces and all."""

    def script(request: Received) -> Reply:
        prompt = request.json["messages"][-1]["content"]
        word, chunks = prompt.split()[0], set(re.findall(r"<<(\d+)>>", prompt))
        assert len(chunks) == 1, "a pass saw another chunk"
        assert "{{step.terms.text}} and {not a template} and }}}" in prompt
        (chunk,) = chunks
        return Reply(f"[{word} <<{chunk}>> {{{{step.free.text}}}} " + "x" * 8_000 + "]", delay=0.02)

    async with ProviderServer(script) as server:
        project = Project(folder, server)
        steps = [{"id": name, "type": "llm_call", "prompt": prompt} for name, prompt in PASSES]
        loop = {"id": "each", "type": "loop", "over": "{{step.split}}", "concurrency": 3, "steps": steps,
                "output": "{{step.free.text}}"}  # fmt: skip
        split = {"id": "split", "type": "tool_call", "tool": "split"}
        project.write(SPLIT, [split, loop], output={"book": "{{ step.each.join('\\n---\\n') }}"})
        process = await project.start("run", "w.yaml", "--json")
        while len(server.requests) < 17:
            assert process.returncode is None, (await process.communicate())[1].decode()
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        await process.communicate()
        run_id = await project.only_run()
        await project.stepwell("runs", "resume", run_id)
        shown = await project.ended(run_id)
        made = len(server.requests)
    assert shown["status"] == "completed"
    parts = shown["output"]["book"].split("\n---\n")
    assert parts == [f"[FREE <<{n}>> {{{{step.free.text}}}} " + "x" * 8_000 + "]" for n in range(CHUNKS)]
    assert CHUNKS * 4 <= made <= CHUNKS * 4 + 3  # only what was in flight is asked again
    passes = [step for step in shown["steps"] if re.fullmatch(r"/each/\d+/\w+", step["path"])]
    assert sorted(step["path"] for step in passes) == sorted(
        f"/each/{n}/{name}" for n in range(CHUNKS) for name, _ in PASSES
    )
    assert {step["status"] for step in passes} == {"completed"}


# ── pages that live: the old goes and the new comes at once ──

PAGES = """
import json
from pathlib import Path
import stepwell

HERE = Path(__file__).parent

@stepwell.tool
def changed() -> list:
    return json.loads((HERE / "pages.json").read_text())

@stepwell.tool
def blocks(page: str) -> list:
    word = (HERE / "word").read_text()
    return [f"# {page}, part {n}\\n\\n{word}{page} says {word} in part {n}. " + "It goes on. " * 60 for n in range(3)]
"""
INGEST = {
    "id": "each", "type": "loop", "over": "{{step.changed}}",
    "steps": [
        {"id": "blocks", "type": "tool_call", "tool": "blocks", "arguments": {"page": "{{loop_item}}"}},
        {"id": "keep", "type": "kb_write", "document": "{{loop_item}}", "mode": "replace", "collection": "pages",
         "content": "{{ step.blocks.join('\\n\\n') }}"},
    ],
}  # fmt: skip
NAMES = [f"page{number}" for number in range(4)]


@pytest.fixture
async def pages(folder):
    """Four pages, of which the first version was taken in."""
    project = Project(folder)
    project.write(PAGES, [{"id": "changed", "type": "tool_call", "tool": "changed"}, INGEST])
    (folder / "pages.json").write_text(json.dumps(NAMES))
    (folder / "word").write_text("oldword")
    await project.stepwell("run", "w.yaml")
    (folder / "word").write_text("newword")
    return project


@pytest.mark.parametrize("where", ["inside", "after"])
async def test_a_page_is_the_old_one_or_the_new_one_whenever_the_process_dies(pages, where):
    """Killed while page 2 is written, inside its transaction or between it and the journal."""
    await pages.stepwell("run", "w.yaml", dies=f"page2@{where}")
    done = 2 if where == "inside" else 3
    fresh, old = NAMES[:done], NAMES[done:]
    assert await pages.found(*(f"newword{name}" for name in NAMES)) == [[name] for name in fresh] + [[] for _ in old]
    assert await pages.found(*(f"oldword{name}" for name in NAMES)) == [[] for _ in fresh] + [[name] for name in old]
    kept = await pages.documents()
    assert [kept[name]["newest"] for name in NAMES] == [2] * done + [1] * (4 - done)
    assert [kept[name]["text"].count("part") for name in NAMES] == [6] * 4
    runs = json.loads(await pages.stepwell("runs", "list", "--json"))
    (run_id,) = [run["id"] for run in runs if run["status"] != "completed"]
    await pages.stepwell("runs", "resume", run_id)
    kept = await pages.documents()
    assert [kept[name]["newest"] for name in NAMES] == [2] * 4
    assert [kept[name]["text"].count(f"newword{name} says") for name in NAMES] == [3] * 4
    assert await pages.found(*(f"newword{name}" for name in NAMES)) == [[name] for name in NAMES]
    assert await pages.found(*(f"oldword{name}" for name in NAMES)) == [[]] * 4


async def test_runs_that_overlap_leave_each_page_whole_and_once(pages):
    told = await asyncio.gather(*[pages.stepwell("run", "w.yaml", "--json") for _ in range(3)])
    assert [json.loads(text.splitlines()[-1])["status"] for text in told] == ["completed"] * 3
    kept = await pages.documents()
    assert sorted(kept) == NAMES
    assert [kept[name]["newest"] for name in NAMES] == [4] * 4
    assert [kept[name]["text"].count(f"newword{name} says") for name in NAMES] == [3] * 4
    assert await pages.found(*(f"oldword{name}" for name in NAMES)) == [[]] * 4


async def test_a_page_that_cannot_be_fetched_keeps_its_old_text_and_stops_no_other(pages):
    (pages.folder / "pages.json").write_text(json.dumps(["page0", "page1", 7, "page3"]))
    pages.write(PAGES, [{"id": "changed", "type": "tool_call", "tool": "changed"}, INGEST | {"tolerate": 1}])
    await pages.stepwell("run", "w.yaml")
    kept = await pages.documents()
    assert [kept[name]["newest"] for name in NAMES] == [2, 2, 1, 2]
    assert await pages.found("oldwordpage2", "oldwordpage3") == [["page2"], []]


# ── a section with context from the whole document ──

SECTIONS = 20
FETCH = f"""
import random
import stepwell

@stepwell.tool
def fetch() -> dict:
    words = random.Random(1)
    sections = [
        f"Section<{{n}}>" + " {{{{step.keep.version}}}} " + " ".join(f"w{{words.randrange(10**6)}}" for _ in range(1500))
        for n in range({SECTIONS})
    ]
    return {{"text": "\\n===\\n".join(sections)}}
"""


async def test_every_section_gets_context_from_the_whole_text_and_is_kept_once_over_a_kill(folder):
    def script(request: Received) -> Reply:
        prompt = request.json["messages"][-1]["content"]
        assert len(re.findall(r"Section<\d+> \{\{step\.keep\.version\}\}", prompt)) == SECTIONS + 1, "the whole text"
        return Reply(f"context<{re.findall(r'Section<([0-9]+)>', prompt)[-1]}>")

    async with ProviderServer(script) as server:
        project = Project(folder, server)
        steps = [
            {"id": "context", "type": "llm_call", "prompt": "All: {{step.fetch.text}}\n\nSection: {{loop_item}}"},
            {"id": "keep", "type": "kb_write", "document": "book{{loop.index}}", "collection": "books",
             "content": "{{step.context.text}}\n\n{{loop_item}}", "metadata": {"section": "{{loop.index}}"}},
        ]  # fmt: skip
        loop = {"id": "each", "type": "loop", "over": "{{ step.fetch.text.split('\\n===\\n') }}", "steps": steps}
        project.write(
            FETCH, [{"id": "fetch", "type": "tool_call", "tool": "fetch"}, loop], output={"n": "{{step.each.size()}}"}
        )
        await project.stepwell("run", "w.yaml", dies="book9@after")
        run_id = await project.only_run()
        await project.stepwell("runs", "resume", run_id)
        shown = await project.ended(run_id)
        assert (shown["status"], shown["output"]) == ("completed", {"n": SECTIONS})
        assert len(server.requests) == SECTIONS  # what a model said before the kill is not asked again
        text = max(len(request.json["messages"][-1]["content"]) for request in server.requests)
    kept = await project.documents()
    assert len(kept) == SECTIONS
    for number in range(SECTIONS):
        found = kept[f"book{number}"]
        assert (found["newest"], found["metadata"]) == (1, {"section": number})
        assert found["text"].startswith(f"context<{number}>\n\nSection<{number}> {{{{step.keep.version}}}} w")
    assert text > 200_000
    # What is kept grows with what was asked, and not with the square of it: each prompt is kept once.
    size = sum(file.stat().st_size for file in (folder / ".stepwell").rglob("*") if file.is_file())
    assert size < 1.5 * SECTIONS * text + 5_000_000
