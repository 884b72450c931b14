"""What the guide to recipes says from Python is done as it is written."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell.engine.recipe_evaluations import Candidate
from stepwell.library.examples import examples_of
from stepwell.library.tables import read_table

ROOT = Path(__file__).parents[2]


@pytest.mark.models
async def test_the_python_of_the_guide_runs(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples/support-triage", tmp_path / "triage")
    monkeypatch.chdir(tmp_path / "triage")
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guides/recipes.md").read_text("utf-8"), re.DOTALL)
    lines = block.replace('"gpt"', '"embedded"').splitlines()
    body = "\n".join(f"    {line}" for line in lines)
    names: dict[str, Any] = {
        "Candidate": Candidate, "Path": Path, "examples_of": examples_of, "read_table": read_table,
    }  # fmt: skip
    exec(f"async def guide(engine):\n{body}\n    return locals()", names)
    async with stepwell.open(f"sqlite:///{tmp_path}/runs.db") as engine:
        found = await names["guide"](engine)
    assert found["trial"].output["label"] == "delivery"
    assert all(one.passed for one in found["tested"])
    assert (found["new"], found["unused"]) == (True, ["file"])
    assert found["found"].score(0).right >= 22
    assert found["found"].compared(1).p == 1.0
