"""The example of the guide to testing passes under pytest, as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml
from tests.docs.test_commands import ROOT, _blocks, _shell

from stepwell.testing.suite import EXPECT

GUIDE = ROOT / "docs/guides/testing.md"


def test_the_example_of_the_guide_passes_under_pytest(tmp_path: Path) -> None:
    [example] = _blocks(GUIDE, "python")
    (tmp_path / "test_remind.py").write_text(example, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_the_commands_of_the_guide_work_as_they_are_written(tmp_path: Path) -> None:
    done = _shell(tmp_path, "set -e\n" + "\n".join(_blocks(GUIDE, "sh")))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert "1 passed" in done.stdout


def test_every_expectation_is_explained_and_the_example_has_no_others() -> None:
    text = GUIDE.read_text("utf-8")
    told = set(re.findall(r"`(\w+)`", text.partition("### Expectations")[2].partition("### Besides")[0]))
    assert set(EXPECT) - {"exact"} <= told
    [example] = _blocks(GUIDE, "yaml")
    for test in yaml.safe_load(example)["tests"]:
        assert set(test["expect"]) <= set(EXPECT)
