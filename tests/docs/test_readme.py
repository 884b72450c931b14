"""The workflow and the programs of the README work as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the three files that the README says to copy, and nothing else."""
    (workflow,) = _blocks("yaml")
    (tmp_path / "workflow.yaml").write_text(workflow, "utf-8")
    programs = _blocks("python")
    names = [re.match(r"# (\w+\.py)\n", program)[1] for program in programs]
    assert names == ["tools.py", "program.py"]
    for name, program in zip(names, programs, strict=True):
        (tmp_path / name).write_text(program, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPWELL_DATABASE", raising=False)
    return tmp_path


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=240, check=False)


def test_the_workflow_of_the_readme_has_no_problem(project):
    done = _run("-m", "stepwell", "validate", "workflow.yaml", "--json")
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.mark.models
def test_the_program_of_the_readme_runs_to_the_end(project):
    done = _run("program.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("completed {"), done.stdout
    assert "40.00 EUR" in done.stdout


@pytest.mark.models
def test_the_program_of_the_readme_says_when_it_waits_for_a_person(project):
    program = (project / "program.py").read_text("utf-8")
    assert '"amount": 40}' in program
    (project / "program.py").write_text(program.replace('"amount": 40}', '"amount": 400}'), "utf-8")
    done = _run("program.py")
    assert (done.returncode, done.stdout.split()[0]) == (0, "pending_approval"), done.stderr
