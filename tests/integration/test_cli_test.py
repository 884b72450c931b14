"""`stepwell test`: what it runs, how it tells failures, and what it says of a wrong file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stepwell.cli.app import stepwell

REFUND = """
workflow: refund
input: {type: object, required: [amount], properties: {amount: {type: number}}}
steps:
  - id: decide
    type: condition
    when: workflow_input.amount > 100
    then:
      - {id: sign-off, type: approval, expires_in: 7d}
    else:
      - {id: note, type: tool_call, tool: note}
  - {id: pay, type: tool_call, tool: pay, arguments: {amount: "{{workflow_input.amount}}"}}
output: {reference: "{{step.pay.reference}}"}
"""
TESTS = """
workflow: refund.yaml
mock:
  pay: {output: {reference: R1}}
tests:
  - name: a large refund asks a person
    input: {amount: 900}
    mock:
      sign-off: {decision: approved, by: ana, delay: 2h}
      pay: [{error: {kind: timeout, message: slow}}, {output: {reference: R1}}]
    expect:
      output: {reference: R1}
      steps: {pay: {attempts: 2}, decide/else: skipped, decide/then: completed, note: skipped}
      calls: {pay: 2}
      that: ['output.reference.startsWith("R")', "calls.pay == 2"]
"""
SMALL = """
  - name: a small one does not
    input: {amount: 10}
    mock: {note: {output: null}}
    expect: {calls: {pay: [{amount: 10}]}, steps: {sign-off: skipped}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "refund.yaml").write_text(REFUND)
    (tmp_path / "refund.test.yaml").write_text(TESTS)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(stepwell, ["test", *arguments])


def test_tests_are_found_run_and_told_with_what_never_ran(folder: Path) -> None:
    done = run()
    assert done.exit_code == 0, done.output
    assert "✓ a large refund asks a person  (2 h in" in done.output
    assert "refund: 4 of 6 steps and branches ran" in done.output
    assert "never run: /decide/else" in done.output
    (folder / "refund.test.yaml").write_text(TESTS + SMALL)
    done = run(str(folder))
    assert done.exit_code == 0, done.output
    assert "refund: 6 of 6 steps and branches ran" in done.output
    assert "2 passed" in done.output


def test_with_crashes_every_test_ends_the_same_way(folder: Path) -> None:
    del folder
    done = run("--crash", "--json")
    assert done.exit_code == 0, done.output
    [one] = json.loads(done.output)["tests"]
    assert one["crashes"] > 3
    assert one["passed"]


def test_a_failure_shows_what_was_expected_and_where_that_is_written(folder: Path) -> None:
    wrong = TESTS.replace("R1}\n      steps: {pay: {attempts: 2}", "R2}\n      steps: {pay: {attempts: 3}")
    (folder / "refund.test.yaml").write_text(wrong)
    done = run()
    assert done.exit_code == 1
    assert "output.reference  (refund.test.yaml:12)" in done.output
    assert '      expected  "R2"\n      found     "R1"' in done.output
    assert "step pay: attempts  (refund.test.yaml:13)" in done.output
    assert "✓ /pay completed (2 attempts)" in done.output  # the run as a tree
    told = json.loads(run("--json").output)
    assert (told["passed"], told["failed"]) == (0, 1)
    assert [one["what"] for one in told["tests"][0]["differences"]] == ["output.reference", "step pay: attempts"]
    assert [one["line"] for one in told["tests"][0]["differences"]] == [12, 13]


def test_a_step_without_a_script_fails_its_test_and_the_others_go_on(folder: Path) -> None:
    (folder / "refund.test.yaml").write_text(TESTS + "  - {name: nothing is scripted, input: {amount: 1}}\n")
    done = run()
    assert done.exit_code == 1
    assert "these steps ran and have no script:\n      note: {output: ...}" in done.output
    assert "1 passed, 1 failed" in done.output


def test_every_problem_of_every_file_is_told_at_once_with_its_place(folder: Path) -> None:
    (folder / "wrong.test.yaml").write_text(
        """\
workflow: refund.yaml
tests:
  - name: wrong in many ways
    mock: {payy: {output: 1}, sign-off: {decison: x}, decide: {output: 1}}
    expect: {statos: x, that: ["output.x ==", "outpt == 1"], steps: {pai: skipped}}
  - name: wrong in many ways
    start: tomorrow
    jumps: [{after: soon, hours: 1}, {hours: x}]
    expect: {status: done}
"""
    )
    (folder / "other.test.yaml").write_text("workflow: none.yaml\ntests: [{name: a}]\n")
    done = run()
    assert done.exit_code == 2
    places = [line.partition(": error")[0] for line in done.output.splitlines() if ": error[" in line]
    assert places[1:] == [
        f"wrong.test.yaml:{place}"
        for place in (
            "4:12", "4:31", "4:55", "5:14", "5:32", "5:47", "5:70", "6:5", "7:5", "8:14", "8:38", "9:14",
        )
    ]  # fmt: skip
    assert "none.yaml: error[file]" in done.output
    assert "did you mean 'pay'?" in done.output


def test_wrong_use_is_told(folder: Path) -> None:
    assert run("nowhere").exit_code == 2
    assert run("-k", "no such test").exit_code == 2
    (folder / "refund.test.yaml").unlink()
    done = run()
    assert done.exit_code == 2
    assert "*.test.yaml" in done.output
