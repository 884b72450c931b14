"""Scripts: what steps answer in a test, by step id or path.

    classify: {output: {label: refund}}
    pay: [{error: {kind: timeout, message: slow}}, {output: {reference: R1}, delay: 2s}]
    /orders/2/pay: {error: tool_error}
    sign-off: {decision: approved, by: ana, data: {amount: 90}, delay: 2h}
    reply: {event: {text: "yes"}}
    charge: [{error: {kind: auth_error, message: no}}, {action: retry, edits: {account: B}}, {output: {ok: true}}]

The law of the file: which answer counts follows from the calls so far at a place, so that a call repeated after a
crash gets the answer it had. A list is read on by attempts and rounds; each iteration reads it from the start; the
last answer repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from stepwell.definition.fields import seconds
from stepwell.definition.positions import Location, Positions, pointer_of
from stepwell.definition.suggest import did_you_mean
from stepwell.errors import DefinitionError, Problem, StepFailed
from stepwell.journal import path as paths

Json: TypeAlias = Any

MAIN = ("output", "error", "decision", "event", "action")
"""One of these makes an answer what it is."""
BESIDE: Mapping[str, tuple[str, ...]] = {
    "output": ("delay", "usage"),
    "error": ("delay",),
    "decision": ("delay", "by", "comment", "data"),
    "event": ("delay",),
    "action": ("delay", "by", "edits", "output", "comment"),
}
"""What may stand beside each."""
ERROR = ("kind", "message", "retryable", "status", "retry_after", "detail")
DECISIONS = ("approved", "rejected", "changes_requested")
ACTIONS = ("retry", "provide", "skip", "fallback", "compensate", "fail")
BY_STATUS = {401: "auth_error", 403: "auth_error", 404: "not_found", 408: "timeout", 425: "overloaded"} | {
    429: "rate_limit"
}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `word` is the one of `MAIN` that makes it what it is, `value` what stands there."""

    word: str
    value: Json = None
    delay: float = 0.0
    """Seconds before it is given."""
    by: str = ""
    comment: str = ""
    data: Json = None
    edits: dict[str, Json] | None = None
    output: Json = None
    usage: dict[str, Json] | None = None

    @property
    def is_call(self) -> bool:
        """Whether it answers a call, rather than what waits for somebody."""
        return self.word in {"output", "error"}

    def failure(self) -> StepFailed:
        """A new failure as this answer says it."""
        return failure_of(self.value)


@dataclass(slots=True)
class Script:
    """The answers of one step or path: those to calls, and what people and the world do where it waits."""

    key: str
    calls: list[Answer] = field(default_factory=list)
    acts: list[Answer] = field(default_factory=list)


class Scripts:
    """All scripts of a test."""

    def __init__(self, given: Mapping[str, Json] | None = None) -> None:
        """Raises DefinitionError with everything that is wrong with them."""
        self._scripts, problems = read_scripts(given or {})
        if problems:
            raise DefinitionError(problems)

    @property
    def keys(self) -> list[str]:
        return list(self._scripts)

    def find(self, path: str, tool: str = "") -> Script | None:
        """The script for a place: its path with rounds, its path without them, then the id of its step.

        Of an agent step the turns are read from the step's own script, and the calls of a `tool` from that of the
        step and tool (`answer.lookup`), else of the tool (`lookup`).
        """
        step, turn, _ = path.partition("/$")
        plain = bare(step)
        keys = [step, plain, step.rpartition("/")[2], plain.rpartition("/")[2]]
        if turn and tool:
            keys = [*(f"{key}.{tool}" for key in keys), tool]
        keys = [path, bare(path), *keys]
        return next((self._scripts[key] for key in keys if key in self._scripts), None)


def bare(path: str) -> str:
    """A path without any rounds: where a list of answers is read on."""
    return "".join(f"/{segment}" for segment in paths.bare_segments(path))


def read_scripts(given: Mapping[str, Json], where: Location = ()) -> tuple[dict[str, Script], list[Problem]]:
    """The scripts of a mapping, and what is wrong with it; problems carry JSON pointers below `where`."""
    found: dict[str, Script] = {}
    problems: list[Problem] = []
    for key, said in given.items():
        script = found[key] = Script(key)
        several = said if isinstance(said, list) else [said]
        if not several:
            problems.append(_wrong((*where, key), f"the script of {key} is empty", "write  {output: ...}"))
        for index, one in enumerate(several):
            place = (*where, key, index) if isinstance(said, list) else (*where, key)
            wrong = list(_problems(one, place))
            problems += wrong
            if not wrong:
                answer = _answer(one)
                (script.calls if answer.is_call else script.acts).append(answer)
    return found, problems


