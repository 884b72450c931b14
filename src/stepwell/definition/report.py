"""The problems found while a file is read, composed and checked, each with its place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepwell.definition.positions import Location, Node, Positions, pointer_of
from stepwell.definition.suggest import described
from stepwell.errors import DefinitionError, Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_PROBLEMS = 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """
    A problem at a location of the canonical data, before the location has become a line and a column.

    `offset` counts characters inside a text; `key` points at the key rather than the value. `other` is the location of
    a second part, whose line and column take the place of `{place}` in the message ("line 3, column 5").
    """

    code: str
    message: str
    where: Location
    hint: str = ""
    severity: Severity = "error"
    offset: int = 0
    key: bool = False
    other: Location | None = None


class TooWrong(Exception):
    """The text cannot be read any further; the report says why."""


class Report:
    """Collects the problems of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []

    def add(self, problem: Problem) -> None:
        self.problems.append(replace(problem, file=self.file))

    def at(
        self, node: Node, code: str, message: str, hint: str = "", *, key: bool = False, severity: Severity = "error"
    ) -> None:
        """A problem at a node, or at its key."""
        line, column = node.key_place if key else node.place()
        self.add(Problem(severity, code, message, hint, "", line, column, node.pointer))

    def stop(self, place: tuple[int, int], code: str, message: str, hint: str = "") -> TooWrong:
        """An error after which nothing more can be read; for `raise`."""
        self.add(Problem("error", code, message, hint, "", *place))
        return TooWrong(message)

    def locate(self, findings: Iterable[Finding], positions: Positions) -> None:
        """Adds findings, each with the line, column and pointer of what it is about."""
        for found in findings:
            node, rest = positions.find(found.where)
            line, column = positions.place(found.where, found.offset, key=found.key)
            pointer = (node.pointer if node else "") + pointer_of(rest)
            message = found.message
            if found.other is not None:
                message = message.replace("{place}", described(positions.place(found.other)))
            self.add(Problem(found.severity, found.code, message, found.hint, "", line, column, pointer))

    @property
    def has_errors(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)

    def sorted(self) -> list[Problem]:
        """All problems in the order of the file, each once."""
        ranks = {"error": 0, "warning": 1, "note": 2}
        unique = dict.fromkeys(self.problems)
        return sorted(unique, key=lambda found: (found.line, found.column, ranks[found.severity]))

    def error(self) -> DefinitionError:
        """What is found, as the exception; beyond 1,000 problems the rest is counted."""
        problems = self.sorted()
        if len(problems) > MOST_PROBLEMS:
            problems.sort(key=lambda found: found.severity != "error")
            more = len(problems) - MOST_PROBLEMS
            note = Problem("note", "more", f"and {more:,} more problems", "", self.file)
            problems = [*problems[:MOST_PROBLEMS], note]
        return DefinitionError(problems)
