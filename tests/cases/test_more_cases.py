"""Neighbours of the cases of retry, timeout, id_collision, skip_join, dag, loop, loop_scope and falsy."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases.test_container_cases import engine_at, project
from tests.cases.test_pause_cases import approve, gate
from tests.cases.test_step_cases import QUICK, run_to_end, tool
from tests.engine_world import engine_with, statuses, workflow

from stepwell.engine.engine import open_engine
from stepwell.engine.secret import Secret
from stepwell.engine.settings import ModelSettings, Settings
from stepwell.errors import DefinitionError, InputError, StepFailed
from stepwell.ports import ToolCallContext
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.testing.provider_server import ProviderServer, Reply
from stepwell.testing.scripted import ScriptedTools

Json = Any


def refusing(*values: Json) -> Json:
    """An answer that fails for an `n` of these and echoes any other."""

    def answer(arguments: Json) -> Json:
        if arguments["n"] in values:
            raise StepFailed("invalid_request", f"400 for {arguments['n']}")
        return arguments

    return [answer]


def loop(body: list[Json], over: Json = (1, 2, 3, 4), **more: Json) -> Json:
    return {"id": "L", "type": "loop", "over": over if isinstance(over, str) else list(over), "steps": body, **more}


class Timed(ScriptedTools):
    """Notes when every call began and what it was told about its time."""

    def __init__(self, **more: Json) -> None:
        super().__init__(**more)
        self.at: list[float] = []
        self.allowed: list[float] = []
        self.cut: list[str] = []

    async def call(self, name: str, arguments: dict[str, Json], context: ToolCallContext) -> Json:
        self.at.append(time.time())
        self.allowed.append(context.timeout or 0.0)
        try:
            return await ScriptedTools.call(self, name, arguments, context)
        except asyncio.CancelledError:
            self.cut.append(context.path)
            raise


# ── retry ──


async def test_c054_the_gaps_between_the_calls_of_many_runs_are_the_configured_ones_with_jitter() -> None:
    retry = {"max_retries": 3, "initial_delay": "40ms", "multiplier": 2, "max_delay": "100ms"}
    seen: list[list[float]] = []

    async def one() -> None:
        tools = Timed(answers={"t": [StepFailed("server_error", "503")]})
        await run_to_end([tool("t", retry=retry)], tools)
        seen.append([later - before for before, later in itertools.pairwise(tools.at)])

    await asyncio.gather(*(one() for _ in range(20)))
    assert all(len(gaps) == 3 for gaps in seen)
    for number, least in enumerate((0.04, 0.08, 0.1)):
        assert all(gaps[number] >= least for gaps in seen)
        assert min(gaps[number] for gaps in seen) < least * 1.25 + 0.25
        assert len({round(gaps[number], 4) for gaps in seen}) > 5


@pytest.mark.parametrize("hint", [0.3, 0.05])
async def test_c054_what_a_service_asks_for_is_waited(hint: float) -> None:
    tools = Timed(answers={"t": [StepFailed("rate_limit", "429", retry_after=hint), {"ok": True}]})
    run, _ = await run_to_end([tool("t", retry=QUICK)], tools)
    assert run.status == "completed"
    assert tools.at[1] - tools.at[0] >= hint


async def test_c054_max_elapsed_ends_the_attempts_although_some_are_left() -> None:
    tools = Timed(answers={"t": [StepFailed("server_error", "503")]})
    retry = {"max_attempts": 1000, "initial_delay": "30ms", "multiplier": 1, "max_elapsed": "0.2s"}
    run, _ = await run_to_end([tool("t", retry=retry)], tools)
    assert run.status == "failed"
    assert 2 <= len(tools.calls) <= 7
    assert tools.at[-1] - tools.at[0] <= 0.25


@pytest.mark.parametrize(
    ("policy", "kind", "calls"),
    [
        ({"on": ["invalid_request"]}, "invalid_request", 4),
        ({"on": ["rate_limit"]}, "server_error", 1),
        ({"unless": ["server_error"]}, "server_error", 1),
        ({"when": "error.kind == 'stock_empty'"}, "stock_empty", 1),
        ({"on": ["stock_empty"]}, "stock_empty", 4),
        ({"when": "error.message == 'later'"}, "server_error", 1),
    ],
)
async def test_c052_a_policy_says_what_is_tried_again(policy: Json, kind: str, calls: int) -> None:
    """`on` replaces the kinds that can pass; `unless` and `when` only take away from them."""
    tools = ScriptedTools(answers={"t": [StepFailed(kind, "no")]})
    run, _ = await run_to_end([tool("t", retry={**QUICK, **policy})], tools)
    assert run.error is not None
    assert (run.error["kind"], len(tools.calls)) == (kind, calls)


async def test_c055_attempts_of_each_iteration_are_counted_by_themselves_and_survive_a_pause(tmp_path: Path) -> None:
    tools = ScriptedTools(
        answers={"t": [StepFailed("server_error", "503"), StepFailed("server_error", "503"), {"a": 1}]}
    )
    body = [gate("g"), tool("t", retry={**QUICK, "initial_delay": "80ms", "max_delay": "80ms"})]
    run_id = ""
    for number in range(4):
        async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
            if number:
                await approve(engine, run_id, f"/L/{number - 1}/g")
                handle = await engine.resume(run_id)
                await asyncio.sleep(0.04)
                await handle.park()  # in the middle of a back-off
                handle = await engine.resume(run_id)
            else:
                handle = await engine.start(workflow([loop(body, (1, 2, 3))]), {})
            run_id = handle.run_id
            run = await handle.wait()
    assert run.status == "completed"
    assert Counter((call.path, call.attempt) for call in tools.calls) == Counter(
        (f"/L/{index}/t", attempt) for index in range(3) for attempt in (1, 2, 3)
    )


# ── timeout ──


async def test_c060_a_step_is_told_the_less_of_its_own_timeout_and_what_is_left_of_the_run() -> None:
    tools = Timed(delays={"a": 0.4})
    steps = [tool("a", timeout="50s"), tool("b", timeout="50s"), tool("c", timeout="0.5s")]
    run, _ = await run_to_end(steps, tools, timeout="3s")
    assert run.status == "completed"
    first, second, third = tools.allowed
    assert (
        first <= 3 + 1
    )  # a step may outlive the deadline by a second, since the deadline ends the run and not the step
    assert second <= first - 0.3
    assert third == 0.5


async def test_c060_the_deadline_cuts_what_runs_and_writes_nothing_after_its_end() -> None:
    steps = [
        {"id": "p", "type": "parallel", "branches": {
            "a": [tool("t1")],
            "b": [loop([tool("t2"), tool("t3")], concurrency=2)],
            "c": [tool("bad", retry={"max_attempts": 99, "initial_delay": "20s"})],
            "d": [{"id": "nap", "type": "wait", "for": "20s"}],
        }},
        tool("after"),
    ]  # fmt: skip
    tools = Timed(delays={"t1": 9, "t2": 9}, answers={"bad": [StepFailed("server_error", "503")]})
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(steps, timeout="0.3s", on_failure={"steps": [tool("tell")]}), {})
        run = await handle.wait()
        assert run.status == "timed_out"
        assert 0.3 <= run.ended - run.started < 8
        assert sorted(tools.cut) == ["/p/a/t1", "/p/b/L/0/t2", "/p/b/L/1/t2"]
        assert tools.called("t3") == tools.called("after") == []
        history = await engine.history(run.id)
        await asyncio.sleep(0.2)
        assert len(await engine.history(run.id)) == len(history)
        assert history[-1].path == ""


async def test_c060_time_is_added_up_over_processes_and_waiting_for_people_is_not_part_of_it(tmp_path: Path) -> None:
    steps = [tool("a"), gate("g"), tool("b"), gate("g2"), tool("c")]
    tools = ScriptedTools(delays={"a": 0.3, "b": 0.3, "c": 5})
    run_id = ""
    for answered in ("", "/g", "/g2"):
        async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
            if answered:
                await asyncio.sleep(0.5)
                await approve(engine, run_id, answered)
                handle = await engine.resume(run_id)
            else:
                handle = await engine.start(workflow(steps, timeout="1s"), {})
            run_id = handle.run_id
            run = await handle.wait()
            assert run.status == ("timed_out" if answered == "/g2" else "pending_approval")
    assert run.active == pytest.approx(1.0, abs=0.35)
    assert run.ended - run.started > 1.9


# ── ids ──

_IDS = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,4}", fullmatch=True) | st.sampled_from(
    ["L", "L0", "L-0", "s-1", "_", "start", "undo", "x", "on", "null", "true", "then", "else", "steps"]
)


@st.composite
def definitions(draw: Any) -> list[Json]:
    """Steps nested in loops and parallels, with ids that look like parts of paths."""
    names = iter(draw(st.lists(_IDS, min_size=3, max_size=9, unique_by=str.lower)))

    def block(depth: int) -> Iterator[Json]:
        for _ in range(draw(st.integers(1, 3))):
            if (name := next(names, None)) is None:
                return
            kind = draw(st.sampled_from(["tool", "loop", "parallel"])) if depth < 3 else "tool"
            inner = [] if kind == "tool" else [*block(depth + 1)]
            if not inner:
                yield tool(name, tool="t")
            elif kind == "loop":
                yield {
                    "id": name,
                    "type": "loop",
                    "over": ["0", "1"],
                    "steps": inner,
                    "concurrency": draw(st.integers(1, 2)),
                }
            else:
                branches = draw(st.lists(_IDS, min_size=1, max_size=2, unique=True))
                used = {branches[0]: inner, **{branch: [] for branch in branches[1:]}}
                yield {"id": name, "type": "parallel", "branches": used}

    return [*block(0)]


def leaves(steps: list[Json]) -> int:
    """How often tools are to be called."""
    count = 0
    for step in steps:
        if step["type"] == "loop":
            count += 2 * leaves(step["steps"])
        elif step["type"] == "parallel":
            count += sum(leaves(branch) for branch in step["branches"].values())
        else:
            count += 1
    return count


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(definitions())
def test_c050_every_execution_of_a_step_has_a_key_of_its_own(steps: list[Json]) -> None:
    try:
        workflow(steps)
    except DefinitionError as error:
        assert {problem.code for problem in error.problems} <= {"id", "similar_id", "empty"}  # noqa: PT017
        return
    tools = ScriptedTools()
    run, _ = asyncio.run(run_to_end(steps, tools))
    assert run.status == "completed"
    assert len({call.path for call in tools.calls}) == len({call.key for call in tools.calls}) == leaves(steps)
    assert len(tools.calls) == leaves(steps)


KEYS = ["0", "1", "0/t", "~start", "@1", "?", "#2", "", "__result__", "L/0", "0" * 300]


async def test_c050_loop_keys_that_look_like_places_in_the_journal_collide_with_nothing() -> None:
    tools = ScriptedTools()
    steps = [loop([tool("t", arguments={"n": "{{loop_item}}"}), gate("g")], KEYS, key="loop_item", concurrency=4)]
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        for index in range(len(KEYS)):
            await approve(engine, handle.run_id, f"/L/{index}/g")
        run = await handle.wait(until_final=True)
        assert run.status == "completed"
        assert sorted(call["n"] for call in tools.called("t")) == sorted(KEYS)
        assert len(await engine.waits(run_id=run.id, pending_only=False)) == len(KEYS)


async def test_c050_a_run_asked_for_with_the_id_of_another_run_as_its_key_is_a_run_of_its_own() -> None:
    """Run ids are given by the engine; a key that a caller chooses names nothing but an earlier start with that key."""
    tools = ScriptedTools()
    loaded = workflow([tool("t", arguments={"n": "{{workflow_input.n}}"})])
    async with engine_with(tools) as engine:
        first = await engine.start(loaded, {"n": 1})
        await first.wait()
        second = await engine.start(loaded, {"n": 2}, idempotency_key=first.run_id)
        run = await second.wait()
        assert second.run_id != first.run_id
        assert run.output == {"n": 2}
        assert len({call.key for call in tools.calls}) == 2


async def test_c050_the_keys_of_a_child_differ_from_those_of_its_parent_and_of_its_twin(tmp_path: Path) -> None:
    call = {"type": "sub_workflow", "workflow": "kid"}
    main = {"steps": [tool("t"), {"id": "a", **call}, {"id": "b", **call}]}
    project(
        tmp_path, main=main, kid={"steps": [tool("t"), {"id": "a", "type": "loop", "over": [0], "steps": [tool("u")]}]}
    )
    tools = ScriptedTools()
    engine = engine_at(tools)
    await engine.open()
    run = await (await engine.start(engine.load(tmp_path / "main.yaml"), {})).wait(until_final=True)
    assert run.status == "completed"
    assert [call.path for call in tools.calls] == ["/t", "/a/t", "/a/a/0/u", "/b/t", "/b/a/0/u"]
    assert len({call.key for call in tools.calls}) == 5
    await engine.close()


# ── skips and joins ──

_STATES = ("completed", "skipped", "failed")


@pytest.mark.parametrize(("left", "right"), list(itertools.product(_STATES, _STATES)))
async def test_c067_the_child_of_an_arm_and_the_grandchild_follow_the_table(left: str, right: str) -> None:
    """Skipped only if every dependency was; a failure that is let pass counts as gone through."""

    def arm(id_: str, state: str) -> Json:
        step = tool(id_, depends_on=["o"], on_error="continue")
        return {**step, "condition": "false"} if state == "skipped" else step

    failing = {id_: [StepFailed("refused", "no")] for id_, state in (("a", left), ("b", right)) if state == "failed"}
    steps = [
        tool("o"), arm("a", left), arm("b", right), tool("d", depends_on=["b"]), tool("e", depends_on=["a", "d"]),
        tool("always", depends_on=["a", "d"], join="all_settled"),
    ]  # fmt: skip
    run, found = await run_to_end(steps, ScriptedTools(answers=failing))
    assert run.status == "completed"
    assert found["/d"] == ("skipped" if right == "skipped" else "completed")
    assert found["/e"] == ("skipped" if (left, found["/d"]) == ("skipped", "skipped") else "completed")
    assert found["/always"] == "completed"


@pytest.mark.parametrize("concurrency", [1, 5])
async def test_c068_an_empty_loop_and_what_stands_beside_it_end_at_once(concurrency: int) -> None:
    steps = [
        loop([tool("x")], "workflow_input.none", concurrency=concurrency, output="{{step.x}}"),
        tool("skipped", condition="false", depends_on=[]),
        tool("b", depends_on=["L"], arguments={"all": "{{step.L}}"}),
        tool("c", depends_on=["L", "skipped"], condition="size(step.L) > 0"),
        tool("d", depends_on=["skipped"]),
        {"id": "inner", "type": "loop", "over": [1, 2], "depends_on": ["L"],
         "steps": [tool("y", condition="false")]},
    ]  # fmt: skip
    tools = ScriptedTools()
    began = time.monotonic()
    run, found = await run_to_end(steps, tools, {"none": []}, output={"L": "{{step.L}}", "inner": "{{step.inner}}"})
    assert time.monotonic() - began < 5
    assert (run.status, run.output) == ("completed", {"L": [], "inner": [None, None]})
    assert tools.called("b") == [{"all": []}]
    assert (found["/L"], found["/b"], found["/c"], found["/d"]) == ("completed", "completed", "skipped", "skipped")


async def test_c071_the_join_waits_for_whatever_is_nested_in_its_branches() -> None:
    nested = {"id": "c", "type": "condition", "cases": [{"when": "true", "steps": [
        {"id": "q", "type": "parallel", "branches": {"x": [loop([tool("slow")], (1, 2), concurrency=2)], "y": []}}]}]}  # fmt: skip
    steps = [
        {"id": "p", "type": "parallel", "branches": {"a": [tool("quick")], "b": [nested], "n": [gate("g"), tool("last")]}},
        tool("after", depends_on=["p"]),
    ]  # fmt: skip
    tools = Timed(delays={"slow": 0.15})
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        await asyncio.sleep(0.3)
        assert tools.called("after") == []
        await approve(engine, handle.run_id, "/p/n/g")
        run = await handle.wait(until_final=True)
        told = {one["path"]: one for one in (await engine.tree(run.id)).as_json()["steps"]}
        after = told["/after"]["started_at"]
        assert all(one["ended_at"] <= after for path, one in told.items() if path.startswith("/p") and one["ended_at"])
        assert [call.tool for call in tools.calls][-2:] == ["last", "after"]


async def test_c073_an_error_deep_inside_is_told_by_every_container_around_it() -> None:
    inner = {
        "id": "q",
        "type": "parallel",
        "branches": {"x": [loop([tool("t", arguments={"n": "{{loop_item}}"})])], "y": [tool("ok")]},
    }
    steps = [{"id": "p", "type": "parallel", "branches": {"a": [inner], "b": [tool("fine")]}}, tool("unreachable")]
    tools = ScriptedTools(answers={"t": refusing(3)})
    run, found = await run_to_end(steps, tools)
    assert run.error is not None
    assert (run.status, run.error["kind"], run.error["path"]) == ("failed", "invalid_request", "/p/a/q/x/L/2/t")
    assert {path for path, status in found.items() if status == "failed"} == {
        "/p", "/p/a/q", "/p/a/q/x/L", "/p/a/q/x/L/2/t",
    }  # fmt: skip
    assert (tools.called("unreachable"), found["/p/a/q/y/ok"], found["/p/b/fine"]) == ([], "completed", "completed")


async def test_c073_a_parallel_that_may_go_on_lists_the_error_of_its_branch() -> None:
    steps = [
        {"id": "p", "type": "parallel", "continue_on_error": True, "branches": {"a": [tool("bad")], "b": [tool("ok")]}},
        tool("after", arguments={"p": "{{step.p}}"}),
    ]
    tools = ScriptedTools(answers={"bad": [StepFailed("refused", "no")]})
    run, _ = await run_to_end(steps, tools)
    assert run.status == "completed"
    (call,) = tools.called("after")
    assert (call["p"]["a"]["status"], call["p"]["a"]["error"]["kind"]) == ("failed", "refused")
    assert call["p"]["b"]["status"] == "completed"


# ── graphs ──


async def test_c074_one_id_in_a_parent_and_its_child_means_each_its_own_step(tmp_path: Path) -> None:
    child = {"steps": [tool("a", arguments={"x": "child"}), tool("use", arguments={"x": "{{step.a.x}}"})]}
    main = {"steps": [
        tool("a", arguments={"x": "parent"}), {"id": "kid", "type": "sub_workflow", "workflow": "kid"},
        tool("use", arguments={"x": "{{step.a.x}}", "kid": "{{step.kid.x}}"}),
    ]}  # fmt: skip
    project(tmp_path, main=main, kid=child)
    tools = ScriptedTools()
    engine = engine_at(tools)
    await engine.open()
    await (await engine.start(engine.load(tmp_path / "main.yaml"), {})).wait(until_final=True)
    assert tools.called("use") == [{"x": "child"}, {"x": "parent", "kid": "child"}]
    await engine.close()


def test_c074_a_child_cannot_name_a_step_of_its_parent() -> None:
    with pytest.raises(DefinitionError, match="of_the_parent"):
        workflow([tool("use", arguments={"x": "{{step.of_the_parent.x}}"})])


def test_c076_twenty_seven_diamonds_in_a_row_are_checked_at_once() -> None:
    steps: list[Json] = [tool("j0", depends_on=[])]
    for number in range(1, 28):
        arms = [tool(f"{side}{number}", depends_on=[f"j{number - 1}"], arguments={"v": f"{{{{step.j{number - 1}.v}}}}"})
                for side in ("l", "r")]  # fmt: skip
        steps += [*arms, tool(f"j{number}", depends_on=[f"l{number}", f"r{number}"])]
    began = time.process_time()
    workflow(steps)
    assert time.process_time() - began < 10


def diamonds_of_workflows(folder: Path, levels: int) -> Path:
    """Every workflow calls the next one twice."""
    for number in range(levels):
        call = {"type": "sub_workflow", "workflow": f"w{number + 1}"}
        steps = [{"id": "a", **call}, {"id": "b", **call}] if number + 1 < levels else [tool("t")]
        (folder / f"w{number}.yaml").write_text(json.dumps({"workflow": f"w{number}", "steps": steps}))
    return folder / "w0.yaml"


async def test_c076_workflows_that_call_the_next_one_twice_are_stored_at_once(tmp_path: Path) -> None:
    began = time.process_time()
    engine = engine_at(ScriptedTools(), serves=False)
    await engine.open()
    handle = await engine.start(engine.load(diamonds_of_workflows(tmp_path, 16)), {})
    assert time.process_time() - began < 10
    await handle.park()
    await engine.close()


async def test_c076_a_chain_of_a_thousand_workflows_is_refused_with_a_sentence(tmp_path: Path) -> None:
    for number in range(1000):
        step = {"id": "a", "type": "sub_workflow", "workflow": f"w{number + 1}"} if number < 999 else tool("t")
        (tmp_path / f"w{number}.json").write_text(json.dumps({"workflow": f"w{number}", "steps": [step]}))
    engine = engine_at(ScriptedTools(), serves=False)
    await engine.open()
    with pytest.raises((DefinitionError, InputError), match="deep"):
        await engine.start(engine.load(tmp_path / "w0.json"), {})
    assert await engine.runs() == []
    await engine.close()


# ── preflight ──


@pytest.mark.parametrize("where", ["steps", "on_failure", "child", "on_failure of a child"])
async def test_a_step_that_could_not_be_performed_is_told_before_the_run_wherever_it_lies(
    tmp_path: Path, where: str
) -> None:
    wrong = [{"id": "y", "type": "tool_call", "tool": "nowhere"}]
    fine: list[Json] = [{"id": "s", "type": "set", "values": {"a": 1}}]
    parts: Json = (
        {"steps": fine, "on_failure": {"steps": wrong}} if where.startswith("on_failure") else {"steps": wrong}
    )
    if "child" in where:
        (tmp_path / "kid.json").write_text(json.dumps({"workflow": "kid", **parts}))
        parts = {"steps": [{"id": "kid", "type": "sub_workflow", "workflow": "kid"}]}
    (tmp_path / "w.json").write_text(json.dumps({"workflow": "w", **parts}))
    async with open_engine(f"sqlite:///{tmp_path}/s.db", settings=Settings(root=tmp_path)) as engine:
        with pytest.raises(InputError, match="nowhere") as caught:
            await engine.start(engine.load(tmp_path / "w.json"), {})
        assert [problem.code for problem in caught.value.problems] == ["tool"]
        assert await engine.runs() == []


async def test_a_recipe_that_runs_after_a_failure_is_pinned_with_the_run(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/sorry.yaml").write_text('recipe: sorry\nversion: "1"\nprompt: hello\n')
    data = {
        "workflow": "w",
        "steps": [{"id": "s", "type": "sub_workflow", "workflow": "{{workflow_input.x}}"}],
        "on_failure": {"steps": [{"id": "r", "type": "recipe", "recipe": "sorry", "condition": "error.kind == 'x'"}, {"id": "q", "type": "recipe", "recipe": "sorry", "condition": "error.kind == 'not_found'"}]},
    }  # fmt: skip
    (tmp_path / "w.json").write_text(json.dumps(data))
    async with ProviderServer([Reply("so sorry")]) as server:
        model = ModelSettings("m", "openai", server.base_url, Secret(server.key, ""), "some-model")
        found = Settings(root=tmp_path, models={"m": model}, default_model="m")
        async with open_engine(f"sqlite:///{tmp_path}/s.db", settings=found) as engine:
            handle = await engine.start(engine.load(tmp_path / "w.json"), {"x": "nowhere"})
            (tmp_path / "recipes/sorry.yaml").unlink()
            run = await handle.wait()
            assert run.error is not None
            assert (run.status, run.error["kind"]) == ("failed", "not_found")
            assert len(server.requests) == 1
            assert (await statuses(engine, run.id))["/on_failure/q"] == "completed"
