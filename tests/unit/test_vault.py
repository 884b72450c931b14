"""Secrets in arguments: names in the journal, values in the call, and nothing that is data ever becomes one."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from stepwell.engine.secret import Secret
from stepwell.engine.settings import Settings
from stepwell.engine.vault import SCRIPTED, Vault
from stepwell.errors import DefinitionError, StepFailed
from stepwell.expressions import SecretName, compile_template
from stepwell.interpreter.effect import SecretText, ToolCall, digest, encoded


def vault(**values: str) -> Vault:
    return Vault({name: Secret(value, f"env:{name}") for name, value in values.items()})


def call(**named) -> ToolCall:
    shown = {"headers": {"auth": "Bearer {{secret.KEY}}"}, "text": "{{secret.KEY}}", "list": [{"k": "{{secret.KEY}}"}]}
    places = (
        SecretText(("headers", "auth"), ("Bearer ", SecretName("KEY"))),
        SecretText(("list", 0, "k"), (SecretName("KEY"),)),
    )
    return ToolCall("t", shown, secrets=places, **named)


def test_a_text_shows_the_reference_and_says_where_the_value_belongs():
    template = compile_template("Bearer {{ secret.KEY }} for {{workflow_input.who}}")
    context = {"workflow_input": {"who": "{{secret.KEY}}"}}
    assert template.render(context) == "Bearer {{secret.KEY}} for {{secret.KEY}}"
    assert template.pieces(context) == ("Bearer ", "KEY", " for ", "{{secret.KEY}}")
    assert [type(piece) for piece in template.pieces(context)] == [str, SecretName, str, str]


def test_only_the_places_that_the_definition_names_are_revealed():
    effect = call()
    revealed = vault(KEY="CANARY").reveal(effect)
    assert revealed.call == {"headers": {"auth": "Bearer CANARY"}, "text": "{{secret.KEY}}", "list": [{"k": "CANARY"}]}
    assert effect.call["headers"] == {"auth": "Bearer {{secret.KEY}}"}
    assert b"CANARY" not in encoded(effect)


def test_a_value_that_looks_like_a_reference_is_a_value():
    both = vault(KEY="{{secret.OTHER}}", OTHER="CANARY")
    assert both.reveal(call()).call["list"] == [{"k": "{{secret.OTHER}}"}]


def test_an_edited_argument_is_data_and_one_left_as_shown_keeps_its_secret():
    effect = call()
    edited = effect.edited({"list": [{"k": "mine"}], "text": "{{secret.KEY}}"})
    revealed = vault(KEY="CANARY").reveal(edited)
    assert revealed.call == {"headers": {"auth": "Bearer CANARY"}, "text": "{{secret.KEY}}", "list": [{"k": "mine"}]}
    again = effect.edited({"headers": {"auth": "Bearer {{secret.KEY}}", "more": "1"}, "list": "none"})
    assert vault(KEY="CANARY").reveal(again).call["headers"] == {"auth": "Bearer CANARY", "more": "1"}


def test_the_digest_tells_a_secret_from_the_same_text():
    data = ToolCall("t", call().call)
    assert digest(data, encoded(data)) != digest(call(), encoded(call()))


def test_what_is_missing_is_said_with_how_to_mend_it():
    one = Vault({"KEY": Secret.of_environment("NOT_SET", {}), "PIN": Secret("123", "env:PIN")})
    with pytest.raises(StepFailed, match="auth_error: the secret 'KEY' is not there: the environment variable NOT_SET"):
        one.reveal(call())
    assert list(one.problems("KEYS")) == [("there is no secret 'KEYS'", "did you mean 'KEY'?")]
    assert next(iter(Vault().problems("KEY")))[1] == 'write KEY = "env:KEY" under [secrets] in stepwell.toml'
    assert "fewer than 4 characters" in next(iter(one.problems("PIN")))[0]
    assert "123" not in str(list(one.problems("PIN")))
    assert SCRIPTED.reveal(call()) == call()


def test_secrets_are_named_in_the_settings_and_never_written_there(tmp_path):
    (tmp_path / "token.txt").write_text("from-a-file\n")
    toml = tmp_path / "stepwell.toml"
    toml.write_text('[secrets]\nA = "env:A_VALUE"\nB = "file:token.txt"\nC = "env:NOWHERE"\n')
    found = Settings.load(
        tmp_path, {"A_VALUE": "from-env", "STEPWELL_SECRETS_C": "given", "STEPWELL_SECRETS_D": "env:A_VALUE"}
    )
    assert {name: secret.reveal() for name, secret in found.secrets.items()} == {
        "A": "from-env", "B": "from-a-file", "C": "given", "D": "from-env"
    }  # fmt: skip
    assert "from-env" not in repr(found)
    toml.write_text('[secrets]\nA = "sk-very-secret"\n"b-c" = "env:X"\n')
    with pytest.raises(DefinitionError) as wrong:
        Settings.load(tmp_path, {})
    assert "sk-very-secret" not in str(wrong.value)
    assert [problem.line for problem in wrong.value.problems] == [2, 3]


def test_what_a_command_prints_and_logs_holds_no_secret(tmp_path):
    (tmp_path / "stepwell.toml").write_text('[secrets]\nKEY = "env:KEY_VALUE"\n')
    made = logging.getLogRecordFactory()
    script = textwrap.dedent("""
        import logging, os, sys
        from pathlib import Path
        from stepwell.cli.guard import guard_output
        from stepwell.engine.settings import Settings
        guard_output(Settings.load(Path.cwd(), os.environ))
        guard_output(Settings.load(Path.cwd(), os.environ))
        key = os.environ["KEY_VALUE"]
        print("one", key); print(key[:5], end=""); sys.stdout.flush(); print(key[5:], "CANA", end="")
        logging.warning("said %s", key)
        try:
            raise ValueError(key)
        except ValueError:
            logging.exception("failed")
        import click
        click.echo(key); click.echo(key, err=True)
        raise SystemExit(key)
    """)
    told = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"KEY_VALUE": "CANARY-9f3", "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )  # fmt: skip
    assert "CANARY" not in told.stdout + told.stderr
    assert told.stdout == "one [secret KEY]\n[secret KEY] CANA[secret KEY]\n"
    assert told.stderr.count("[secret KEY]") == 4
    assert logging.getLogRecordFactory() is made


def test_of_an_address_only_the_password_is_secret():
    addresses = {"a": Secret("redis://u:pa%2Fss-word@host:6379/0", "env:A"), "b": Secret("redis://host/0", "env:B")}
    hide = Vault(others=addresses | {"key": Secret("sk-12345", "env:C")}).redactor
    assert hide.text("no pa/ss-word pa%2Fss-word to redis://host/0") == "no [secret a] [secret a] to redis://host/0"
    assert hide.text("sk-12345") == "[secret key]"
