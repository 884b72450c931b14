"""Cases of the limit on model calls: Redis that fails in every way, and calls that wait without holding a slot."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.engine_world import workflow
from tests.redis_proxy import RedisProxy
from tests.redis_server import RedisServer, redis_server

from stepwell.adapters.limits import LocalLimiter, RedisLimiter, Terms
from stepwell.engine.engine import ACCOUNT, Engine
from stepwell.engine.events import Listeners
from stepwell.engine.model_performer import ModelPerformer
from stepwell.engine.parts import Parts
from stepwell.engine.world import World
from stepwell.errors import StepFailed
from stepwell.interpreter.effect import ModelCall
from stepwell.journal.explain import explain
from stepwell.journal.view import RunTree
from stepwell.ports import Limiter, ModelReply, ModelRequest
from stepwell.stores.knowledge_memory import MemoryKnowledge
from stepwell.stores.memory import MemoryRunStore
from stepwell.testing.limiter_contract import LIMIT, SOON, Crowd
from stepwell.testing.scripted import ScriptedTools

TERMS = Terms(LIMIT, lease=30.0, cut=0.5, probe=0.1)


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@asynccontextmanager
async def limiter_at(url: str, terms: Terms = TERMS) -> AsyncIterator[RedisLimiter]:
    limiter = RedisLimiter(url, terms)
    try:
        yield limiter
    finally:
        await limiter.aclose()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(SOON):
        while not holds():
            await asyncio.sleep(0.02)


def counted(redis: RedisServer, account: str = "a") -> tuple[bytes, bytes]:
    """What Redis itself has: leases and who waits."""
    key = f"stepwell:limit:{{{account}}}"
    return redis.ask("ZCARD", f"{key}:leases").strip(), redis.ask("ZCARD", f"{key}:queue").strip()


Outage = Callable[[RedisServer, RedisProxy], None]


def killed(redis: RedisServer, proxy: RedisProxy) -> None:
    redis.kill()


def started(redis: RedisServer, proxy: RedisProxy) -> None:
    redis.start()


def stopped(redis: RedisServer, proxy: RedisProxy) -> None:
    redis.stop()


def going_on(redis: RedisServer, proxy: RedisProxy) -> None:
    redis.go_on()


def muted(redis: RedisServer, proxy: RedisProxy) -> None:
    proxy.mute = True


def late(redis: RedisServer, proxy: RedisProxy) -> None:
    proxy.delay = 3.0


def saying(line: bytes) -> Outage:
    def outage(redis: RedisServer, proxy: RedisProxy) -> None:
        proxy.says = line

    return outage


def passing(redis: RedisServer, proxy: RedisProxy) -> None:
    proxy.mute, proxy.delay, proxy.says = False, 0.0, b""


def asking(*words: str) -> Outage:
    def outage(redis: RedisServer, proxy: RedisProxy) -> None:
        assert redis.ask(*words).startswith(b"+OK")

    return outage


OUTAGES = {
    "killed, then started again without its data": (killed, started, "Connection"),
    "stopped": (stopped, going_on, "no answer within 500 ms"),
    "mute": (muted, passing, "no answer within 500 ms"),
    "late": (late, passing, "no answer within 500 ms"),
    "a replica": (asking("REPLICAOF", "127.0.0.1", "1"), asking("REPLICAOF", "NO", "ONE"), "read only"),
    "out of memory": (
        asking("CONFIG", "SET", "maxmemory", "1"),
        asking("CONFIG", "SET", "maxmemory", "0"),
        "maxmemory",
    ),
    "loading": (saying(b"-LOADING Redis is loading the dataset in memory\r\n"), passing, "loading"),
    "no authority": (saying(b"-NOAUTH Authentication required.\r\n"), passing, "Authentication"),
    "no Redis at all": (saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), passing, ""),
}


@pytest.mark.parametrize("name", OUTAGES)
async def test_c119_an_outage_of_redis_stops_no_call_and_the_count_is_right_afterwards(redis, caplog, name):
    happens, mends, said = OUTAGES[name]
    caplog.set_level(logging.INFO, "stepwell.limits")
    gate = asyncio.Event()
    async with RedisProxy(redis.port) as proxy, limiter_at(proxy.url) as limiter:
        crowd = Crowd(limiter)
        before = [asyncio.create_task(crowd.call(number, gate.wait)) for number in range(2)]
        await crowd.until(2, 0)
        happens(redis, proxy)
        async with asyncio.timeout(SOON):
            await asyncio.gather(*[crowd.call(number, 0.01) for number in range(10, 20)])
        assert (crowd.most, crowd.now) == (LIMIT, 2)
        assert said in limiter.degraded or (name == "killed, then started again without its data" and limiter.degraded)
        assert limiter.admitted_degraded >= 9  # the first may have had its slot before
        during = [asyncio.create_task(crowd.call(number, gate.wait)) for number in range(20, 24)]
        await until(lambda: crowd.now == LIMIT)
        standing = await limiter.standing("a")
        assert (standing.scope, standing.holding, standing.waiting) == ("process", LIMIT, 3)
        assert standing.degraded == limiter.degraded
        mends(redis, proxy)
        await until(lambda: not limiter.degraded)
        await crowd.until(LIMIT, 3)
        gate.set()
        async with asyncio.timeout(SOON):
            await asyncio.gather(*before, *during)
        assert crowd.most == LIMIT
        await crowd.until(0, 0)
        assert counted(redis) == (b":0", b":0")
    told = [record.message for record in caplog.records if record.name == "stepwell.limits"]
    assert len(told) == 2, told  # however long it took
    assert "cannot be asked" in told[0]
    assert "answers again" in told[1]


async def test_c119_redis_that_was_never_there_stops_no_call(unused_port):
    async with limiter_at(f"redis://127.0.0.1:{unused_port}") as limiter:
        crowd = Crowd(limiter)
        async with asyncio.timeout(SOON):
            await asyncio.gather(*[crowd.call(number) for number in range(20)])
        assert crowd.most == LIMIT
        assert limiter.admitted_degraded == 20


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def test_c119_a_name_that_nobody_knows_stops_no_call():
    async with limiter_at("redis://no-such-host.invalid") as limiter:
        async with asyncio.timeout(SOON), limiter.slot("a"):
            pass
        assert limiter.degraded


async def test_c119_a_lookup_that_hangs_stops_neither_the_call_nor_the_loop_nor_the_end(monkeypatch):
    release, lookups = threading.Event(), []
    usual = socket.getaddrinfo

    def hanging(host, *rest, **more):
        if host != "slow.example":
            return usual(host, *rest, **more)
        lookups.append(threading.current_thread())
        release.wait(60)
        raise socket.gaierror("no answer")

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    beats, longest = 0, 0.0

    async def heart() -> None:
        nonlocal beats, longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            beats, longest = beats + 1, max(longest, time.monotonic() - before)

    task = asyncio.create_task(heart())
    async with limiter_at("redis://slow.example") as limiter:
        async with asyncio.timeout(SOON), limiter.slot("a"):
            pass
        assert "no answer within 500 ms" in limiter.degraded
        await asyncio.sleep(1.0)  # probes go on
    task.cancel()
    assert beats > 10
    assert longest < 10
    (lookup,) = lookups  # one, however many probes
    assert lookup.daemon  # and no process waits for it
    release.set()


@pytest.mark.parametrize(("rule", "most"), [("open", 8), ("local", LIMIT)])
async def test_c119_the_rule_for_an_outage_says_how_many_go_on(unused_port, rule, most):
    terms = Terms(LIMIT, on_error=rule, cut=0.5)
    async with limiter_at(f"redis://127.0.0.1:{unused_port}", terms) as limiter:
        crowd, gate = Crowd(limiter), asyncio.Event()
        calls = [asyncio.create_task(crowd.call(number, gate.wait)) for number in range(8)]
        await until(lambda: crowd.now == most)
        gate.set()
        await asyncio.gather(*calls)
        assert crowd.most == most


async def test_c119_a_closed_limit_refuses_calls_that_were_not_sent(redis):
    async with limiter_at(redis.url, Terms(LIMIT, on_error="closed", cut=0.5, probe=0.1)) as limiter:
        crowd = Crowd(limiter)
        await crowd.call(1)
        redis.kill()
        ends = await asyncio.gather(*[crowd.call(number) for number in range(5)], return_exceptions=True)
        assert all(isinstance(end, StepFailed) for end in ends)
        assert {(end.kind, end.retryable, end.detail["sent"]) for end in ends} == {("connection_error", True, False)}
        assert len({id(end) for end in ends}) == 5
        assert f"Redis at 127.0.0.1:{redis.port}" in ends[0].message
        redis.start()
        await until(lambda: not limiter.degraded)
        await crowd.call(2)
        await until(lambda: counted(redis) == (b":0", b":0"))


async def test_c119_a_slot_given_back_during_an_outage_fails_nothing_and_is_free_afterwards(redis):
    """Redis dies, and hangs, between acquire and release."""
    async with limiter_at(redis.url) as limiter:
        for breaks, mends in ((redis.kill, redis.start), (redis.stop, redis.go_on)):
            async with limiter.slot("a"):
                breaks()
            mends()
            async with asyncio.timeout(SOON), limiter.slot("a"):
                pass
            await until(lambda: not limiter.degraded and counted(redis) == (b":0", b":0"))


async def test_c119_what_redis_does_late_changes_nothing_any_more(redis):
    """A telling that was cut off is carried out seconds later, after the call that it speaks of is over."""
    async with RedisProxy(redis.port) as proxy, limiter_at(proxy.url) as limiter:
        async with limiter.slot("a"):
            pass
        redis.stop()
        await asyncio.gather(*[Crowd(limiter).call(number) for number in range(5)])  # their telling lies with Redis now
        await until(lambda: limiter.degraded)
        redis.go_on()
        await until(lambda: not limiter.degraded)
        await Crowd(limiter).until(0, 0)
        await until(lambda: counted(redis) == (b":0", b":0"))


async def test_c119_redis_far_away_is_reached_though_to_connect_takes_longer_than_a_call_may(redis):
    async with RedisProxy(redis.port) as proxy:
        proxy.delay = 0.09  # for each answer: to connect takes several, a call one
        limiter = RedisLimiter(proxy.url, Terms(2, cut=0.2))
        async with limiter.slot(ACCOUNT):
            async with asyncio.timeout(30):
                while (await limiter.standing(ACCOUNT)).scope != "shared" or limiter.degraded:
                    await asyncio.sleep(0.1)
        await limiter.aclose()


async def test_a_password_is_in_no_message(caplog):
    with redis_server("--requirepass", "right-word") as server:
        url = server.url.replace("redis://", "redis://:wrong-word@")
        async with limiter_at(url) as limiter:
            async with limiter.slot("a"):
                pass
            assert limiter.degraded
            assert "wrong-word" not in f"{limiter.degraded} {caplog.text} {await limiter.standing('a')}"
        async with limiter_at(server.url.replace("redis://", "redis://:right-word@")) as limiter:
            async with limiter.slot("a"):
                standing = await limiter.standing("a")
            assert (standing.scope, standing.holding, limiter.degraded) == ("shared", 1, "")


class Echo:
    """A model that answers after a while, or fails with a limit of the provider's own for prompts that say so."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.asked: list[str] = []
        self.open = asyncio.Event()
        self.open.set()

    async def complete(self, request: ModelRequest) -> ModelReply:
        self.asked.append(request.prompt)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.open.wait()
            if request.prompt == "busy":
                raise StepFailed("rate_limit", "too many requests", True, 60.0)
            if request.prompt == "wrong":
                raise StepFailed("invalid_request", "no")
        finally:
            self.now -= 1
        return ModelReply(request.prompt, "echo")


