"""Tables of examples in files: CSV, JSON lines, and lists of objects in JSON or YAML.

The law of the file: every row knows the line where it begins; a table that is wrong is told as a whole, never cut.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from stepwell.definition import json_text, yaml_text
from stepwell.definition.positions import plain
from stepwell.definition.report import Report, TooWrong
from stepwell.definition.suggest import noun
from stepwell.errors import DefinitionError, Problem

Json: TypeAlias = Any

LARGEST_TABLE = 50_000_000
"""Bytes of a file that are read."""
_LONGEST_CELL = 10_000_000
_DELIMITERS = ",;\t"


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row by the names of its columns; in CSV every value is text."""

    values: dict[str, Json]
    line: int


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a file. `typed` is false where every value is text because the format knows nothing else."""

    file: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    typed: bool

    def problem(self, row: TableRow | None, message: str, hint: str = "") -> Problem:
        return Problem("error", "table", message, hint, self.file, row.line if row else 1, 1)


def read_table(file: Path) -> Table:
    """The table of a file, by the ending of its name. Raises DefinitionError with all that is wrong with it."""
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        endings = ", ".join(_READERS)
        raise _wrong(file, 0, f"no table is known that ends in {file.suffix or 'nothing'!r}", f"write {endings}")
    table: Table = reader(file, _text(file))
    if not table.rows:
        raise _wrong(file, 1, "there are no rows in this table")
    return table


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > LARGEST_TABLE:
            raise _wrong(file, 0, f"the table is larger than {LARGEST_TABLE // 1_000_000} MB", "use a part of it")
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _wrong(file, 0, f"the table is not UTF-8: byte {error.start} is wrong", "save it as UTF-8") from None
    except OSError as error:
        raise _wrong(file, 0, f"cannot read the table: {error.strerror or error}") from None


def _wrong(file: Path, line: int, message: str, hint: str = "") -> DefinitionError:
    return DefinitionError([Problem("error", "table", message, hint, str(file), line, 1 if line else 0)])


# ── CSV ──


def _csv(file: Path, text: str) -> Table:
    csv.field_size_limit(_LONGEST_CELL)
    first = text.lstrip("\r\n").partition("\n")[0]
    delimiter = "\t" if file.suffix.lower() == ".tsv" else max(_DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    columns: tuple[str, ...] = ()
    rows, problems = [], []
    begins = 1
    try:
        for cells in reader:
            line, begins = begins, reader.line_num + 1
            if not any(cell.strip() for cell in cells):
                continue
            if not columns:
                columns = _header(file, line, cells)
            elif len(cells) != len(columns):
                message = f"this row has {len(cells)} cells, the header {len(columns)}"
                hint = "put a text that holds the delimiter or a line break into quotes"
                problems.append(Problem("error", "table", message, hint, str(file), line, 1))
            else:
                rows.append(TableRow(dict(zip(columns, cells, strict=True)), line))
    except csv.Error as error:
        hint = 'a quote inside a quoted text is written twice: ""'
        problems.append(Problem("error", "table", f"this is not CSV: {error}", hint, str(file), begins, 1))
    if problems:
        raise DefinitionError(problems)
    return Table(str(file), columns, tuple(rows), typed=False)


def _header(file: Path, line: int, cells: list[str]) -> tuple[str, ...]:
    names = [cell.strip() for cell in cells]
    twice = sorted({name for name in names if names.count(name) > 1 and name})
    if twice:
        raise _wrong(file, line, f"the column {twice[0]!r} is there twice", "give each column a name of its own")
    if not all(names):
        raise _wrong(file, line, f"column {names.index('') + 1} has no name", "the first row holds the names")
    return tuple(names)


# ── JSON, YAML ──


def _json_lines(file: Path, text: str) -> Table:
    rows, problems = [], []
    for line, written in enumerate(text.split("\n"), start=1):
        if not written.strip():
            continue
        try:
            value = json.loads(written, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            said = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            column = error.colno if isinstance(error, json.JSONDecodeError) else 1
            problems.append(Problem("error", "table", f"this is not JSON: {said}", "", str(file), line, column))
            continue
        if isinstance(value, dict):
            rows.append(TableRow(value, line))
        else:
            problems.append(_no_row(file, line, value))
    return _of_objects(file, rows, problems)


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON value")


def _document(file: Path, text: str) -> Table:
    report = Report(str(file))
    try:
        root = (json_text if file.suffix.lower() == ".json" else yaml_text).compose(text, report)
    except TooWrong:
        raise report.error() from None
    if report.has_errors:
        raise report.error()
    if not isinstance(root.value, list):
        message = f"a table is a list of objects, this is {noun(plain(root))}"
        raise _wrong(file, root.line, message, "- {text: ..., expected: {label: ...}}")
    rows, problems = [], []
    for node in root.items:
        value = plain(node)
        if isinstance(value, dict):
            rows.append(TableRow(value, node.line))
        else:
            problems.append(_no_row(file, node.line, value))
    return _of_objects(file, rows, problems)


def _no_row(file: Path, line: int, value: Json) -> Problem:
    hint = "{text: ..., expected: {label: ...}}"
    return Problem("error", "table", f"a row is an object, this is {noun(value)}", hint, str(file), line, 1)


def _of_objects(file: Path, rows: list[TableRow], problems: list[Problem]) -> Table:
    if problems:
        raise DefinitionError(problems)
    return Table(str(file), tuple(_names(rows)), tuple(rows), typed=True)


def _names(rows: list[TableRow]) -> Iterator[str]:
    yield from dict.fromkeys(name for row in rows for name in row.values)


_READERS: dict[str, Any] = {
    ".csv": _csv, ".tsv": _csv, ".jsonl": _json_lines, ".ndjson": _json_lines,
    ".json": _document, ".yaml": _document, ".yml": _document,
}  # fmt: skip
