"""Cases of the topic huge_output: what is too large fails its step once, with its size; what fits is kept once.

Other engines try an answer that is too large for their store again without end, cut it silently, keep it once for each
step that reads it, or die of it.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sqlite3

import pytest
from click.testing import CliRunner
from tests.cases.test_serialisation_cases import STEPS, Project

from stepwell.cli.app import stepwell
from stepwell.errors import InputError

MEGABYTE = 1024 * 1024
TOOLS = """
@stepwell.tool
def s(size: int = 4_000_000):
    with open(__file__ + ".log", "a") as file:
        file.write("s\\n")
    return {"text": "x" * size, "n": 1}

@stepwell.tool
def many(size: int = 4_000_000):
    return ["y" * 1_000_000 for _ in range(4)]

@stepwell.tool
def length(text: str):
    return len(text)
"""
QUICK = {"max_attempts": 3, "initial_delay": "5ms"}


def tool(name, tool="s", **more):
    return {"id": name, "type": "tool_call", "tool": tool, **more}


def size_of(folder):
    """Bytes that the database has in use."""
    with sqlite3.connect(folder / "s.db") as connection:
        (pages,), (size,) = (connection.execute(f"PRAGMA {word}").fetchone() for word in ("page_count", "page_size"))
    return pages * size


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path, TOOLS)


async def test_a_result_that_is_too_large_is_tried_once_and_says_its_size(project):
    late = {"id": "after", "type": "set", "values": {"kind": "{{steps.s.error.kind}}"}}
    run, steps = await project.run([tool("s", arguments={"size": 20_000_000}, retry=QUICK, on_error="continue"), late])
    assert (run.status, run.output) == ("completed", {"kind": "output_too_large"})
    assert "the limit is 5,242,880" in steps["/s"]["error"]["message"]
    assert project.tools.with_name("tools.py.log").read_text() == "s\n"
    assert size_of(project.folder) < MEGABYTE


async def test_what_many_steps_pass_on_is_kept_once(project):
    """Four megabytes through a chain of steps, a branch, a loop and a child: one copy, not one for each reader."""
    text = "{{step.s.text}}"
    steps = [
        tool("s"),
        *[tool(f"l{n}", "length", arguments={"text": text}) for n in range(5)],
        {"id": "L", "type": "loop", "over": [1, 2, 3, 4, 5], "concurrency": 2,
         "steps": [tool("in", "length", arguments={"text": text})]},
        {"id": "p", "type": "parallel", "branches": {
            "a": [tool("pa", "length", arguments={"text": text})], "b": [tool("pb", "length", arguments={"text": text})]}},
        {"id": "g", "type": "approval", "title": "All {{step.l0}}?"},
    ]  # fmt: skip
    run, told = await project.run(steps)
    assert run.status == "pending_approval", run.error
    assert told["/L"]["output"] == [4_000_000] * 5
    assert size_of(project.folder) < 12_000_000  # the result, and the arguments that all of them share
    async with project.engine() as engine:
        await engine.decide((await engine.waits(run_id=run.id))[0].id, "approved")
        run = await (await engine.resume(run.id)).wait()
        assert run.status == "completed"
    assert size_of(project.folder) < 12_000_000
    assert project.tools.with_name("tools.py.log").read_text() == "s\n"


async def test_a_loop_that_gathers_too_much_fails_with_the_sum_and_does_not_go_on_for_ever(project):
    loop = {"id": "L", "type": "loop", "over": list(range(20)), "steps": [tool("in", "many")], "on_error": "continue"}
    run, told = await project.run([loop, {"id": "after", "type": "set", "values": {"x": "{{steps.L.error.kind}}"}}])
    assert (run.status, run.output) == ("completed", {"x": "output_too_large"})
    assert "more than 50 MB" in told["/L"]["error"]["message"]


async def test_a_run_with_large_results_is_listed_shown_and_replayed_in_bounded_memory(project):
    steps = [*[tool(f"s{n}", arguments={"size": 4_000_000 + n}) for n in range(10)], {"id": "g", "type": "approval"}]
    run, _ = await project.run(steps)
    assert run.status == "pending_approval"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with project.engine() as engine:
        await engine.runs()
        await engine.decide((await engine.waits(run_id=run.id))[0].id, "approved")
        run = await (await engine.resume(run.id)).wait()
        assert run.status == "completed"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 300, f"{grown:.0f} MB"


@pytest.mark.parametrize("size", [5 * MEGABYTE - 100, 5 * MEGABYTE + 100])
async def test_the_limit_is_the_same_for_tools_and_for_what_is_computed(project, size):
    made = {"id": "s", "type": "set", "values": {"text": "{{step.t.text}}"}}
    run, told = await project.run([tool("t", arguments={"size": size}), made])
    fits = size < 5 * MEGABYTE
    assert run.status == ("completed" if fits else "failed")
    assert fits or run.error["kind"] == "output_too_large"
    assert told["/s"]["status"] == ("completed" if fits else "skipped")


async def test_a_line_of_four_megabytes_is_shown_in_short(project, monkeypatch):
    run, _ = await project.run([tool("s"), STEPS[1]])
    monkeypatch.chdir(project.folder)
    monkeypatch.setenv("STEPWELL_DATABASE", f"sqlite:///{project.folder}/s.db")

    def shown(*words):
        result = CliRunner().invoke(stepwell, ["runs", "show", run.id, *words])
        assert result.exit_code == 0, result.output[:500]
        return result.output

    assert len(await asyncio.to_thread(shown)) < 20_000
    whole = json.loads(await asyncio.to_thread(shown, "--all", "--json"))
    output = next(step["output"] for step in whole["steps"] if step["path"] == "/s")
    assert len(output["text"]) == 4_000_000


async def test_a_large_input_is_taken_and_one_over_the_limit_refused_before_the_run(project):
    file = project.workflow([tool("l", "length", arguments={"text": "{{workflow_input.text}}"})])
    async with project.engine() as engine:
        loaded = engine.load(file)
        run = await (await engine.start(loaded, {"text": "z" * 4_000_000})).wait()
        assert run.output == 4_000_000
        with pytest.raises(InputError) as caught:
            await engine.start(loaded, {"text": "z" * 60_000_000})
        assert "the input is more than 5,242,880 bytes of JSON" in str(caught.value)
        assert len(await engine.runs()) == 1
