"""Rows of the database as the values of the ports, and back."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import msgspec

from stepwell.journal.entry import Entry
from stepwell.ports import Lease, Message, Outgoing, Run, Wait

Json: TypeAlias = Any
Row: TypeAlias = tuple[Any, ...]

encode = msgspec.json.Encoder().encode
canonical = msgspec.json.Encoder(order="deterministic").encode
"""JSON text that is equal when the values are, whatever the order of their keys."""
_decode = msgspec.json.Decoder().decode

RUNS = """
SELECT run.uid, run.account, run.workflow, run.version, run.definition, content.input, run.status, content.output,
       content.error, run.requester, content.project, run.idempotency_key, run.created, run.started, run.ended,
       run.active, run.generation, run.wake_at, run.owner, run.epoch, content.usage, run.lane
FROM run CROSS JOIN run_content AS content ON content.run = run.id
"""
WAITS = """
SELECT wait.uid, wait.path, wait.kind, wait.request, wait.digest, wait.opened, wait.deadline, wait.on_expire,
       wait.status, wait.decision, wait.decided, wait.generation, run.uid, wait.account, run.workflow,
       wait.topic, wait.rules, wait.next_at,
       (SELECT group_concat(said, ',') FROM (
           SELECT CAST(vote.body AS TEXT) AS said FROM vote WHERE vote.wait = wait.id ORDER BY vote.id
       ))
FROM wait CROSS JOIN run ON run.id = wait.run
"""
MESSAGES = "SELECT inbox.kind, inbox.path, inbox.body, inbox.id, inbox.at FROM inbox"
OUTGOING = """
SELECT outgoing.key, outgoing.channel, outgoing.recipient, outgoing.subject, outgoing.body, outgoing.priority,
       outgoing.at, outgoing.status, run.uid, outgoing.path
FROM outgoing CROSS JOIN run ON run.id = outgoing.run
"""
ENTRIES = "SELECT path, kind, body, digest, generation, id, at FROM journal"


def decode(text: bytes | None) -> Json:
    """What `encode` wrote; None for no text."""
    return None if text is None else _decode(text)


def run_of(row: Row) -> Run:
    """A run of a row of `RUNS`."""
    uid, account, workflow, version, definition, given, status, output, error, requester, project, *rest = row
    key, created, started, ended, active, generation, wake_at, owner, epoch, usage, lane = rest
    return Run(
        uid,
        account,
        workflow,
        version,
        definition,
        decode(given),
        status,
        decode(output),
        decode(error),
        requester,
        decode(project),
        key,
        created,
        started,
        ended,
        active,
        generation,
        wake_at,
        owner,
        epoch,
        decode(usage) or {},
        lane,
    )


def wait_of(row: Row) -> Wait:
    """A wait of a row of `WAITS`."""
    uid, path, kind, request, digest, opened, deadline, on_expire, status, decision, *rest = row
    decided, generation, run_id, account, workflow, topic, rules, next_at, votes = rest
    return Wait(
        uid, path, kind, decode(request), digest, opened, deadline, on_expire, status, decode(decision), decided,
        generation, run_id, account, workflow, topic, decode(rules), next_at, tuple(_decode(f"[{votes or ''}]")),
    )  # fmt: skip


def message_of(run_id: str, row: Row) -> Message:
    """A message of a row of `MESSAGES`."""
    kind, path, body, order, at = row
    return Message(run_id, kind, path, decode(body), order, at)


def outgoing_of(row: Row) -> Outgoing:
    """A notification of a row of `OUTGOING`."""
    key, channel, recipient, subject, body, *rest = row
    return Outgoing(key, channel, decode(recipient), subject, decode(body), *rest)


def entry_of(row: Row) -> Entry:
    """An entry of a row of `ENTRIES`."""
    return Entry(*row)


def lease_of(row: Row, owner: str) -> Lease:
    """A lease of a row (uid, account, id, epoch)."""
    uid, account, key, epoch = row
    return Lease(uid, account, key, epoch, owner)


def entry_row(entry: Entry, lease: Lease, now: float) -> Row:
    """The columns (path, generation, kind, digest, at, body) of an entry (`now` if it has no time), and the fence."""
    at = entry.at or now
    return entry.path, entry.generation, entry.kind, entry.digest, at, entry.body, lease.key, lease.epoch


def wait_row(wait: Wait, lease: Lease, now: float) -> Row:
    """The columns of a wait that is opened, in the order of the table up to `on_expire`, then of those added later."""
    return (
        lease.account,
        wait.id,
        lease.key,
        wait.path,
        wait.generation,
        wait.kind,
        encode(wait.request),
        wait.digest,
        wait.opened or now,
        wait.deadline,
        wait.on_expire,
        wait.topic,
        None if wait.rules is None else encode(wait.rules),
        wait.next_at,
    )


def outgoing_row(outgoing: Outgoing, place: tuple[str, int], now: float) -> Row:
    """The columns of a notification of a run (account and number), in the order of the table."""
    account, run = place
    return (
        account,
        outgoing.key,
        run,
        outgoing.path,
        outgoing.channel,
        encode(outgoing.to),
        outgoing.subject,
        encode(outgoing.body),
        outgoing.priority,
        outgoing.at or now,
        outgoing.status,
    )


def one(row: Row | None) -> Json:
    """The single column of a row, None for no row."""
    return None if row is None else cast("Json", row[0])
