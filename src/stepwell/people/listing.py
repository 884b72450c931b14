"""Lists of people as text: YAML, JSON or CSV in, people with their places out, and every problem at once."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from io import StringIO
from typing import Any, TypeAlias

from stepwell.definition import json_text, yaml_text
from stepwell.definition.positions import Node
from stepwell.definition.report import Report, TooWrong
from stepwell.definition.suggest import did_you_mean, noun
from stepwell.errors import Problem
from stepwell.people.names import Place
from stepwell.ports import Person

Json: TypeAlias = Any

_FIELDS = tuple(field.name for field in fields(Person))
_LISTS = ("roles", "departments")


@dataclass(frozen=True, slots=True)
class _Row:
    """What was written of one person, by the fields of `Person`."""

    values: dict[str, Json]
    place: Place


@dataclass(frozen=True, slots=True)
class Listing:
    """The people that could be read, where each of them stands, and what is wrong with the rest."""

    people: list[Person]
    where: list[Place]
    problems: list[Problem]


def read_people(text: str, file: str) -> Listing:
    """The people of a list. The file's ending says what it is written in."""
    report = Report(file)
    text = text.removeprefix("\ufeff")
    rows: list[_Row] = []
    with suppress(TooWrong):  # the report says why
        rows += _of_csv(text, report) if file.lower().endswith(".csv") else _of_nodes(text, report)
    return Listing([Person(**row.values) for row in rows], [row.place for row in rows], report.sorted())


def _of_nodes(text: str, report: Report) -> Iterator[_Row]:
    is_json = report.file.lower().endswith(".json")
    root = (json_text if is_json else yaml_text).compose(text, report)
    listed = root.mapping.get("people", root) if set(root.mapping) == {"people"} else root
    if not isinstance(listed.value, list):
        hint = "write  - {name: ana, email: ana@example.org, roles: [approver]}"
        report.at(listed, "type", f"a file of people is a list, this is {noun(listed.value)}", hint)
    for node in listed.items:
        wrong = len(report.problems)
        if not isinstance(node.value, dict):
            report.at(node, "type", f"a person is an object, this is {noun(node.value)}", "write  - name: ana")
            continue
        if "name" not in node.mapping:
            report.at(node, "missing", "a person has a name", "write  - name: ana")
        values = {key: _value(key, inner, report) for key, inner in node.mapping.items()}
        if len(report.problems) == wrong:
            yield _Row(values, (report.file, *node.place()))


def _value(key: str, node: Node, report: Report) -> str | tuple[str, ...]:
    if key not in _FIELDS:
        hint = did_you_mean(key, _FIELDS) or f"known: {', '.join(_FIELDS)}"
        report.at(node, "unknown", f"a person has no {key!r}", hint, key=True)
        return ""
    if key not in _LISTS:
        if not isinstance(node.value, str):
            report.at(node, "type", f"{key} is text, this is {noun(node.value)}", "put it in quotes")
        return str(node.value)
    written = node.items if isinstance(node.value, list) else [node]
    for one in written:
        if not isinstance(one.value, str):
            report.at(one, "type", f"{key} are texts, this is {noun(one.value)}", f"write  {key}: [care]")
    return tuple(str(one.value) for one in written)


def _of_csv(text: str, report: Report) -> Iterator[_Row]:
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        heads = [head.strip().lower() for head in next(reader, [])]
        if not _heads_are_right(heads, report):
            return
        line = reader.line_num + 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                if len(cells) != len(heads):
                    said = f"there are {len(cells)} columns, and {len(heads)} in the first line"
                    report.add(Problem("error", "columns", said, "put a text with a comma in quotes", "", line, 1))
                else:
                    yield _Row(_cells(heads, cells), (report.file, line, 1))
            line = reader.line_num + 1
    except csv.Error as error:
        report.add(Problem("error", "syntax", f"not CSV: {error}", "", "", reader.line_num, 1))


def _heads_are_right(heads: Sequence[str], report: Report) -> bool:
    for head in heads:
        if head not in _FIELDS or heads.count(head) > 1:
            said = f"a person has no {head!r}" if head not in _FIELDS else f"there are two columns {head!r}"
            hint = did_you_mean(head, _FIELDS) or f"the first line names the columns: {','.join(_FIELDS)}"
            report.add(Problem("error", "unknown", said, hint, "", 1, 1))
    if "name" not in heads:
        hint = f"the first line names the columns: {','.join(_FIELDS)}"
        report.add(Problem("error", "missing", "there is no column for the name", hint, "", 1, 1))
    return not report.has_errors


def _cells(heads: Sequence[str], cells: Sequence[str]) -> dict[str, Json]:
    """The fields of a line; roles and departments are separated by semicolons."""
    found: dict[str, Json] = {}
    for head, cell in zip(heads, cells, strict=True):
        parts = tuple(part.strip() for part in cell.split(";") if part.strip())
        found[head] = parts if head in _LISTS else cell.strip()
    return found
