"""`stepwell keys`: made once, listed without what they are, taken back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stepwell.cli.app import stepwell
from stepwell.people.keys import digest_of


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def call(*arguments, code=0):
    done = CliRunner().invoke(stepwell, arguments)
    assert done.exit_code == code, done.output
    return done


def test_a_key_is_shown_once_and_kept_as_a_digest_alone():
    call("users", "add", "bo", "--role", "admin")
    assert "users list" in call("keys", "create", "ana", code=2).output
    call("users", "add", "ana", "--role", "approver")
    made = json.loads(call("keys", "create", "ana", "--note", "laptop", "--json").stdout)
    assert made["person"] == "ana"
    (told,) = json.loads(call("keys", "list", "--json").stdout)
    assert (told["id"], told["note"], told["revoked_at"]) == (made["id"], "laptop", None)
    assert "holds" in call("keys", "list").stdout
    stored = b"".join(file.read_bytes() for file in Path().glob("stepwell.db*"))
    assert made["key"].encode() not in stored
    assert digest_of(made["key"]).encode() in stored
    assert "revoked" in call("keys", "revoke", made["id"]).stdout
    assert "revoked" in call("keys", "list").stdout
    assert "there is no key" in call("keys", "revoke", "nothing", code=2).output
    acts = [one["action"] for one in json.loads(call("audit", "--json").stdout)]
    assert acts[:2] == ["key.revoke", "key.create"]


def test_only_who_keeps_the_directory_makes_keys():
    call("users", "add", "ana", "--role", "approver")
    assert "may not" in call("keys", "create", "ana", "--as", "ana", code=1).output


@pytest.mark.parametrize(
    ("given", "said"),
    [("swk_1_abc", "never the key itself"), ("env:NOT_SET", "NOT_SET is not set"), ("file:no.key", "cannot be read")],
)
def test_a_server_that_is_given_no_key_where_one_is_named_does_not_begin(given, said):
    assert said in call("mcp", "--key", given, code=2).output
