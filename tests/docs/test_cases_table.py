"""The table of cases tells no lies: its tests exist, and it knows every case that a test is named after.

`python -m tests.docs.test_cases_table` writes the tests into the table anew.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/explanation/cases.md"
_ROW = re.compile(r"^\| (C\d{3}) \| ([^|]+) \| ([^|]*) \|$", re.MULTILINE)
_TEST = re.compile(r"^\s*(?:async )?def (test_c(\d{3})_\w+)\(", re.MULTILINE)
_NAME = re.compile(r"`(test_c\d{3}_\w+)`")


def by_case() -> dict[str, list[str]]:
    """Test names by case, in the order of files and lines."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, number in _TEST.findall(file.read_text("utf-8")):
            found[f"C{number}"].append(name)
    return found


def rows() -> dict[str, list[str]]:
    """The tests that the table names, by case."""
    return {case: _NAME.findall(cell) for case, _, cell in _ROW.findall(DOCUMENT.read_text("utf-8"))}


@pytest.mark.parametrize("case", sorted(rows()))
def test_every_case_of_the_table_has_tests_and_all_that_it_names_exist(case):
    there = by_case()[case]
    assert there, f"{case} has no test"
    named = rows()[case]
    assert named
    assert set(named) <= set(there), f"{case} names tests that do not exist: {sorted(set(named) - set(there))}"
    assert all(name.startswith(f"test_{case.lower()}_") for name in named)


def test_every_case_that_a_test_is_named_after_is_in_the_table():
    assert set(by_case()) == set(rows())


def test_no_case_is_in_the_table_and_among_those_that_are_left_for_later():
    later = DOCUMENT.read_text("utf-8").split("## Left for later")[1]
    ids = set(re.findall(r"C\d{3}", later))
    assert ids
    assert not ids & set(rows())


def test_no_two_tests_of_a_case_share_a_name_in_one_file():
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        names = [name for name, _ in _TEST.findall(file.read_text("utf-8"))]
        assert len(names) == len(set(names)), file


def rewrite() -> None:
    """Put the tests that there are into the table."""
    there = by_case()
    text = DOCUMENT.read_text("utf-8")

    def row(match: re.Match[str]) -> str:
        cell = "<br>".join(f"`{name}`" for name in there[match[1]])
        return f"| {match[1]} | {match[2]} | {cell} |"

    DOCUMENT.write_text(_ROW.sub(row, text), "utf-8")


if __name__ == "__main__":
    rewrite()
