"""Whatever is done to a run store on SQLite, it answers as the store in memory does."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stepwell.approvals.opening import opened
from stepwell.errors import StepwellError
from stepwell.journal.entry import Entry
from stepwell.journal.lease import LeaseLost
from stepwell.ports import (
    FINAL,
    PARKED,
    AuditRecord,
    Ballot,
    Batch,
    Lease,
    Message,
    NewRun,
    Outgoing,
    Person,
    SentEvent,
    Verdict,
    Wait,
)
from stepwell.stores.memory import MemoryRunStore
from stepwell.stores.sqlite import Database, SqliteRunStore
from stepwell.testing.store_builders import ManualClock

RUNS = st.sampled_from([f"r{number}" for number in range(6)])
LANES = st.sampled_from(["", "", "one", "one", "two"])
TOPICS = st.sampled_from(["paid", "paid", "sent"])
ACCOUNTS = st.sampled_from(["acme", "acme", "acme", "other"])
WORKERS = st.sampled_from(["w1", "w2"])
SEGMENTS = st.sampled_from(["a", "a", "a-b", "a0", "a#2", "a!1", "é"])
PATHS = st.lists(SEGMENTS, min_size=1, max_size=3).map(lambda segments: "/" + "/".join(segments))
BODIES = st.sampled_from([b"{}", b'{"value":123456789012345678901234567890}', '{"value":"\\u0000漢\ufeff"}'.encode()])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('a\0漢é\ufeff"'),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab\0"), inner, max_size=2),
    max_leaves=4,
)
ENTRIES = st.builds(
    Entry,
    PATHS,
    st.sampled_from(["started", "succeeded", "failed", "settled", "settled"]),
    BODIES,
    st.sampled_from(["", "d1"]),
    st.integers(0, 1),
    blobs=st.sampled_from([(), (("big", b'"one"'),), (("big", b'"two"'), ("other", b"[]"))]),
)
AGES = st.sampled_from([0, 0, 0, 0, 1])
STEPS = st.sampled_from(["/a", "/a/b", "/c"])
WAITS = st.builds(
    lambda number, path, kind, request, delay, topic: (f"x{number}", path, kind, request, delay, topic),
    st.integers(0, 5),
    STEPS,
    st.sampled_from(["approval", "timer", "event"]),
    JSON,
    st.sampled_from([0, 0, 5, 50]),
    TOPICS,
)
TEAM = [Person(f"p{number}", roles=("team",)) for number in range(3)] + [Person("head", roles=("head",))]
RULES = st.fixed_dictionaries(
    {
        "approvers": st.just([{"kind": "role", "name": "team"}]),
        "require": st.sampled_from(
            [{"mode": "any"}, {"mode": "all"}, {"mode": "sequence"}, {"mode": "quorum", "count": 2}]
        ),
        "remind_every": st.sampled_from([0.0, 3.0, 3600.0]),
        "escalate": st.sampled_from([[], [{"after": 4.0, "to": [{"kind": "role", "name": "head"}]}]]),
    }
)
OUTGOING = st.builds(Outgoing, st.sampled_from(["k1", "k2"]), st.just("app"), JSON, st.text("a\0", max_size=2), JSON)
VERDICTS = st.builds(
    Verdict,
    st.sampled_from(["queued", *PARKED, *PARKED, *FINAL[:2]]),
    JSON,
    st.none() | st.just({"kind": "timeout", "message": "late", "retryable": False}),
    st.sampled_from([0.0, 0.0, 1_800_000_020.0]),
    active=st.just(2.5),
    usage=st.sampled_from([{}, {"tokens": 2**70}]),
)


class StoresAgree(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock, self.uptime = ManualClock(1_800_000_000.0), ManualClock(1000.0)
        self.model = MemoryRunStore(clock=self.clock, uptime=self.uptime)
        self.path = Path(self.folder.name) / "runs.db"
        self.store = self.fresh()
        for number in range(2):
            self.both(
                "create", NewRun(f"r{number}", "acme", "wf", "1", "d1", {}, lane="one" if number else "", lane_limit=1)
            )
        self.both("claim", "w1", 15.0, limit=2)
        for run_id in ("r0", "r1"):
            wait = Wait(f"{run_id}-x0", "/a", "event", {}, topic="paid")
            self.both("append", self.lease(run_id), Batch([], [wait]))
            self.both("send_event", "acme", SentEvent(f"{run_id}-e", "paid", run_id))

    def fresh(self) -> SqliteRunStore:
        database = Database.open(self.path, durability="normal")
        return SqliteRunStore(database, clock=self.clock, uptime=self.uptime)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run_until_complete(self.store.close())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.folder.cleanup()

    def both(self, method: str, *arguments: Any, **named: Any) -> Any:
        """The same call to both; what they answer, or how they refuse, is the same."""
        answers = [
            self.loop.run_until_complete(answer(store, method, *arguments, **named))
            for store in (self.model, self.store)
        ]
        assert answers[0] == answers[1], (method, answers)
        return answers[0][1]

    @rule(
        run_id=RUNS,
        account=ACCOUNTS,
        given=JSON,
        key=st.sampled_from(["", "", "k"]),
        definition=st.sampled_from(["d1", "d2"]),
        lane=LANES,
        on_limit=st.sampled_from(["queue", "queue", "reject", "cancel_oldest"]),
        limit=st.sampled_from([1, 1, 2]),
    )
    def create(
        self, run_id: str, account: str, given: Any, key: str, definition: str, lane: str, on_limit: Any, limit: int
    ) -> None:
        new = NewRun(run_id, account, "wf", "1", definition, given, "eva", {"p": given}, key)
        self.both("create", replace(new, lane=lane, lane_limit=limit, on_limit=on_limit))

    def lease(self, run_id: str, age: int = 0) -> Lease:
        """The run's lease as of now, or one that was current `age` epochs ago."""
        record = self.model._records.get(run_id)
        if record is None:
            return Lease(run_id, "acme", 99, 1, "w1")
        return replace(record.lease(record.run.owner), epoch=record.run.epoch - age)

    def orders(self, run_id: str) -> list[int]:
        record = self.model._records.get(run_id)
        return [message.order for message in record.messages] if record else []

    @rule(worker=WORKERS, limit=st.integers(0, 3))
    def claim(self, worker: str, limit: int) -> None:
        self.both("claim", worker, 15.0, limit=limit)

    @rule(worker=WORKERS, run_id=RUNS, due_only=st.booleans())
    def claim_run(self, worker: str, run_id: str, due_only: bool) -> None:
        self.both("claim", worker, 15.0, run_id=run_id, due_only=due_only)

    @rule(
        run_id=RUNS,
        age=AGES,
        entries=st.lists(ENTRIES, max_size=6),
        waits=st.lists(WAITS, max_size=2),
        outgoing=st.lists(OUTGOING, max_size=1),
        consume=st.booleans(),
    )
    def append(
        self, run_id: str, age: int, entries: list[Entry], waits: list[Any], outgoing: list[Outgoing], consume: bool
    ) -> None:
        waiting = [
            Wait(
                f"{run_id}-{name}",
                path,
                kind,
                request,
                "shown",
                deadline=self.clock.now + delay if delay else 0.0,
                topic=topic if kind == "event" else "",
            )
            for name, path, kind, request, delay, topic in waits
        ]
        if len({wait.id for wait in waiting}) == len({wait.path for wait in waiting}) == len(waiting):
            consumed = self.orders(run_id)[:1] if consume else []
            self.both("append", self.lease(run_id, age), Batch(entries, waiting, consumed, outgoing))

    @rule(run_id=RUNS, age=AGES, entries=st.lists(ENTRIES, max_size=1), verdict=VERDICTS, seen=st.booleans())
    def release(self, run_id: str, age: int, entries: list[Entry], verdict: Verdict, seen: bool) -> None:
        order = max(self.orders(run_id), default=0) if seen else 0
        record = self.model._records.get(run_id)
        if record is not None and not record.owned:
            age = 1  # nobody was ever given the lease that is current between two owners
        self.both("release", self.lease(run_id, age), Batch(entries), replace(verdict, seen=order))

    @rule(run_ids=st.lists(RUNS, max_size=3, unique=True), age=AGES)
    def renew(self, run_ids: list[str], age: int) -> None:
        self.both("renew", [self.lease(run_id, age) for run_id in run_ids], 15.0)

    @rule(run_id=RUNS, age=AGES, paths=st.lists(STEPS, max_size=3, unique=True))
    def withdraw(self, run_id: str, age: int, paths: list[str]) -> None:
        self.both("withdraw", self.lease(run_id, age), paths, "a sibling failed")

    @rule(run_id=RUNS, account=ACCOUNTS, kind=st.sampled_from(["cancel", "event"]), body=JSON)
    def post(self, run_id: str, account: str, kind: Any, body: Any) -> None:
        self.both("post", account, Message(run_id, kind, "/a", body))

    @rule(
        run_id=RUNS,
        number=st.integers(0, 5),
        decision=JSON,
        digest=st.sampled_from(["", "shown", "other"]),
        account=ACCOUNTS,
    )
    def decide(self, run_id: str, number: int, decision: Any, digest: str, account: str) -> None:
        self.both("decide", account, f"{run_id}-x{number}", Ballot(decision, digest=digest))

    @rule(run_id=RUNS, number=st.integers(0, 5), path=STEPS, rules=RULES, delay=st.sampled_from([0, 6]))
    def ask(self, run_id: str, number: int, path: str, rules: Any, delay: int) -> None:
        now = self.clock.now
        wait = Wait(f"{run_id}-x{number}", path, "approval", {"title": "?"}, "shown", now, now + delay if delay else 0)
        ready, told = opened(replace(wait, rules=rules, run_id=run_id), TEAM, "")
        self.both("append", self.lease(run_id), Batch([], [ready], outgoing=told))

    @rule(
        run_id=RUNS,
        number=st.integers(0, 5),
        person=st.sampled_from(TEAM),
        word=st.sampled_from(["approved", "approved", "rejected", "changes_requested"]),
        noted=st.booleans(),
    )
    def vote(self, run_id: str, number: int, person: Person, word: str, noted: bool) -> None:
        ballot = Ballot({"decision": word, "by": person.name}, person, "shown")
        notes = [AuditRecord(person.name, "approval.decide", f"{run_id}-x{number}")] if noted else []
        self.both("decide", "acme", f"{run_id}-x{number}", ballot, notes=notes)

    @rule(
        account=ACCOUNTS,
        number=st.integers(0, 6),
        name=TOPICS,
        data=JSON,
        at=st.sampled_from([0.0, 0.0, 1_799_999_000.0]),
    )
    def send_event(self, account: str, number: int, name: str, data: Any, at: float) -> None:
        self.both("send_event", account, SentEvent(f"e{number}", name, data, at))

    @rule(
        run_id=RUNS,
        age=AGES,
        entry=ENTRIES,
        paths=st.lists(STEPS, max_size=2, unique=True),
        used=st.lists(st.sampled_from([0, 0, 1, 1, 2, 3]), max_size=2),
        consume=st.booleans(),
    )
    def satisfy(self, run_id: str, age: int, entry: Entry, paths: list[str], used: list[int], consume: bool) -> None:
        consumed = self.orders(run_id) if consume else []
        newest = [*reversed(self.model._events._events), 99, 98, 97, 96]
        orders = [newest[back] for back in used]
        self.both("append", self.lease(run_id, age), Batch([entry], consume=consumed, satisfied=paths, used=orders))

    @rule(run_id=RUNS, age=AGES, name=TOPICS, since=st.sampled_from([0.0, 0.0, 1_800_000_000.0]))
    def events(self, run_id: str, age: int, name: str, since: float) -> None:
        self.both("events", self.lease(run_id, age), name, since)

    @rule(hours=st.sampled_from([1, 12, 24]))
    def hours_pass(self, hours: int) -> None:
        self.clock.now += hours * 3600.0

    @rule(seconds=st.sampled_from([1.0, 5.0, 20.0, -3.0]))
    def wall_clock_moves(self, seconds: float) -> None:
        self.clock.now += seconds
        self.both("claim", "sweeper", 15.0, limit=0)

    @rule(seconds=st.sampled_from([5.0, 16.0]))
    def time_passes(self, seconds: float) -> None:
        self.uptime.now += seconds

    @invariant()
    def they_say_the_same(self) -> None:
        if not hasattr(self, "store"):
            return
        for account in ("acme", "other"):
            runs = self.both("runs", account)
            self.both("waits", account, pending_only=False)
            self.both("outgoing", account)
            for run in runs:
                self.both("history", account, run.id)
                self.both("load", self.lease(run.id))
                self.both("inbox", self.lease(run.id), 0)
            for digest in ("big", "other"):
                self.both("blob", account, digest)
        self.both("runs", "acme", statuses=["running", "waiting", "completed"], limit=2)
        self.both("next_due")
        trails = [self.loop.run_until_complete(store.people.audit("acme")) for store in (self.model, self.store)]
        assert trails[0] == trails[1]
        for worker in ("w1", "w2"):
            self.both("arrived", worker)
        for record in self.model._records.values():
            same = [other for other in self.model._records.values() if other.run.lane == record.run.lane]
            under_way = [
                o for o in same if o.run.epoch and o.run.status not in FINAL and o.run.account == record.run.account
                and not any(message.kind == "cancel" for message in o.messages)  # those are claimed to be ended
            ]  # fmt: skip
            assert not record.run.lane or len(under_way) <= 2


async def answer(store: Any, method: str, *arguments: Any, **named: Any) -> tuple[str, Any]:
    try:
        result = await getattr(store, method)(*arguments, **named)
    except (StepwellError, LeaseLost) as refused:
        return type(refused).__name__, getattr(refused, "detail", ())
    return "answered", result


StoresAgree.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestStoresAgree = StoresAgree.TestCase
