"""Paths: where in the definition something happened, never how many calls before.

    path    = ("/" segment ["#" round])*      "/enrich/17/score#2"
    below a step P:   P/@2  attempt 2       P/?   wait           P/~start  what a container decided when it began
                      P/!1  trouble 1: what became of a failure that attempts did not mend, and P/!1/? its incident
                      P/~fallback, P/~verify (#2 for trouble 2), /~undo/0 the first thing undone in the run
                      P/$t3  turn 3 of a model that uses tools, and P/$t3.0 the first call that it asks for there

The law of the file: the descendants of P are exactly the keys from `P/` up to (not including) `P0`, since "0" follows
"/" in ASCII and ids, branch names and indexes hold no "/", "#", "@", "~", "?", "!" or "$".
"""

from __future__ import annotations

ROOT = ""


def child(path: str, segment: str | int) -> str:
    """The path of a step, branch or iteration below `path`."""
    return f"{path}/{segment}"


def with_round(path: str, number: int) -> str:
    """The path of round `number` of a step; round 1 carries no mark."""
    return path if number == 1 else f"{path}#{number}"


def attempt(path: str, number: int) -> str:
    """The path of attempt `number` (from 1) of the step at `path`."""
    return f"{path}/@{number}"


def wait(path: str) -> str:
    """The path of what the step at `path` waits for."""
    return f"{path}/?"


def trouble(path: str, number: int) -> str:
    """The path of what is done about the failure number `number` (from 1) of the step at `path`."""
    return f"{path}/!{number}"


TURN = "/$t"
"""What stands before the number of a turn in a path."""


def turn(path: str, number: int) -> str:
    """The path of turn `number` (from 1) of the agent step at `path`."""
    return f"{path}{TURN}{number}"


def turn_call(path: str, number: int, index: int) -> str:
    """The path of the call `index` (from 0) that turn `number` of the agent step at `path` asks for."""
    return f"{path}/$t{number}.{index}"


def aside(path: str, word: str, number: int) -> str:
    """The path below which the steps of a fallback or of a `verify` run, for trouble `number` of the step at `path`."""
    return with_round(f"{path}/~{word}", number)


UNDO = "/~undo"
"""The path below which a run is undone; what is undone there is told by the entry that begins it."""


def start(path: str) -> str:
    """The path of the entry that says what the step at `path` decided when it began."""
    return f"{path}/~start"


def parent(path: str) -> str:
    """The path without its last segment."""
    return path.rpartition("/")[0]


AFTER_FAILURE = "on_failure"
"""The segment below which the steps lie that run once a workflow has failed; no step may be called so."""


_AFTERWARDS = (f"{AFTER_FAILURE}/", "!", "~fallback", "~verify", "~undo")


def is_within(path: str, container: str) -> bool:
    """Whether `path` belongs to what `container` does: itself or below it, but not what follows its failure."""
    if path == container:
        return True
    return path.startswith(f"{container}/") and not path.startswith(_AFTERWARDS, len(container) + 1)


def is_below(path: str, ancestor: str) -> bool:
    """Whether `path` is a descendant of `ancestor`."""
    return path.startswith(f"{ancestor}/")


def is_at_or_below(path: str, top: str) -> bool:
    """Whether `path` is `top` or a descendant of it."""
    return path == top or path.startswith(f"{top}/")


def bare_segments(path: str) -> list[str]:
    """The segments without their rounds: "/a#2/17/b" gives ["a", "17", "b"]."""
    return [segment.partition("#")[0] for segment in path.split("/")[1:]]


def bare(path: str) -> str:
    """The path without the round of its last segment."""
    before, slash, segment = path.rpartition("/")
    return before + slash + segment.partition("#")[0]


def round_number(path: str) -> int:
    """The round of the last segment."""
    _, mark, number = path.rpartition("/")[2].partition("#")
    return int(number) if mark else 1