@asynccontextmanager
async def engine_of(model: Echo, limiter: Limiter) -> AsyncIterator[Engine]:
    store, tools = MemoryRunStore(), ScriptedTools()
    performer = ModelPerformer({"echo": model}, "echo", limiter=limiter)
    world = World(store, {ModelCall: performer}, tools, Listeners())
    parts = Parts(store, world, tools, MemoryKnowledge(), models=performer, limiter=limiter)
    engine = Engine(parts, SimpleNamespace(root=Path("/")), serves=False)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


ASKS = {"id": "ask", "type": "llm_call", "prompt": "{{ workflow_input.say }}"}


async def test_c120_runs_that_wait_back_off_or_are_suspended_hold_no_slot():
    gated = workflow([{"id": "gate", "type": "approval", "title": "?"}, ASKS | {"depends_on": ["gate"]}])
    tried = workflow([ASKS | {"retry": {"max_attempts": 3}}])
    suspended = workflow([ASKS | {"retry": {"max_attempts": 1}, "on_error": "suspend"}])
    limiter, model = LocalLimiter(LIMIT), Echo()
    async with engine_of(model, limiter) as engine:
        gates = [await engine.start(gated, {"say": "later"}) for _ in range(30)]
        busy = [await engine.start(tried, {"say": "busy"}) for _ in range(10)]
        stuck = [await engine.start(suspended, {"say": "wrong"}) for _ in range(10)]
        assert {(await run.wait()).status for run in gates} == {"pending_approval"}
        assert {(await run.wait()).status for run in stuck} == {"suspended"}
        await until(lambda: model.asked.count("busy") == 10 and not model.now)
        await Crowd(limiter).until(0, 0, ACCOUNT)
        model.open.clear()
        for _ in range(LIMIT):  # so many go at once, beside fifty that wait
            await engine.start(tried, {"say": "now"})
        await until(lambda: model.asked.count("now") == LIMIT)
        for wait in (await engine.waits())[:2]:
            await engine.decide(wait.id, "approved")
            await engine.resume(wait.run_id)
        await Crowd(limiter).until(LIMIT, 2, ACCOUNT)
        assert "later" not in model.asked
        model.open.set()
        await Crowd(limiter).until(0, 0, ACCOUNT)
        assert model.asked.count("later") == 2
        assert model.most <= LIMIT
        for run in busy:
            await engine.cancel(run.run_id)


