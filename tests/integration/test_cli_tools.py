"""`stepwell tools show` and `tools call`, through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
TOOLS = '''
import stepwell

@stepwell.tool
def add(a: int, b: int = 1, tags: list[str] | None = None) -> dict:
    """Add two numbers.

    Args:
        a: the first of them
    """
    print("adding")
    return {"sum": a + b, "tags": tags}

@stepwell.tool(idempotent=False)
def charge(cents: int, token: str = "") -> str:
    if cents < 0:
        raise stepwell.StepFailed("no_credit", f"refused with {token}")
    return f"charged {cents} with {token}"
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "stepwell.toml").write_text('[project]\ntools = ["tools.py"]\n[secrets]\nKEY = "env:THE_KEY"\n')
    return tmp_path


def stepwell(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "THE_KEY": "CANARY-9f3"}
    return subprocess.run(
        [sys.executable, "-m", "stepwell", "tools", *words], cwd=folder, env=environ, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, check=False, timeout=120,
    )  # fmt: skip


def test_a_tool_is_shown_with_its_arguments(project: Path) -> None:
    told = stepwell(project, "show", "add")
    assert told.returncode == 0
    assert "add  may be repeated" in told.stdout
    assert "the first of them" in told.stdout
    data = json.loads(stepwell(project, "show", "charge", "--json").stdout)
    assert (data["name"], data["idempotent"]) == ("charge", False)
    assert "http  by its method" in stepwell(project, "show", "http").stdout
    missing = stepwell(project, "show", "ad")
    assert (missing.returncode, "did you mean 'add'?" in missing.stderr) == (2, True)


def test_a_tool_is_called_with_what_its_schema_wants(project: Path) -> None:
    told = stepwell(project, "call", "add", "-a", "a=2", "-a", 'tags:=["x"]', "--json")
    assert json.loads(told.stdout) == {"sum": 3, "tags": ["x"]}
    assert "adding" in told.stderr
    wrong = stepwell(project, "call", "add", "-a", "a=two")
    assert wrong.returncode == 1
    assert "a should be a valid integer" in wrong.stderr
    for timeout in ("0", "-1", "nan"):  # they waited for ever
        never = stepwell(project, "call", "add", "-a", "a=2", "--timeout", timeout)
        assert (never.returncode, "seconds above 0" in never.stderr) == (2, True)


def test_what_may_not_be_repeated_wants_a_word_and_secrets_stay_inside(project: Path) -> None:
    refused = stepwell(project, "call", "charge", "-a", "cents=3")
    assert refused.returncode == 2
    assert "add --yes" in refused.stderr
    post = stepwell(project, "call", "http", "-a", "url=http://127.0.0.1:9/", "-a", "method=POST")
    assert "add --yes" in post.stderr
    done = stepwell(project, "call", "charge", "-a", "cents=3", "-a", "token={{secret.KEY}}", "--yes", "--json")
    assert json.loads(done.stdout) == "charged 3 with [secret KEY]"
    failed = stepwell(project, "call", "charge", "-a", "cents=-1", "-a", "token={{secret.KEY}}", "--yes")
    assert failed.returncode == 1
    assert "no_credit: refused with [secret KEY]" in failed.stderr
    absent = stepwell(project, "call", "charge", "-a", "cents=1", "-a", "token={{secret.KEYS}}", "--yes")
    assert "there is no secret 'KEYS'" in absent.stderr
    other = stepwell(project, "call", "charge", "-a", "cents=1", "-a", "token={{run.id}}", "--yes")
    assert (other.returncode, "only {{secret.NAME}} means anything" in other.stderr) == (2, True)


def test_an_address_inside_is_refused_with_how_to_allow_it(project: Path) -> None:
    told = stepwell(project, "call", "http", "-a", "url=http://localhost:9/")
    assert told.returncode == 1
    assert "an address that is not public" in told.stderr
    assert "allow_private" in told.stderr
