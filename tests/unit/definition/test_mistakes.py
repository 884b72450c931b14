"""A table of mistakes: every problem a person can make, with the exact text that is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

CASES = (Path(__file__).parent / "data" / "mistakes.txt").read_text(encoding="utf-8").rstrip("\n").split("\n\n====\n")


def test_the_table_is_long():
    assert len(CASES) >= 60


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_every_mistake_is_told_where_it_is_and_how_to_mend_it(loader, case):
    text, _, expected = case.partition("\n----\n")
    assert "\n".join(loader.problems(text)) == expected


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_no_message_speaks_the_language_of_a_library(case):
    said = case.partition("\n----\n")[2]
    for word in ("pydantic", "http://", "https://errors", "Input should", "NoneType", "dict", "tuple", "Traceback"):
        assert word not in said