async def test_c120_a_cancelled_run_leaves_the_queue_and_gives_its_slot_back():
    limiter, model = LocalLimiter(1), Echo()
    model.open.clear()
    async with engine_of(model, limiter) as engine:
        runs = [await engine.start(workflow([ASKS]), {"say": f"{number}"}) for number in range(3)]
        await Crowd(limiter).until(1, 2, ACCOUNT)
        await engine.cancel(runs[1].run_id)
        await Crowd(limiter).until(1, 1, ACCOUNT)
        await engine.cancel(runs[0].run_id)
        await Crowd(limiter).until(1, 0, ACCOUNT)
        model.open.set()
        assert [(await run.wait()).status for run in runs] == ["cancelled", "cancelled", "completed"]
        assert model.asked == ["0", "2"]
        await Crowd(limiter).until(0, 0, ACCOUNT)


async def test_waiting_for_a_slot_is_not_the_steps_time_and_is_told():
    limiter, model = LocalLimiter(1), Echo()
    model.open.clear()
    async with engine_of(model, limiter) as engine:
        first = await engine.start(workflow([ASKS]), {"say": "first"})
        await Crowd(limiter).until(1, 0, ACCOUNT)
        second = await engine.start(workflow([ASKS | {"timeout": "0.5s", "retry": {"max_attempts": 1}}]), {"say": "2"})
        await Crowd(limiter).until(1, 1, ACCOUNT)
        await asyncio.sleep(1.5)
        model.open.set()
        assert [(await run.wait()).error for run in (first, second)] == [None, None]
        (step,) = (await engine.tree(second.run_id)).steps
        assert step.meta["queued_ms"] >= 1000


