"""Spending in the database.

The law of the file: looking at the limits and reserving are one transaction, so that of many processes each sees what
the others hold; a row and its sums change together.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from stepwell.ports import EVERY_REQUEST, AuditRecord, Limit, Reservation, Spent, Standing, Usage, UsageFilter, UsageKey
from stepwell.stores.spending_rules import day_of, lets_in, raised
from stepwell.stores.sqlite import people
from stepwell.stores.sqlite.database import Database

Connection: TypeAlias = sqlite3.Connection
Row: TypeAlias = tuple[Any, ...]

_INSERT = """
INSERT INTO spend (account, uid, run, workflow, path, attempt, model, state, epoch, input_tokens, output_tokens,
                   nano_usd, day, at, until)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (account, uid) DO NOTHING
"""
_COUNTED = "run, workflow, day, input_tokens + output_tokens, coalesce(nano_usd, 0)"
# By the index of what is open, and not by that of runs: a run may have made thousands of requests.
_ABANDON = f"""
UPDATE spend INDEXED BY spend_open SET state = 'lost'
WHERE account = ?1 AND state = 'open' AND (until <= ?2 OR (run = ?3 AND epoch < ?4)) RETURNING {_COUNTED}
"""  # noqa: S608 -- constants
_FOUND = f"SELECT state, {_COUNTED} FROM spend WHERE account = ? AND uid = ?"  # noqa: S608 -- constants
_SETTLE = """
UPDATE spend SET state = 'settled', input_tokens = ?, output_tokens = ?, nano_usd = ? WHERE account = ? AND uid = ?
"""
_LOSE = "UPDATE spend SET state = 'lost' WHERE account = ? AND uid = ?"
_ADD = """
INSERT INTO spend_sum (account, scope, subject, day, tokens, nano_usd) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (account, scope, subject, day) DO UPDATE SET tokens = tokens + excluded.tokens,
                                                         nano_usd = nano_usd + excluded.nano_usd
"""
_BOTH = "coalesce(sum(input_tokens + output_tokens), 0), coalesce(sum(nano_usd), 0)"
_SUM = """
SELECT coalesce(sum(tokens), 0), coalesce(sum(nano_usd), 0) FROM spend_sum
WHERE account = ? AND scope = ? AND subject = ? AND day >= ? AND day < ?
"""
_OPEN = f"SELECT {_BOTH} FROM spend INDEXED BY spend_open WHERE account = ? AND state = 'open'"  # noqa: S608 -- constants
_BELOW = " AND run = ? AND path >= ? AND path < ?"
_SUM_BELOW = f"SELECT {_BOTH} FROM spend WHERE account = ? AND state <> 'open'{_BELOW}"  # noqa: S608 -- constants
_RAISED = """
SELECT tokens, nano_usd FROM spend_limit
WHERE account = ? AND scope = ? AND subject = ? AND below = ? AND period = ?
"""
_RAISE = """
INSERT INTO spend_limit (account, scope, subject, below, period, tokens, nano_usd) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (account, scope, subject, below, period) DO UPDATE SET
    tokens = max(coalesce(tokens, excluded.tokens), coalesce(excluded.tokens, tokens)),
    nano_usd = max(coalesce(nano_usd, excluded.nano_usd), coalesce(excluded.nano_usd, nano_usd))