def _answer(said: Mapping[str, Json]) -> Answer:
    word = "action" if "action" in said else next(name for name in MAIN if name in said)
    return Answer(
        word,
        said[word],
        delay=seconds(said.get("delay", 0)),
        by=str(said.get("by") or ""),
        comment=str(said.get("comment") or ""),
        data=said.get("data"),
        edits=said.get("edits"),
        output=said.get("output"),
        usage=said.get("usage"),
    )


def _problems(said: Json, where: Location) -> Iterator[Problem]:
    if not isinstance(said, Mapping):
        yield _wrong(where, f"an answer is an object, this is {said!r}", "write  {output: ...}")
        return
    words = ["action"] if "action" in said else [name for name in MAIN if name in said]
    if len(words) != 1:
        hint = "write {output: ...}, {error: {kind, message}}, {decision: approved}, {event: ...} or {action: retry}"
        yield _wrong(where, f"an answer has one of {', '.join(MAIN)}; this has {' and '.join(words) or 'none'}", hint)
        return
    allowed = (words[0], *BESIDE[words[0]])
    for name in said:
        if name not in allowed:
            hint = did_you_mean(name, allowed) or f"beside {words[0]} may stand {', '.join(BESIDE[words[0]])}"
            yield _wrong((*where, name), f"an answer with {words[0]} has no {name!r}", hint)
    if "delay" in said:
        try:
            seconds(said["delay"])
        except ValueError as error:
            yield _wrong((*where, "delay"), str(error))
    yield from _of_word(words[0], said[words[0]], (*where, words[0]))


def _of_word(word: str, value: Json, where: Location) -> Iterator[Problem]:
    known: Iterable[str] = {"decision": DECISIONS, "action": ACTIONS}.get(word, ())
    if known and value not in known:
        yield _wrong(where, f"{value!r} is no {word}", did_you_mean(str(value), known) or f"one of {', '.join(known)}")
    if word == "error":
        if isinstance(value, Mapping):
            for name in value:
                if name not in ERROR:
                    yield _wrong((*where, name), f"an error has no {name!r}", did_you_mean(name, ERROR))
            if "kind" not in value and "status" not in value:
                yield _wrong(where, "an error has a kind or an HTTP status", "write  {kind: timeout, message: slow}")
        elif not isinstance(value, str | StepFailed):
            yield _wrong(where, f"an error is a kind or an object, this is {value!r}", "write  {kind: timeout}")


def failure_of(said: Json) -> StepFailed:
    """The failure that `{kind, message, ...}`, a kind alone or a StepFailed describes; each time a new one."""
    if isinstance(said, StepFailed):
        kept = False if said.final else None
        return StepFailed(said.kind, said.message, kept, said.retry_after, said.detail)
    if isinstance(said, str):
        return StepFailed(said, f"scripted {said}")
    status = said.get("status")
    kind = str(said.get("kind") or _kind_of(int(status)))
    detail = said.get("detail")
    if status is not None:
        detail = {**(detail if isinstance(detail, dict) else {}), "status": status}
    after = said.get("retry_after")
    hint = None if after is None else seconds(after)
    return StepFailed(kind, str(said.get("message") or f"scripted {kind}"), said.get("retryable"), hint, detail)


def _kind_of(status: int) -> str:
    """The kind of error that an HTTP status is (LANGUAGE, Failure)."""
    return BY_STATUS.get(status) or ("server_error" if status >= 500 else "invalid_request")


def located(problem: Problem, file: str, positions: Positions) -> Problem:
    """The same problem with the line and column that its pointer means in a file."""
    where = tuple(int(part) if part.isdigit() else part for part in _parts(problem.path))
    line, column = positions.place(where, key=True)
    return replace(problem, file=file, line=line, column=column)


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _wrong(where: Location, message: str, hint: str = "") -> Problem:
    return Problem("error", "script", message, hint, path=pointer_of(where))
