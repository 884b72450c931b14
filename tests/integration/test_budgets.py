"""Budgets in whole runs: models behind HTTP, a database file, processes that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from stepwell.adapters.models import bounds
from stepwell.adapters.models.price import Price
from stepwell.engine.budgets import Scope
from stepwell.engine.engine import open_engine
from stepwell.engine.incidents import Action
from stepwell.engine.model_performer import ModelPerformer
from stepwell.engine.settings import Settings
from stepwell.errors import Forbidden, InputError
from stepwell.ports import ModelRequest, Person, ToolRequest, UsageFilter
from stepwell.testing.provider_server import ProviderServer, Reply

LIMIT = 20_000


def ask(name: str, **more):
    return {"id": name, "type": "llm_call", "prompt": f"{name}?", "max_tokens": 1_000, **more}


class Project:
    """A folder with a workflow, a provider that answers it, and engines on its database."""

    def __init__(self, folder: Path, server: ProviderServer) -> None:
        self.folder, self.server = folder, server
        self.settings = ""

    def write(self, steps, **parts) -> Path:
        key = f'provider = "openai"\nbase_url = "{self.server.base_url}"\nmodel = "gpt"\napi_key = "env:KEY"'
        (self.folder / "stepwell.toml").write_text(f"[models.care]\n{key}\n{self.settings}", "utf-8")
        (self.folder / "w.yaml").write_text(yaml.safe_dump({"workflow": "w", "steps": steps, **parts}), "utf-8")
        return self.folder / "w.yaml"

    @asynccontextmanager
    async def engine(self, *, price: Price | None = None, serves: bool = False):
        settings = Settings.load(self.folder, {"KEY": self.server.key})
        async with open_engine(settings=settings, serves=serves) as engine:
            if price is not None:
                performer = engine._parts.models
                assert isinstance(performer, ModelPerformer)
                for model in performer._models.by_name.values():
                    inner = getattr(model, "inner", model)
                    inner.price = price
            yield engine


@pytest.fixture
async def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with ProviderServer([Reply("fine", input_tokens=300, output_tokens=200)]) as server:
        yield Project(tmp_path, server)


async def test_a_run_stops_when_its_budget_is_spent_and_says_how_to_go_on(project):
    path = project.write([ask("a"), ask("b"), ask("c")], budget={"tokens": 2_000})
    async with project.engine() as engine:
        run = await (await engine.start(engine.load(path), {})).wait()
        assert (run.status, run.error["kind"]) == ("failed", "budget_exceeded")
        assert run.error["detail"]["hint"].startswith(f"stepwell budget raise {run.id} --tokens ")
        assert len(project.server.requests) == 2
        assert run.usage == {"input_tokens": 600, "output_tokens": 400, "requests": 2, "tokens_without_price": 1_000}
        assert [one.key for one in await engine.budgets.usage("step")] == ["/a", "/b"]
        assert [one.requests for one in await engine.budgets.usage("run", UsageFilter((run.id,)))] == [2]


async def test_a_suspended_run_goes_on_by_itself_when_its_budget_is_raised(project):
    path = project.write([ask("a"), ask("b"), ask("c")], budget={"tokens": 2_000, "on_exceed": "suspend"})
    async with project.engine(serves=True) as engine:
        handle = await engine.start(engine.load(path), {})
        run = await handle.wait()
        assert run.status == "suspended"
        (incident,) = await engine.incidents.open()
        needed = incident.request["error"]["detail"]["budget"]
        with pytest.raises(InputError, match="2000 already"):
            await engine.budgets.raise_to(Scope(run.id), tokens=1_999)
        with pytest.raises(InputError, match="does not limit dollars"):
            await engine.budgets.raise_to(Scope(run.id), nano_usd=10**9)
        little = await engine.budgets.raise_to(Scope(run.id), tokens=2_001)
        assert ([*little.continued], [wait.id for wait in little.short]) == ([], [incident.id])
        enough = needed["spent_tokens"] + needed["asked_tokens"]
        raised = await engine.budgets.raise_to(Scope(run.id), tokens=enough, by="ana")
        assert [wait.id for wait in raised.continued] == [incident.id]
        run = await handle.wait(until_final=True)
        assert run.status == "completed"
        assert len(project.server.requests) == 3
        again = await engine.budgets.raise_to(Scope(run.id), tokens=enough)
        assert again.continued == []
        trail = [one for one in await engine.people.trail(object=run.id) if one.action == "budget.raise"]
        assert trail[1].by == "ana"
        assert trail[1].detail["tokens"] == enough


async def test_who_may_not_raise_does_not(project):
    path = project.write([ask("a")], budget={"tokens": 10, "on_exceed": "suspend"})
    async with project.engine() as engine:
        run = await (await engine.start(engine.load(path), {})).wait()
        await engine.people.add([Person("bo", roles=("viewer",))])
        with pytest.raises(Forbidden):
            await engine.budgets.raise_to(Scope(run.id), tokens=10_000, by="bo")
        assert [one.action for one in await engine.people.trail(object=run.id, by="bo")] == ["budget.raise.refused"]
        assert (await engine.budgets.standings(Scope(run.id)))[0].limit.tokens == 10


async def test_forty_branches_stay_inside_the_budget_and_siblings_go_on_while_one_waits(project):
    steps = [
        {
            "id": "all",
            "type": "loop",
            "over": "{{workflow_input.items}}",
            "concurrency": 40,
            "steps": [ask("one", prompt="{{loop_item}}")],
        }
    ]
    project.server.script = lambda _: Reply("fine", input_tokens=150, output_tokens=350, delay=0.01)
    bound = bounds.input_tokens(_request("7")) + 1_000
    path = project.write(steps, budget={"tokens": LIMIT, "on_exceed": "suspend"})
    async with project.engine(serves=True) as engine:
        handle = await engine.start(engine.load(path), {"items": ["7"] * 40})
        run = await handle.wait()
        assert run.status == "suspended"
        (standing,) = await engine.budgets.standings(Scope(run.id))
        assert LIMIT - bound < standing.tokens <= LIMIT
        assert standing.open_tokens == 0
        waiting = len(await engine.incidents.open())
        assert waiting + len(project.server.requests) == 40
        raised = await engine.budgets.raise_to(Scope(run.id), tokens=500 * 40 + bound)
        assert len(raised.continued) == waiting
        assert (await handle.wait(until_final=True)).status == "completed"
        assert [one.requests for one in await engine.budgets.usage("run")] == [40]


async def test_a_raise_between_the_refusal_and_the_incident_is_not_lost(project):
    path = project.write([ask("a"), ask("b")], budget={"tokens": 1_500, "on_exceed": "suspend"})
    async with project.engine(serves=True) as engine:
        look, raised = engine.budgets.opened, []

        async def raise_and_look(wait):
            await engine._store.spending.raise_to("default", replace(limit, tokens=9_000))
            look(wait)

        # The raise comes when no incident can be seen yet, and the engine's look after it.
        engine.budgets.opened = lambda wait: raised.append(asyncio.create_task(raise_and_look(wait)))
        handle = await engine.start(engine.load(path), {})
        limit = (await engine.budgets.standings(Scope(handle.run_id)))[0].limit
        assert (await handle.wait(until_final=True)).status == "completed"
        assert raised


async def test_a_cheaper_model_goes_on_where_the_dear_one_does_not_fit(project):
    more = f'[models.small]\nprovider = "openai"\nbase_url = "{project.server.base_url}"\nmodel = "mini"\n'
    project.settings = f'{more}api_key = "env:KEY"\n[project]\ndefault_model = "care"'
    path = project.write([ask("a"), ask("b")], budget={"usd": 0.003, "on_exceed": {"model": "small"}})
    async with project.engine() as engine:
        models = engine._parts.models._models.by_name
        models["care"].inner.price, models["small"].inner.price = Price(2, 2), Price(0.1, 0.1)
        run = await (await engine.start(engine.load(path), {})).wait()
        assert run.status == "completed"
        assert [request.json["model"] for request in project.server.requests] == ["gpt", "mini"]
        steps = (await engine.tree(run.id)).steps
        assert run.usage["cost_usd"] == 0.00105
        assert [one.key for one in await engine.budgets.usage("model")] == ["gpt", "mini"]
        assert [(step.meta or {}).get("budget") for step in steps] == [None, {"instead_of": "gpt"}]


async def test_money_without_a_price_is_refused_before_the_run(project):
    path = project.write([ask("a", model="home-grown")], budget={"usd": 1, "on_exceed": {"model": "nowhere"}})
    async with project.engine() as engine:
        with pytest.raises(InputError) as caught:
            await engine.start(engine.load(path), {})
        said = str(caught.value)
        assert "the price of the model 'home-grown' is not known" in said
        assert "usd_per_million_input" in said
        assert "on_exceed" not in said or "nowhere" in said


async def test_the_budget_of_a_workflow_and_of_the_account_hold_for_all_runs(project):
    project.settings = '[budget.account]\ntokens = 2500\nperiod = "day"\n[budget.workflows.w]\ntokens = 2000\n'
    path = project.write([ask("a")], timeout="1m")
    async with project.engine(serves=True) as engine:
        loaded = engine.load(path)
        for status in ("completed", "completed", "failed"):
            run = await (await engine.start(loaded, {})).wait()
            assert run.status == status
        assert "the budget of the workflow w for " in run.error["message"]
        assert {one.limit.scope for one in await engine.budgets.standings(Scope(run.id))} == {"workflow", "account"}
        await engine.budgets.raise_to(Scope(workflow="w"), tokens=9_000)
        assert (await (await engine.start(loaded, {})).wait()).status == "completed"
        run = await (await engine.start(loaded, {})).wait()
        assert "the account's budget for " in run.error["message"]
        await engine.budgets.raise_to(Scope(), tokens=9_000)
        assert (await (await engine.start(loaded, {})).wait()).status == "completed"
        with pytest.raises(InputError, match="declare no budget of the workflow v"):
            await engine.budgets.raise_to(Scope(workflow="v"), tokens=9_000)


async def test_a_run_that_waits_for_the_next_day_goes_on_when_it_comes(project, monkeypatch):
    project.settings = '[budget.account]\ntokens = 1500\nperiod = "day"\non_exceed = "suspend"\n'
    path = project.write([ask("a"), ask("b")])
    async with project.engine(serves=True) as engine:
        spender = engine._parts.models._spender
        yesterday = spender.now() - 86_400
        monkeypatch.setattr(spender, "now", lambda: yesterday)
        monkeypatch.setattr("stepwell.engine.budget_words.ends_at", lambda _: yesterday + 86_407)
        handle = await engine.start(engine.load(path), {})
        run = await handle.wait()
        assert run.status == "suspended"
        (incident,) = await engine.incidents.open()
        assert incident.deadline > incident.opened
        monkeypatch.undo()
        run = await handle.wait(until_final=True)
        assert run.status == "completed"
        (settled,) = await engine.incidents.open(settled=True)
        assert settled.status == "expired"
        step = (await engine.tree(run.id)).steps[1]
        assert (step.status, step.attempts) == ("completed", 2)


async def test_a_sub_workflow_is_bounded_by_its_own_budget_and_by_those_around_it(project):
    inner = {"workflow": "inner", "steps": [ask("x"), ask("y")], "budget": {"tokens": 1_400, "on_exceed": "suspend"}}
    (project.folder / "inner.yaml").write_text(yaml.safe_dump(inner), "utf-8")
    call = {"id": "call", "type": "sub_workflow", "workflow": "inner"}
    path = project.write([call, ask("after")], budget={"tokens": 10_000})
    async with project.engine(serves=True) as engine:
        handle = await engine.start(engine.load(path), {})
        run = await handle.wait()
        assert run.status == "suspended"
        standings = await engine.budgets.standings(Scope(run.id))
        assert [(one.limit.below, one.limit.tokens, one.tokens) for one in standings] == [
            ("", 10_000, 500),
            ("/call", 1_400, 500),
        ]
        await engine.budgets.raise_to(Scope(run.id, "/call"), tokens=4_000)
        assert (await handle.wait(until_final=True)).status == "completed"
        assert [one.requests for one in await engine.budgets.usage("run")] == [3]


async def test_retries_and_repairs_count_and_a_suspended_step_keeps_what_it_spent(project):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    replies = [Reply(status=500), Reply("no"), Reply('{"n": 1}')]
    project.server.script = [replace(one, input_tokens=300, output_tokens=200) for one in replies]
    step = ask("a", output_schema=schema, retry={"max_attempts": 2, "initial_delay": 0.01})
    path = project.write([step], budget={"tokens": 50_000})
    async with project.engine() as engine:
        run = await (await engine.start(engine.load(path), {})).wait()
        assert run.status == "completed"
        used = await engine.budgets.usage("attempt")
        assert [(one.key, one.requests, one.lost) for one in used] == [("/a/@1", 1, 1), ("/a/@2", 2, 0)]


async def test_cancelling_in_flight_counts_the_most_and_leaves_nothing_open(project):
    project.server.script = [Reply(hang=True)]
    path = project.write([ask("a")], budget={"tokens": 5_000})
    async with project.engine() as engine:
        handle = await engine.start(engine.load(path), {})
        while not project.server.requests:
            await asyncio.sleep(0.02)
        assert (await engine.cancel(handle.run_id)).status == "cancelled"
        (standing,) = await engine.budgets.standings(Scope(handle.run_id))
        assert standing.open_tokens == 0
        assert standing.tokens > 1_000


async def test_an_agents_turns_are_paid_from_the_same_budget(project):
    (project.folder / "tools.py").write_text(
        "import stepwell\n\n\n@stepwell.tool\ndef find() -> str:\n    'Finds.'\n    return 'x'\n", "utf-8"
    )
    project.settings = '[project]\ntools = "tools.py"\n'
    calls = [Reply(calls=[ToolRequest(f"c{number}", "find", {})]) for number in range(2)]
    turns = [*calls, Reply("done")]
    project.server.script = [replace(one, input_tokens=300, output_tokens=200) for one in turns]
    path = project.write([ask("a", tools=["find"])], budget={"tokens": 3_000, "on_exceed": "suspend"})
    async with project.engine(serves=True) as engine:
        handle = await engine.start(engine.load(path), {})
        run = await handle.wait()
        assert run.status == "suspended"
        made = len(project.server.requests)
        assert 0 < made < 3
        await engine.budgets.raise_to(Scope(run.id), tokens=20_000)
        assert (await handle.wait(until_final=True)).status == "completed"
        assert len(project.server.requests) == 3, "no turn was made twice"
        assert [(one.key, one.requests) for one in await engine.budgets.usage("step")] == [("/a", 3)]


async def test_an_operator_may_settle_the_incident_otherwise(project):
    path = project.write([ask("a")], budget={"tokens": 10, "on_exceed": "suspend"}, output="{{step.a.text}}")
    async with project.engine(serves=True) as engine:
        handle = await engine.start(engine.load(path), {})
        await handle.wait()
        (incident,) = await engine.incidents.open()
        await engine.incidents.settle(incident.id, Action("provide", output={"text": "by hand"}))
        run = await handle.wait(until_final=True)
        assert (run.status, run.output) == ("completed", "by hand")
        assert not project.server.requests


WORKER = textwrap.dedent("""
    import asyncio, os, signal, sys
    from pathlib import Path
    from stepwell.engine.engine import open_engine
    from stepwell.engine.settings import Settings
    from stepwell.stores.sqlite.spending import SqliteSpending

    async def main(folder, where):
        settings = Settings.load(Path(folder), os.environ)
        settle = SqliteSpending.settle
        def settling(self, account, uid, spent):
            if where == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            done = asyncio.ensure_future(settle(self, account, uid, spent))
            done.add_done_callback(lambda _: os.kill(os.getpid(), signal.SIGKILL))
            return done
        SqliteSpending.settle = settling
        async with open_engine(settings=settings) as engine:
            handle = await engine.start(engine.load(Path(folder) / "w.yaml"), {})
            print(handle.run_id, flush=True)
            await handle.wait()
    asyncio.run(main(sys.argv[1], sys.argv[2]))
