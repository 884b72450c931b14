"""The text of a settings file: what is wrong in it and where."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from stepwell.definition.suggest import did_you_mean
from stepwell.errors import Problem

Json: TypeAlias = Any
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_HEADER = re.compile(r"^\s*\[+\s*([^\]]+?)\s*\]+")
_KEY = re.compile(r"""^(\s*)("[^"]*"|'[^']*'|[A-Za-z0-9_-]+(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=""")


class Reading:
    """A settings file while it is read; collects every problem."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.problems: list[Problem] = []

    def refuse(
        self, where: tuple[str, ...], message: str, hint: str, *, code: str = "settings", said: str = ""
    ) -> dict[str, Json]:
        """Note a problem at a key, or with the environment variable `said`. Gives {} for use as a value."""
        if said:
            self.problems.append(Problem("error", code, message, hint, file=said))
            return {}
        line, column = position(self.text, where)
        pointer = "".join(f"/{part}" for part in where)
        self.problems.append(Problem("error", code, message, hint, self.file, line, column, pointer))
        return {}

    def refuse_unknown(
        self,
        where: tuple[str, ...],
        known: tuple[str, ...],
        hint: str = "",
        *,
        name: str = "",
        noun: str = "key",
        said: str = "",
    ) -> None:
        """Note that a name is not one of those known."""
        name = name or where[-1]
        close = did_you_mean(name, known)
        listed = f"known: {', '.join(known)}"
        self.refuse(where, f"there is no {noun} {name!r}", hint or close or listed, code="unknown", said=said)

    def refuse_syntax(self, message: str) -> None:
        """Note what the TOML reader said."""
        place = _PLACE.search(message)
        line = int(place[1]) if place and place[1] else self.text.count("\n") + 1 if place else 0
        column = int(place[2]) if place and place[2] else 1
        said = _PLACE.sub("", message)
        self.problems.append(Problem("error", "syntax", f"not TOML: {said}", "", self.file, line, column))


def position(text: str, where: tuple[str, ...]) -> tuple[int, int]:
    """Line and column of a key, both from 1; of its section if the key itself is not found; else (0, 0).

    Good for files written in the usual way; TOML's rarer spellings of keys are not looked for.
    """
    wanted = ".".join(where)
    best, best_length = (0, 0), 0
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line):
            section = _bare(header[1])
            full, column = section, line.index("[") + 2
        elif key := _KEY.match(line):
            bare = _bare(key[2])
            full, column = f"{section}.{bare}" if section else bare, len(key[1]) + 1
        else:
            continue
        if full == wanted:
            return number, column
        if wanted.startswith(f"{full}.") and len(full) > best_length:
            best, best_length = (number, column), len(full)
        elif full.startswith(f"{wanted}.") and not best_length:
            best, best_length = (number, column), len(wanted)
    return best


def _bare(name: str) -> str:
    return re.sub(r"\s*\.\s*", ".", name.replace('"', "").replace("'", ""))