"""
_KEYS = {
    "workflow": "workflow",
    "model": "model",
    "day": "day",
    "run": "run",
    # What belongs to a step, such as the turns of an agent, lies below it, behind a "$".
    "step": "iif(instr(path, '/$'), substr(path, 1, instr(path, '/$') - 1), path)",
    "attempt": "path || '/@' || attempt",
}
_END = "~"
"""Greater than every day and month."""


class SqliteSpending:
    """`Spending` on the database of a run store, which has made its tables."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def reserve(self, account: str, asked: Reservation, limits: Sequence[Limit]) -> Standing | None:
        now, held = self._clock(), tuple(limits)
        at = asked.at or now

        def act(connection: Connection) -> Standing | None:
            _abandon(connection, account, asked, now)
            for limit in held:
                standing = _standing(connection, account, limit)
                if not lets_in(standing, asked):
                    return standing
            _insert(connection, account, "open", asked, at)
            return None

        return await self._database.write(act, size=400)

    def settle(self, account: str, reservation_id: str, spent: Spent) -> Awaitable[bool]:
        def act(connection: Connection) -> bool:
            found = connection.execute(_FOUND, (account, reservation_id)).fetchone()
            if found is None or found[0] == "settled" or (found[0] == "lost" and spent.lost):
                return False
            state, *before = found
            if state == "lost":
                _count(connection, account, before, -1)
            if spent.lost:
                connection.execute(_LOSE, (account, reservation_id))
            else:
                took = (spent.input_tokens, spent.output_tokens, spent.nano_usd)
                connection.execute(_SETTLE, (*took, account, reservation_id))
            _, *after = connection.execute(_FOUND, (account, reservation_id)).fetchone()
            _count(connection, account, after, 1)
            return True

        return self._database.submit(act, size=400)

    def record(self, account: str, asked: Reservation, spent: Spent) -> Awaitable[None]:
        at = asked.at or self._clock()
        took, state = asked, "lost"
        if not spent.lost:
            tokens = (spent.input_tokens, spent.output_tokens)
            took = replace(asked, input_tokens=tokens[0], output_tokens=tokens[1], nano_usd=spent.nano_usd)
            state = "settled"

        def act(connection: Connection) -> None:
            if _insert(connection, account, state, took, at):
                tokens = took.input_tokens + took.output_tokens
                _count(connection, account, (took.run_id, took.workflow, day_of(at), tokens, took.nano_usd or 0), 1)

        return self._database.submit(act, size=400)

    async def standings(self, account: str, limits: Sequence[Limit]) -> list[Standing]:
        held = tuple(limits)
        return await self._database.read(lambda connection: [_standing(connection, account, limit) for limit in held])

    async def raise_to(self, account: str, limit: Limit, *, notes: Sequence[AuditRecord] = ()) -> Limit:
        place, now = (account, limit.scope, limit.subject, limit.below, limit.period), self._clock()

        def act(connection: Connection) -> Limit:
            connection.execute(_RAISE, (*place, limit.tokens, limit.nano_usd))
            people.note(connection, account, notes, now)
            tokens, nano_usd = connection.execute(_RAISED, place).fetchone()
            return replace(limit, tokens=tokens, nano_usd=nano_usd)

        return await self._database.write(act)

    async def usage(self, account: str, by: UsageKey, which: UsageFilter = EVERY_REQUEST) -> list[Usage]:
        conditions: list[tuple[str, str | float]] = [("account = ?", account)]
        if which.workflow:
            conditions.append(("workflow = ?", which.workflow))
        if which.since:
            conditions.append(("at >= ?", which.since))
        if which.before:
            conditions.append(("at < ?", which.before))
        where = " AND ".join(condition for condition, _ in conditions)
        if which.run_ids:
            where += f" AND run IN ({', '.join('?' * len(which.run_ids))})"
        statement = f"""
            SELECT {_KEYS[by]} AS key, count(*), sum(input_tokens), sum(output_tokens), coalesce(sum(nano_usd), 0),
                   sum(state = 'lost'), sum(iif(nano_usd IS NULL, input_tokens + output_tokens, 0))
            FROM spend WHERE {where} AND state <> 'open' GROUP BY 1 ORDER BY 1
        """  # noqa: S608 -- constants and question marks alone
        given = (*(value for _, value in conditions), *which.run_ids)
        rows = await self._database.read(lambda connection: connection.execute(statement, given).fetchall())
        return [Usage(*row) for row in rows]


def _insert(connection: Connection, account: str, state: str, asked: Reservation, at: float) -> bool:
    whose = (asked.run_id, asked.workflow, asked.path, asked.attempt, asked.model, state, asked.epoch)
    took = (asked.input_tokens, asked.output_tokens, asked.nano_usd)
    given = (account, asked.id, *whose, *took, day_of(at), at, asked.until)
    return bool(connection.execute(_INSERT, given).rowcount)


def _abandon(connection: Connection, account: str, asked: Reservation, now: float) -> None:
    """Settle as lost what nobody awaits any more."""
    for row in connection.execute(_ABANDON, (account, now, asked.run_id, asked.epoch)).fetchall():
        _count(connection, account, row, 1)


def _count(connection: Connection, account: str, row: Sequence[Any], sign: int) -> None:
    """Put a request (run, workflow, day, tokens, money) into the sums, or take it out."""
    run, workflow, day, tokens, nano_usd = row
    for scope, subject, when in (("run", run, ""), ("workflow", workflow, day), ("account", "", day)):
        connection.execute(_ADD, (account, scope, subject, when, sign * tokens, sign * nano_usd))


def _standing(connection: Connection, account: str, limit: Limit) -> Standing:
    place = (account, limit.scope, limit.subject, limit.below, limit.period)
    held = connection.execute(_RAISED, place).fetchone()
    if limit.below:
        # A range, not LIKE: paths hold characters that mean something there.
        inside = (f"{limit.below}/", f"{limit.below}0")
        spent = connection.execute(_SUM_BELOW, (account, limit.subject, *inside)).fetchone()
        still = connection.execute(_OPEN + _BELOW, (account, limit.subject, *inside)).fetchone()
    else:
        days = (limit.period, limit.period + _END) if limit.scope != "run" else ("", _END)
        spent = connection.execute(_SUM, (account, limit.scope, limit.subject, *days)).fetchone()
        still = _open(connection, account, limit)
    return Standing(limit if held is None else raised(limit, *held), *spent, *still)


def _open(connection: Connection, account: str, limit: Limit) -> Row:
    statement, given = _OPEN, [account]
    if limit.scope != "account":
        statement += f" AND {limit.scope} = ?"
        given.append(limit.subject)
    if limit.period:
        statement += " AND day >= ? AND day < ?"
        given += [limit.period, limit.period + _END]
    found: Row = connection.execute(statement, given).fetchone()
    return found
