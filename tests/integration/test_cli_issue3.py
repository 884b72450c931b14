"""`stepwell fmt`, `graph`, `schema`, `explain`, and what `validate` says of calls, on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from stepwell.cli.app import stepwell

SCRIPT = str(Path(sys.executable).with_name("stepwell"))
SPELT = "# mine\nworkflow: w\nsteps:\n- {stepId: a, type: humanApproval, dependsOn: [], config: {title: x}}  # ask\n"
PLAIN = '# mine\nworkflow: w\nversion: "1.0"\n'


def call(*args: object, text: str | bytes | None = None) -> Result:
    return CliRunner().invoke(stepwell, [str(arg) for arg in args], input=text)


def test_fmt_rewrites_in_place_keeps_the_mode_and_is_done_at_once(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(SPELT)
    file.chmod(0o640)
    told = call("fmt", file)
    assert (told.exit_code, told.output) == (0, f"{file}: rewritten\n")
    text = file.read_text()
    assert text.startswith(PLAIN)
    assert "{id: a, type: approval, depends_on: [], title: x}  # ask" in text
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["w.yaml"]
    before = file.stat().st_mtime_ns
    assert (call("fmt", file).exit_code, call("fmt", "--check", file).exit_code) == (0, 0)
    assert file.stat().st_mtime_ns == before


def test_fmt_follows_a_link_to_the_file_behind_it(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text(SPELT)
    (tmp_path / "link.yaml").symlink_to("real.yaml")
    assert call("fmt", tmp_path / "link.yaml").exit_code == 0
    assert (tmp_path / "link.yaml").is_symlink()
    assert (tmp_path / "real.yaml").read_text().startswith(PLAIN)


def test_fmt_check_only_tells(tmp_path: Path) -> None:
    spelt, plain = tmp_path / "spelt.yaml", tmp_path / "plain.yaml"
    spelt.write_text(SPELT)
    plain.write_text("workflow: w\nsteps: [{id: a, type: set, values: {}}]\n")
    told = call("fmt", "--check", spelt, plain)
    assert (told.exit_code, told.output) == (1, f"{spelt}: would change\n")
    assert spelt.read_text() == SPELT


def test_fmt_leaves_a_wrong_file_as_it_is_and_formats_the_others(tmp_path: Path) -> None:
    wrong, right = tmp_path / "wrong.yaml", tmp_path / "right.yaml"
    wrong.write_text("workflow: w\nsteps:\n- {stepId: a, type: nope}\n")
    right.write_text(SPELT)
    told = call("fmt", wrong, right)
    assert told.exit_code == 1
    assert f"{wrong}:3:" in told.stderr
    assert "unknown step type" in told.stderr
    assert "stepId" in wrong.read_text()
    assert right.read_text().startswith(PLAIN)


def test_fmt_refuses_what_is_no_text_and_what_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_bytes(b"workflow: \xff\xfe\n")
    told = call("fmt", file)
    assert told.exit_code == 1
    assert "not UTF-8" in told.stderr
    assert call("fmt", tmp_path / "none.yaml").exit_code == 2
    assert call("fmt", tmp_path).exit_code == 2
    assert call("fmt", "-", file).exit_code == 2


def test_fmt_reads_and_writes_the_standard_streams() -> None:
    def piped(*args: str, text: bytes) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([SCRIPT, "fmt", *args], input=text, capture_output=True, check=False)

    done = piped("-", text=SPELT.replace("\n", "\r\n").encode())
    assert done.returncode == 0
    assert done.stdout.startswith(PLAIN.replace("\n", "\r\n").encode())
    wrong = piped("-", text=b"steps: 5\n")
    assert (wrong.returncode, wrong.stdout) == (1, b"")
    assert piped("--check", "-", text=SPELT.encode()).returncode == 1
    assert json.loads(piped("-", text=b'{"workflow": "w", "steps": [{"id": "a", "type": "set", "values": {}}]}').stdout)


def test_a_run_keeps_its_digest_when_its_file_is_formatted(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("workflow: w\nsteps:\n- {id: a, type: set, config: {values: {x: 1}}}\n")
    environ = os.environ | {"STEPWELL_DATABASE": f"sqlite:///{tmp_path}/s.db"}
    runs = []
    for _ in range(2):
        command = [SCRIPT, "run", str(file), "--json", "--idempotency-key", "k"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout.splitlines()[-1])["run"])
        assert call("fmt", file).exit_code == 0
    assert runs[0] == runs[1]
    assert "config" not in file.read_text()


def test_graph_draws_in_three_ways(tmp_path: Path) -> None:
    file, image = tmp_path / "w.yaml", tmp_path / "w.svg"
    file.write_text("workflow: w\nsteps:\n- {id: a, type: approval, title: x}\n- {id: b, type: set, values: {}}\n")
    assert call("graph", file).output == "w\n├─ a  ● approval\n└─ b  set\n"
    assert "n1 --> n2" in call("graph", file, "--format", "mermaid").output
    assert call("graph", file, "--output", image).exit_code == 0
    assert image.read_text().startswith("<svg ")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("workflow: w\nsteps: []\n")
    assert call("graph", wrong).exit_code == 2


def test_graph_takes_the_format_from_the_ending_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("workflow: w\nsteps: [{id: a, type: set, values: {}}]\n")
    for name, start in {"g.svg": "<svg", "g.mmd": "flowchart", "g.md": "```mermaid\nflowchart", "g.txt": "w\n"}.items():
        assert call("graph", file, "--output", tmp_path / name).exit_code == 0
        assert start in (tmp_path / name).read_text()[:300]
    refused = call("graph", file, "--output", tmp_path / "g.png")
    assert refused.exit_code == 2
    assert ".svg" in refused.stderr
    assert not (tmp_path / "g.png").exists()
    assert call("graph", file, "--output", tmp_path / "g.png", "--format", "svg").exit_code == 0


def test_graph_draws_what_this_version_would_not_perform(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("workflow_id: w\nsteps:\n- {step_id: a, type: set, config: {values: {}}}\n")
    assert call("graph", file).output == "w\n└─ a  set\n"


@pytest.mark.parametrize("what", ["workflow", "recipe"])
def test_schema_prints_a_schema(what: str, tmp_path: Path) -> None:
    printed = json.loads(call("schema", what).output)
    jsonschema.Draft202012Validator.check_schema(printed)
    assert call("schema", what, "--output", tmp_path / "s.json").exit_code == 0
    assert json.loads((tmp_path / "s.json").read_text()) == printed


def test_explain_tells_a_parked_run_and_the_command_that_moves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.yaml").write_text(
        "workflow: w\ninput: {type: object, properties: {n: {type: integer}}}\nsteps:\n"
        "- {id: no, type: set, condition: workflow_input.n > 5, values: {}}\n"
        '- {id: ask, type: approval, title: "Pay \\e[2J?"}\n- {id: after, type: set, values: {}}\n'
    )
    assert call("run", "w.yaml", "-i", "n=3").exit_code == 3
    run = json.loads(call("runs", "list", "--json").output)[0]["id"]
    told = call("explain", run[-8:])
    assert told.exit_code == 0
    assert "pending approval. It is parked: nothing can move until a person decides." in told.output
    assert "Its condition `workflow_input.n > 5` was false: workflow_input.n is 3." in told.output
    assert "It comes after ask, which has not settled." in told.output
    assert "\x1b" not in told.output
    row = json.loads(call("explain", run, "--json").output)
    assert [step["path"] for step in row["steps"]] == ["/no", "/ask", "/after"]
    approve = next(command for command in row["commands"] if " approve " in command)
    assert approve in told.output
    assert call(*approve.split()[1:]).exit_code == 0
    assert "It completed at " in call("explain", run).output
    assert call("explain", "nothing").exit_code == 2


def test_validate_tells_circles_and_wrong_calls_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "workflow: a\nsteps:\n"
        "- {id: s, type: sub_workflow, workflow: b, inputs: {x: 5, zz: 1}}\n"
        "- {id: t, type: sub_workflow, workflow: nope}\n"
        '- {id: u, type: sub_workflow, workflow: "{{workflow_input.any}}"}\n'
        "- {id: r, type: recipe, recipe: mood, inputs: {txt: a}}\n"
    )
    (tmp_path / "b.yaml").write_text(
        "workflow: b\ninput: {type: object, required: [x, z, d], properties: {x: {type: string}, z: {}, d: {default: 1}}}\n"
        "steps:\n- {id: s, type: sub_workflow, workflow: a}\n"
    )
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/mood.yaml").write_text(
        'recipe: mood\nprompt: "{{input.text}}"\n'
        "input: {type: object, required: [text], properties: {text: {type: string}}, additionalProperties: false}\n"
    )
    told = call("validate", tmp_path / "a.yaml", "--json")
    assert told.exit_code == 1
    found = [(row["line"], row["code"], row["severity"], row["message"]) for row in json.loads(told.output)]
    assert found == [
        (3, "recursion", "error", "workflows call each other in a circle: a > b > a"),
        (3, "input", "error", "the workflow 'b' needs the input 'z'"),
        (3, "input", "error", "the input 'x' of the workflow 'b' does not fit: 5 is not of type 'string'"),
        (3, "input", "warning", "the workflow 'b' declares no input 'zz'"),
        (4, "workflow", "error", "there is no workflow 'nope'"),
        (6, "input", "error", "the recipe needs the input 'text'"),
        (6, "input", "error", "the recipe declares no input 'txt'"),
    ]


def test_calls_that_fit_are_right(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "workflow: a\nsteps:\n- {id: s, type: sub_workflow, workflow: b, inputs: {x: '{{run.id}}'}}\n"
        "- {id: t, type: sub_workflow, workflow: b, inputs: {x: text}}\n"
    )
    (tmp_path / "b.yaml").write_text(
        "workflow: b\ninput: {type: object, required: [x], properties: {x: {type: string}}}\n"
        "steps:\n- {id: s, type: set, values: {}}\n"
    )
    assert call("validate", tmp_path / "a.yaml").output == f"{tmp_path / 'a.yaml'}: right\n"


def test_validate_checks_a_test_file_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("workflow: a\nsteps:\n- {id: s, type: set, values: {n: 1}}\n")
    file = tmp_path / "a.test.yaml"
    file.write_text("workflow: a.yaml\ntests:\n- {name: counts, expect: {output: {n: 1}}}\n")
    assert call("validate", file).output == f"{file}: right\n"
    file.write_text("workflow: a.yaml\ntests:\n- {name: counts, expects: {output: {n: 1}}}\n")
    (problem,) = json.loads(call("validate", file, "--json").output)
    assert (problem["line"], problem["hint"]) == (3, "did you mean 'expect'?")
