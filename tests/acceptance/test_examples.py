"""What holds for every example."""

from __future__ import annotations

import json
import re

import pytest
from tests.acceptance.example_runs import EXAMPLES, call
from tests.browser import install
from tests.browser.real import variables

FOLDERS = sorted(path.parent.name for path in EXAMPLES.glob("*/workflow.yaml"))


@pytest.mark.parametrize("example", FOLDERS)
def test_an_example_validates_without_errors_and_warnings(example, tmp_path, monkeypatch):
    if example == "back-office":  # its server is asked what it offers, which starts no browser
        monkeypatch.setenv("OFFICE_PASSWORD", "not-needed-for-this")
        for variable, value in variables(install.browser(), tmp_path).items():
            monkeypatch.setenv(variable, value)
    for file in sorted(set((EXAMPLES / example).glob("*.yaml")) - {EXAMPLES / example / "people.yaml"}):
        problems = json.loads(call("validate", str(file), "--json"))
        assert [problem for problem in problems if problem["severity"] != "note"] == []


@pytest.mark.parametrize("example", FOLDERS)
def test_an_example_is_explained_and_its_readme_names_files_that_exist(example):
    text = (EXAMPLES / example / "README.md").read_text("utf-8")
    assert text.startswith("# ")
    for path in re.findall(r"examples/[\w./-]+", text):
        assert (EXAMPLES.parent / path).exists(), path


@pytest.mark.parametrize("example", FOLDERS)
def test_an_example_is_in_the_list_of_examples_and_has_a_test_of_its_own(example):
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    assert f"]({example}/README.md)" in listed
    name = f"test_example_{example.replace('-', '_')}.py"
    assert (EXAMPLES.parent / "tests" / "acceptance" / name).exists()


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/*.test.yaml")), ids=lambda file: file.parent.name)
def test_an_examples_own_tests_pass_also_after_a_crash_at_any_point(file):
    call("test", str(file), "--crash")


@pytest.mark.models
@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/recipes/*.yaml")), ids=lambda file: file.stem)
def test_an_examples_recipes_are_right_and_pass_their_own_tests(file):
    assert json.loads(call("validate", str(file), "--json")) == []
    if "@" not in file.stem:  # another version, which an evaluation compares with the first
        told = json.loads(call("recipes", "try", str(file), "--json"))
        assert told["passed"] > 0