""")


@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_process_that_is_killed_around_settling_loses_nothing_and_counts_nothing_twice(project, where):
    path = project.write([ask("a"), ask("b")], budget={"tokens": LIMIT})
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KEY": project.server.key}
    command = [sys.executable, "-c", WORKER, str(project.folder), where]
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == -signal.SIGKILL
    run_id = out.decode().strip()
    bound = bounds.input_tokens(_request("a?")) + 1_000
    async with project.engine() as engine:
        engine.load(path)
        before = (await engine.budgets.standings(Scope(run_id)))[0]
        assert (before.tokens, before.open_tokens) == ((0, bound) if where == "before" else (500, 0))
        run = await (await engine.resume(run_id)).wait()
        assert run.status == "completed"
        (standing,) = await engine.budgets.standings(Scope(run_id))
        assert standing.open_tokens == 0
        first = bound if where == "before" else 500
        assert standing.tokens == first + 2 * 500, "the call that was in flight, its repetition, and the next"
        assert run.usage["input_tokens"] + run.usage["output_tokens"] == standing.tokens
        assert [one.requests for one in await engine.budgets.usage("run")] == [len(project.server.requests)] == [3]
        assert run.usage.get("lost_requests", 0) == (where == "before")


def _request(prompt):
    return ModelRequest("", prompt)
