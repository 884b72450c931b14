"""The examples of the language's reference load without a word."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from stepwell.definition import load_text
from stepwell.kinds import discover

TEXT = (Path(__file__).parents[2] / "docs/reference/language.md").read_text("utf-8")
HEAD = "workflow: example\ninput: {type: object, required: [order], properties: {order: {type: string}}}\nsteps:\n"
EXAMPLES = [
    block for block in re.findall(r"^```yaml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE) if block[:4] == "- id"
]


def test_the_reference_has_examples_of_every_way_to_recover():
    whole = "".join(EXAMPLES)
    assert all(
        word in whole for word in ("strategy: fallback", "fallback: repair", "compensate:", "verify:", "- suspend")
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=[block.split("\n")[0][6:] for block in EXAMPLES])
def test_every_example_is_right(example):
    found = load_text(HEAD + textwrap.indent(example, "  "), file="example.yaml", kinds=discover())
    assert [str(warning) for warning in found.warnings] == []