async def test_a_run_whose_time_is_used_up_in_the_queue_leaves_it():
    limiter, model = LocalLimiter(1), Echo()
    model.open.clear()
    async with engine_of(model, limiter) as engine:
        first = await engine.start(workflow([ASKS]), {"say": "first"})
        await Crowd(limiter).until(1, 0, ACCOUNT)
        second = await engine.start(workflow([ASKS], timeout="0.5s"), {"say": "second"})
        assert (await second.wait()).status == "timed_out"
        await Crowd(limiter).until(1, 0, ACCOUNT)
        model.open.set()
        assert (await first.wait()).status == "completed"
        assert model.asked == ["first"]


async def test_c119_runs_go_on_without_redis(redis):
    redis.stop()
    model = Echo()
    async with limiter_at(redis.url) as limiter, engine_of(model, limiter) as engine:
        runs = [await engine.start(workflow([ASKS | {"timeout": "5s"}]), {"say": f"{n}"}) for n in range(12)]
        async with asyncio.timeout(SOON):
            assert {(await run.wait()).status for run in runs} == {"completed"}
        assert model.most <= LIMIT
        assert limiter.admitted_degraded == 12
        assert (await engine.limiter.standing(ACCOUNT)).admitted_degraded == 12
        said = [problem for problem in await engine.doctor() if problem.code == "limits"]
        assert [problem.severity for problem in said] == ["warning"]
        assert "cannot be asked: TimeoutError: no answer within 500 ms" in said[0].message
        redis.go_on()
        await until(lambda: not limiter.degraded)
        (said,) = [problem for problem in await engine.doctor() if problem.code == "limits"]
        assert (
            str(said)
            == "note[limits] at most 3 model calls of an account in flight over all processes; 0 are now, 0 wait"
        )


async def test_explain_says_when_a_step_waited_for_a_slot():
    limiter, model = LocalLimiter(1), Echo()
    model.open.clear()

    def why(tree: RunTree) -> str:
        return explain(tree, now=time.time()).steps[-1].why

    async with engine_of(model, limiter) as engine:
        holding = await engine.start(workflow([ASKS]), {"say": "first"})
        await Crowd(limiter).until(1, 0, ACCOUNT)
        waiting = await engine.start(workflow([ASKS]), {"say": "second"})
        said = "it waited for a slot: the account had as many model calls in flight as it may (model_calls)."
        async with asyncio.timeout(SOON):
            while not why(await engine.tree(waiting.run_id)).endswith(said):
                await asyncio.sleep(0.1)
            while not why(await engine.tree(holding.run_id)).startswith("It is running since "):
                await asyncio.sleep(0.1)
        assert "slot" not in why(await engine.tree(holding.run_id))
        model.open.set()
        assert (await waiting.wait()).status == "completed"
        (step,) = (await engine.tree(waiting.run_id)).steps
        assert "waited_for" not in step.meta
        assert step.attempt_log[0]["usage"]["queued_ms"] > 100
