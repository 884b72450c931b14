"""Cases of the topics serialisation, timeout and notification: what tools give, through the engine and a restart."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from stepwell.engine.engine import open_engine
from stepwell.engine.settings import Settings

HEAD = """
from __future__ import annotations
import asyncio, dataclasses, datetime as dt, decimal, enum, time, uuid
import pydantic
import stepwell

class Colour(enum.Enum):
    RED = "red"

@dataclasses.dataclass
class Money:
    amount: decimal.Decimal
    colour: Colour

class Model(pydantic.BaseModel):
    when: dt.datetime
    inner: list[Colour]

SEEN = []

@stepwell.tool
def use(v):
    return v
"""


class Project:
    """A folder with a tools file and a database; engines are opened on it one after the other."""

    def __init__(self, folder, tools):
        self.folder = folder
        self.tools = folder / "tools.py"
        self.tools.write_text(HEAD + tools, encoding="utf-8")

    def workflow(self, steps, **more):
        file = self.folder / "w.json"
        file.write_text(json.dumps({"workflow": "w", "steps": steps, **more}), encoding="utf-8")
        return file

    def engine(self):
        settings = Settings(root=self.folder)
        return open_engine(f"sqlite:///{self.folder}/s.db", settings=settings, tools=[self.tools])

    async def run(self, steps, **more):
        """The run and its steps by path, once it has ended or parked."""
        async with self.engine() as engine:
            handle = await engine.start(engine.load(self.workflow(steps, **more)), {})
            return await self.told(engine, await handle.wait())

    async def told(self, engine, run):
        tree = (await engine.tree(run.id)).as_json()
        return run, {step["path"]: step for step in tree["steps"]}


STEPS = [
    {"id": "s", "type": "tool_call", "tool": "s"},
    {"id": "g", "type": "approval"},
    {"id": "use", "type": "tool_call", "tool": "use", "arguments": {"v": "{{step.s}}"}},
]

KINDS = {
    "naive": ("dt.datetime(2026, 1, 2, 3, 4)", "2026-01-02T03:04:00"),
    "aware": ("dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)", "2026-01-02T03:04:00+00:00"),
    "date": ("dt.date(2026, 1, 2)", "2026-01-02"),
    "decimal": ("decimal.Decimal('12.30')", "12.30"),
    "uuid": ("uuid.UUID(int=1)", "00000000-0000-0000-0000-000000000001"),
    "tuple": ("(1, (2, 3))", [1, [2, 3]]),
    "enum": ("Colour.RED", "red"),
    "dataclass": ("Money(decimal.Decimal('1.0'), Colour.RED)", {"amount": "1.0", "colour": "red"}),
    "model": (
        "Model(when=dt.datetime(2026, 1, 2), inner=[Colour.RED])",
        {"when": "2026-01-02T00:00:00", "inner": ["red"]},
    ),
    "large": ("2**63 + 1", 2**63 + 1),
    "larger": ("-(10**300)", -(10**300)),
    "floats": ("[0.1, 1.0, -0.0, 1e300]", [0.1, 1.0, -0.0, 1e300]),
}


async def test_c107_a_value_is_the_same_with_and_without_a_restart(tmp_path):
    values = ", ".join(f"{name!r}: {source}" for name, (source, _) in KINDS.items())
    project = Project(tmp_path, f"@stepwell.tool\ndef s(): return {{{values}}}\n")
    plain = {name: value for name, (_, value) in KINDS.items()}
    without = [STEPS[0], STEPS[2]]
    run, steps = await project.run(without)
    assert (run.status, run.error) == ("completed", None)
    assert repr(run.output) == repr(plain)

    run, steps = await project.run(STEPS)
    assert run.status == "pending_approval"
    async with project.engine() as engine:
        await engine.decide((await engine.waits(run_id=run.id))[0].id, "approved")
        handle = await engine.resume(run.id)
        run, steps = await project.told(engine, await handle.wait())
    assert (run.status, run.error) == ("completed", None)
    assert repr(run.output) == repr(plain)
    assert repr(steps["/use"]["input"]) == repr({"v": plain})


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("{'a': [b'x']}", "/a/0"),
        ("{'a': {1, 2}}", "/a"),
        ("{'a': {1: 2}}", "/a/1"),
        ("[float('nan')]", "/0"),
        ("cyclic", "/0/0"),
        ("(n for n in [1])", ""),
        ("[object()]", "/0"),
    ],
)
async def test_c107_a_value_that_json_cannot_hold_fails_the_step_at_once_with_its_place(tmp_path, source, path):
    project = Project(tmp_path, f"cyclic = [[]]\ncyclic[0].append(cyclic)\n@stepwell.tool\ndef s(): return {source}\n")
    run, steps = await project.run(STEPS)
    assert run.status == "failed"
    error = steps["/s"]["error"]
    assert error["kind"] == "output_invalid"
    assert error["detail"]["path"] == path
    assert steps["/s"]["attempts"] == 1
    assert steps["/use"]["status"] == "skipped"


async def test_c106_nul_surrogates_and_byte_order_marks_lose_no_event(tmp_path):
    given = r"{'text': 'a\x00b', 'lone': '\ud800', 'bom': '\ufeffx', 'k\x00': 1, 'emoji': '\ud83d\ude00'}"
    project = Project(tmp_path, f"@stepwell.tool\ndef s(): return {given}\n")
    run, steps = await project.run(STEPS)
    kept = {"text": "a\x00b", "lone": "\ufffd", "bom": "\ufeffx", "k\x00": 1, "emoji": "😀"}
    assert run.status == "pending_approval"
    assert steps["/s"]["output"] == kept
    async with project.engine() as engine:
        await engine.decide((await engine.waits(run_id=run.id))[0].id, "approved", comment="a\x00b")
        handle = await engine.resume(run.id)
        run, steps = await project.told(engine, await handle.wait())
    assert run.status == "completed"
    assert run.output == kept
    assert [steps[path]["status"] for path in ("/s", "/g", "/use")] == ["completed"] * 3
    json.dumps(steps).encode()


async def test_c106_a_failure_with_hostile_text_is_recorded(tmp_path):
    project = Project(tmp_path, "@stepwell.tool\ndef s(): raise ValueError('a\\x00b \\ud800')\n")
    run, _ = await project.run(STEPS)
    assert run.status == "failed"
    assert run.error["message"] == "s: ValueError: a\x00b \ufffd"


async def test_a_result_that_is_too_large_or_too_deep_fails_the_step(tmp_path):
    tools = "@stepwell.tool\ndef s(): return 'x' * 6_000_000\n@stepwell.tool\ndef d():\n    v = []\n"
    project = Project(tmp_path, tools + "    for _ in range(100_000): v = [v]\n    return v\n")
    run, steps = await project.run([STEPS[0]])
    assert (run.status, steps["/s"]["error"]["kind"]) == ("failed", "output_too_large")
    assert "6,000,002 bytes" in steps["/s"]["error"]["message"]
    run, steps = await project.run([{"id": "d", "type": "tool_call", "tool": "d"}])
    assert (run.status, steps["/d"]["error"]["kind"]) == ("failed", "output_too_large")


@pytest.mark.parametrize(
    "body",
    [
        "async def s(): await asyncio.sleep(5)",
        "def s(): time.sleep(5)",
        "async def s():\n    while True:\n        try: await asyncio.sleep(5)\n        except asyncio.CancelledError: pass",
    ],
    ids=["async", "blocking", "stubborn"],
)
async def test_c059_a_timeout_is_recorded_on_time_while_the_loop_answers(tmp_path, body):
    project = Project(tmp_path, f"@stepwell.tool\n{body}\n")
    gaps = []

    async def watch():
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - before)

    async with project.engine() as engine:
        loaded = engine.load(project.workflow([STEPS[0] | {"timeout": "1s", "retry": {"max_attempts": 1}}]))
        watcher = asyncio.create_task(watch())
        handle = await engine.start(loaded, {})
        run, steps = await project.told(engine, await handle.wait())
        watcher.cancel()
    assert (run.status, steps["/s"]["error"]["kind"]) == ("failed", "timeout")
    attempt = steps["/s"]["attempt_log"][-1] if steps["/s"]["attempt_log"] else steps["/s"]
    assert attempt["error"]["kind"] == "timeout"
    assert 1.0 <= run.ended - run.started < 4  # the tool blocks for 5 s
    assert max(gaps) < 1  # a loop held up by the tool would not answer for 4 s


async def test_c133_a_notification_is_stored_and_goes_on(tmp_path):
    project = Project(tmp_path, "")
    steps = [
        {"id": "h", "type": "handoff", "to": "a@b.c\nBcc: x@y.z", "subject": "s\r\nX: y", "message": "m\x00 \ud800"},
        {"id": "use", "type": "tool_call", "tool": "use", "arguments": {"v": 1}},
        {"id": "g", "type": "approval"},
    ]
    file = project.workflow(steps)
    file.write_text(file.read_text().replace("\\ud800", ""), encoding="utf-8")
    async with project.engine() as engine:
        handle = await engine.start(engine.load(file), {})
        run, told = await project.told(engine, await handle.wait())
        notified = await engine.notifications(run.id)
    assert run.status == "pending_approval"
    assert (told["/h"]["status"], told["/h"]["output"]) == ("completed", None)
    assert [(one.to, one.subject, one.status, one.path) for one in notified if one.path == "/h"] == [
        ("a@b.c\nBcc: x@y.z", "s\r\nX: y", "stored", "/h")
    ]
    assert notified[-1].body == {"message": "m\x00 "}


async def test_c132_a_notification_is_stored_once_with_the_step_it_belongs_to(tmp_path):
    project = Project(tmp_path, "")
    steps = [
        {"id": "h", "type": "handoff", "to": "care", "message": "m"},
        {"id": "g", "type": "approval"},
    ]
    run, _ = await project.run(steps)
    for _ in range(2):
        async with project.engine() as engine:
            handle = await engine.resume(run.id)
            await handle.wait()
            assert len([one for one in await engine.notifications(run.id) if one.path == "/h"]) == 1
