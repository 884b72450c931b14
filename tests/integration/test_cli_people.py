"""`stepwell users`, `audit`, and who one is on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stepwell.cli.app import stepwell

GATE = "workflow: w\nsteps:\n- {id: g, type: approval, title: ok?}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("STEPWELL_USER", "STEPWELL_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "w.yaml").write_text(GATE)
    return tmp_path


def call(*args: str) -> Result:
    return CliRunner().invoke(stepwell, list(args))


def told(*args: str) -> Any:
    result = call(*args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def requester() -> str:
    return told("runs", "list")[0]["requester"]


def test_people_are_added_shown_replaced_and_removed() -> None:
    assert told("users", "list") == []
    first = call("users", "add", "ana", "--email", "ana@example.org", "--role", "finance", "--role", "approver")
    assert first.exit_code == 0
    assert "from now on the rules about people count" in first.stdout
    assert told("users", "show", "ANA@example.org") == {
        "name": "ana", "email": "ana@example.org", "roles": ["approver", "finance"], "departments": [], "display": ""
    }  # fmt: skip
    again = call("users", "add", "ana")
    assert (again.exit_code, "--replace" in again.stderr) == (2, True)
    assert told("users", "add", "ana", "--department", "care", "--replace")[0]["departments"] == ["care"]
    assert "ana" in call("users", "list").stdout
    gone = call("users", "remove", "ana")
    assert "nobody is known any more" in gone.stdout
    missing = call("users", "show", "ana")
    assert (missing.exit_code, "users list" in missing.stderr) == (2, True)


def test_a_list_is_imported_whole_or_not_at_all(folder: Path) -> None:
    call("users", "add", "bo")
    file = folder / "people.yaml"
    file.write_text("- {name: ana, roles: [approver]}\n- {name: BO}\n- {nam: x}\n- {name: eve, roles: [No Role]}\n")
    wrong = call("users", "import", str(file))
    assert wrong.exit_code == 2
    assert [line.split(":")[1] for line in wrong.stderr.splitlines() if "error[" in line] == ["2", "3", "3", "4"]
    assert [one["name"] for one in told("users", "list")] == ["bo"]
    file.write_text("- {name: ana, roles: [approver]}\n- {name: bo, roles: [viewer]}\n")
    assert call("users", "import", str(file)).exit_code == 2
    assert call("users", "import", str(file), "--replace").exit_code == 0
    assert [one["roles"] for one in told("users", "list")] == [["approver"], ["viewer"]]
    (folder / "none.csv").write_text("name,roles\n")
    assert "names nobody" in call("users", "import", "none.csv").stderr
    (folder / "p.txt").write_text("ana")
    assert call("users", "import", "p.txt").exit_code == 2


def test_who_one_is_comes_from_the_option_the_environment_the_settings(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("run", "w.yaml").exit_code == 3
    assert requester() == "local operator"
    for name in ("ana", "bo", "carla"):
        call("users", "add", name, "--role", "approver")
    (folder / "stepwell.toml").write_text('[project]\nuser = "carla"\n')
    call("run", "w.yaml")
    assert requester() == "carla"
    monkeypatch.setenv("STEPWELL_USER", "bo")
    call("run", "w.yaml")
    assert requester() == "bo"
    call("run", "w.yaml", "--as", "ana")
    assert requester() == "ana"


def test_an_unknown_name_is_refused_and_both_are_in_the_trail() -> None:
    call("users", "add", "ana", "--role", "approver")
    refused = call("run", "w.yaml", "--as", "eve", "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["error"]["kind"]) == (1, "forbidden")
    assert "users list" in refused.stderr
    call("run", "w.yaml")
    run = told("runs", "list")[0]["id"]
    assert call("runs", "cancel", run, "--as", "ana").exit_code == 1
    assert call("runs", "cancel", run).exit_code == 0
    trail = told("audit")
    assert [(one["by"], one["action"]) for one in trail] == [
        ("local operator", "run.cancel"), ("ana", "run.cancel.refused"), ("local operator", "run.start"),
        ("eve", "person.unknown"), ("local operator", "person.add"),
    ]  # fmt: skip
    assert {one["channel"] for one in trail} == {"cli"}
    assert all("@" in one["origin"] for one in trail)
    assert len(told("audit", "--object", run)) == 3
    assert [one["action"] for one in told("audit", "--by", "eve")] == ["person.unknown"]
    assert told("audit", "-n", "1", "--before", str(trail[0]["order"])) == trail[1:2]
    shown = call("audit", "-n", "2").stdout
    assert "run.cancel.refused" in shown
    assert f"--before {trail[1]['order']}" in shown


def test_names_that_could_steer_a_terminal_are_refused_and_shown_harmless() -> None:
    for name in ("a\x1b[31m", "a\u202eb", "a\u200bb"):
        for args in (["users", "add", name], ["run", "w.yaml", "--as", name]):
            refused = call(*args)
            assert refused.exit_code == 2, args
            assert name not in refused.output
    assert told("users", "list") == []


def test_doctor_says_how_it_stands_with_people() -> None:
    def said() -> dict[str, str]:
        result = call("doctor", "--json")
        return next(one for one in json.loads(result.stdout) if one["code"] == "people")

    before = said()
    assert (before["severity"], "users add" in before["hint"]) == ("note", True)
    call("users", "add", "ana")
    assert said()["severity"] == "warning"
    call("users", "add", "bo", "--role", "approver")
    assert (said()["severity"], said()["message"][:8]) == ("note", "2 people")
