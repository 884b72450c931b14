"""`stepwell recipes` on the command line, against a provider over real HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stepwell.cli.app import stepwell
from stepwell.testing.provider_server import ProviderServer, Received, Reply

SORT = """\
recipe: sort
version: "1"
prompt: "Sort: {{input.ticket}}"
system: Be exact.
input: {type: object, required: [ticket], properties: {ticket: {type: string, minLength: 1}}}
output_schema:
  type: object
  required: [label, amount]
  additionalProperties: false
  properties: {label: {enum: [refund, billing]}, amount: {type: number}}
model: {temperature: 0}
tests:
  - name: a refund
    input: {ticket: refund 5}
    expect: {label: refund, amount: {min: 5}}
  - name: never right
    input: {ticket: billing 1}
    expect: {label: refund}
"""
TABLE = """\
ticket,expected.label,expected.amount
refund 1,refund,1
billing 2,billing,2
refund 3,billing,3
"refund 4, please",refund,4
chat,refund,5
down,billing,6
"""


class Served:
    """A provider in a thread of its own; `answer` says what it does with the text of a question."""

    def __init__(self) -> None:
        self.answer: Callable[[str, str], Reply] = by_words
        self.server: ProviderServer | None = None
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))
        self._thread.start()
        assert self._ready.wait(30)

    async def _serve(self) -> None:
        async with ProviderServer(self._reply) as self.server:
            self._ready.set()
            await self._stop.wait()

    def _reply(self, received: Received) -> Reply:
        return self.answer(received.json["messages"][-1]["content"], received.json["model"])

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._loop.close()


def by_words(text: str, model: str) -> Reply:
    """The label and the number in a ticket; no JSON for `chat`, and never an answer for `down`."""
    ticket = text.partition("Sort: ")[2].partition("\n")[0]
    if ticket == "chat":
        return Reply("I would rather talk.")
    if ticket == "down":
        return Reply(status=503, headers={"Retry-After": "0.01"})
    label, number = ticket.split()[:2]
    if model == "worse":
        label = "billing"
    return Reply(json.dumps({"label": label, "amount": float(number.strip(","))}))


@pytest.fixture
def provider() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: Served) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("STEPWELL_USER", "STEPWELL_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/sort.yaml").write_text(SORT, "utf-8")
    (tmp_path / "table.csv").write_text(TABLE, "utf-8")
    assert provider.server is not None
    monkeypatch.setenv("TEST_PROVIDER_KEY", provider.server.key)
    models = [
        f'[models.{name}]\nprovider = "openai"\nbase_url = "{provider.server.base_url}"\n'
        f'api_key = "env:TEST_PROVIDER_KEY"\nmodel = "{name}"\n'
        for name in ("good", "worse")
    ]
    head = '[project]\nrecipes = "recipes"\ndefault_model = "good"\n'
    (tmp_path / "stepwell.toml").write_text(head + "\n".join(models), "utf-8")
    return tmp_path


def call(*args: str, code: int = 0, typed: str = "") -> Result:
    result = CliRunner().invoke(stepwell, list(args), input=typed)
    assert result.exit_code == code, result.output
    return result


def told(*args: str, code: int = 0) -> Any:
    return json.loads(call(*args, "--json", code=code).stdout)


def edited(folder: Path, old: str, new: str, name: str = "sort.yaml") -> None:
    file = folder / "recipes" / name
    text = (folder / "recipes/sort.yaml").read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


# ── versions ──


def test_a_recipe_is_published_once_under_each_version(folder: Path) -> None:
    [first] = told("recipes", "publish", "recipes/sort.yaml", "--note", "the first")
    assert (first["id"], first["version"], first["note"], first["new"]) == ("sort", "1", "the first", True)
    assert "nothing to publish" in call("recipes", "publish", "recipes/sort.yaml").stdout
    edited(folder, "Be exact.", "Be quick.")
    refused = call("recipes", "publish", "recipes/sort.yaml", code=1)
    assert 'such as  version: "2"' in refused.stderr
    edited(folder, 'version: "1"', 'version: "2"')
    call("recipes", "publish", "recipes/sort.yaml")
    assert [one["version"] for one in told("recipes", "versions", "sort")] == ["2", "1"]
    listed = told("recipes", "list")
    assert [(one["version"], one["source"]) for one in listed] == [
        ("2", "file"),
        ("2", "published"),
        ("1", "published"),
    ]
    assert "Be exact." in call("recipes", "show", "sort@1", "--text").stdout
    assert told("recipes", "show", "sort@1")["file"] == "library:sort@1"
    shown = call("recipes", "diff", "sort@1", "recipes/sort.yaml", code=1).stdout
    assert '~ system: "Be exact." → "Be quick."' in shown
    assert '· version: "1" → "2"' in shown
    assert "no difference" in call("recipes", "diff", "sort", "library:sort@2").stdout
    assert "deleted sort@1" in call("recipes", "delete", "sort@1").stdout
    gone = call("recipes", "show", "sort@1", code=2)
    assert "recipe 'sort' has no version '1'; there is 2" in gone.stderr
    assert "recipes list" in gone.stderr
    acts = [(one["action"], one["object"]) for one in told("audit")]
    assert acts[0] == ("recipe.delete", "sort@1")
    assert ("recipe.publish", "sort@2") in acts


def test_wrong_names_are_told_with_what_there_is() -> None:
    assert "did you mean 'sort'" in call("recipes", "show", "sotr", code=2).stderr
    assert "recipes show sort" in call("recipes", "sort", code=2).stderr
    call("recipes", "publish", "recipes/sort.yaml")
    assert "no version of the recipe 'mood' is published" in call("recipes", "versions", "mood", code=2).stderr
    assert "write sort@VERSION" in call("recipes", "delete", "sort", code=2).stderr
    assert "it has 1" in call("recipes", "delete", "sort@3", code=2).stderr


def test_who_may_not_publish_is_refused_and_noted() -> None:
    call("users", "add", "ana", "--role", "viewer")
    call("users", "add", "eva", "--role", "editor")
    call("recipes", "publish", "recipes/sort.yaml", "--as", "ana", code=1)
    call("recipes", "publish", "recipes/sort.yaml", "--as", "eva")
    call("recipes", "delete", "sort@1", "--as", "ana", code=1)
    acts = [(one["by"], one["action"], one["object"]) for one in told("audit")]
    assert ("ana", "recipe.publish.refused", "sort@1") in acts
    assert ("ana", "recipe.delete.refused", "sort@1") in acts
    assert ("eva", "recipe.publish", "sort@1") in acts


WORKFLOW = """\
workflow: w
steps:
  - {id: ask, type: approval, title: go on?}
  - {id: sort, type: recipe, recipe: SORT, inputs: {ticket: refund 7}}
"""


def test_a_parked_run_keeps_its_recipe_and_the_library_keeps_what_it_pinned(folder: Path, provider: Served) -> None:
    call("recipes", "publish", "recipes/sort.yaml")
    edited(folder, 'version: "1"', 'version: "2"')
    (folder / "w.yaml").write_text(WORKFLOW.replace("SORT", "sort@1"), "utf-8")
    call("validate", "w.yaml")
    call("run", "w.yaml", code=3)
    run = told("runs", "list")[0]["id"]
    refused = call("recipes", "delete", "sort@1", code=1)
    assert run in refused.stderr
    for file in ("recipes/sort.yaml", "w.yaml"):
        (folder / file).unlink()
    call("approvals", "approve", told("approvals", "list")[0]["id"])
    step = next(one for one in told("runs", "show", run)["steps"] if one["id"] == "sort")
    assert step["output"] == {"label": "refund", "amount": 7.0}
    assert step["input"]["recipe"] == "sort@1"
    assert provider.server is not None
    assert provider.server.requests[-1].json["messages"][0] == {"role": "system", "content": "Be exact."}
    call("recipes", "delete", "sort@1")


def test_editing_a_file_never_touches_a_parked_run(folder: Path, provider: Served) -> None:
    (folder / "w.yaml").write_text(WORKFLOW.replace("SORT", "sort"), "utf-8")
    call("run", "w.yaml", code=3)
    edited(folder, "Be exact.", "Say what you like.")
    call("approvals", "approve", told("approvals", "list")[0]["id"])
    assert provider.server is not None
    assert provider.server.requests[-1].json["messages"][0]["content"] == "Be exact."


def test_a_step_that_names_a_missing_version_is_told_which_there_are(folder: Path) -> None:
    call("recipes", "publish", "recipes/sort.yaml")
    edited(folder, 'version: "1"', 'version: "2"')
    (folder / "w.yaml").write_text(WORKFLOW.replace("SORT", "sort@3"), "utf-8")
    refused = call("run", "w.yaml", code=2).stderr
    assert "recipe 'sort' has no version '3'; there is 2, 1" in refused


def test_a_step_whose_recipe_is_wrong_or_missing_is_told_once_and_shortly(folder: Path) -> None:
    edited(folder, "prompt:", "prmpt:")
    (folder / "w.yaml").write_text(WORKFLOW.replace("SORT", "sort"), "utf-8")
    found = [one for one in told("validate", "w.yaml", code=1) if one["severity"] == "error"]
    assert len(found) == 1
    assert "the recipe 'sort' is wrong: " in found[0]["message"]
    assert found[0]["hint"].endswith("sort.yaml` lists its problems")
    (folder / "w.yaml").write_text(WORKFLOW.replace("SORT", "srt"), "utf-8")
    [one] = [one for one in told("validate", "w.yaml", code=1) if one["severity"] == "error"]
    assert (one["message"], one["line"]) == ("there is no recipe 'srt'", 4)


# ── validate ──


def test_validate_checks_recipes_and_their_tests(folder: Path) -> None:
    assert "right" in call("validate", "recipes/sort.yaml").stdout
    edited(folder, "expect: {label: refund}", "expect: {label: refnd}")
    wrong = told("validate", "recipes/sort.yaml", code=1)
    assert [(one["line"], one["code"]) for one in wrong] == [(18, "test")]
    edited(folder, "expect: {label: refnd}", "expect: {label: refund}")
    edited(folder, "model: {temperature: 0}", "model: {provider: nobody}", "other.yaml")
    found = call("validate", "recipes/other.yaml", code=1).stdout
    assert "call it sort.yaml" in found
    edited(folder, "model: {temperature: 0}", "model: {provider: nobody}")
    [one] = told("validate", "recipes/sort.yaml", code=1)
    assert (one["code"], one["line"], "no model 'nobody'" in one["message"]) == ("model_unknown", 11, True)


# ── try ──


def test_try_asks_once_and_tells_what_it_took(provider: Served) -> None:
    done = call("recipes", "try", "sort", "-i", "ticket=refund 12", "--show-prompt")
    assert "Sort: refund 12" in done.stdout
    assert "Be exact." in done.stdout
    assert '"amount": 12.0' in done.stdout
    assert "good, by model, 10 + 5 tokens" in done.stderr
    found = told("recipes", "try", "sort", "-i", "ticket=refund 12", "--model", "worse")
    assert (found["output"]["label"], found["usage"]["model"], found["attempts"]) == ("billing", "worse", 1)
    assert "there is no database" in call("runs", "list").stdout  # nothing was made


def test_try_shows_the_answer_that_cannot_be_used(provider: Served) -> None:
    done = call("recipes", "try", "sort", "-i", "ticket=chat", code=1)
    assert "output_invalid" in done.stderr
    assert "I would rather talk." in done.stderr
    assert "1 repaired" in done.stderr
    found = told("recipes", "try", "sort", "-i", "ticket=down", code=1)
    assert (found["error"]["kind"], found["attempts"]) == ("server_error", 1)


def test_try_without_an_input_runs_the_tests(folder: Path) -> None:
    done = call("recipes", "try", "recipes/sort.yaml", code=1)
    assert "✓ a refund" in done.stdout
    assert "✗ never right" in done.stdout
    assert re.search(r"recipes/sort\.yaml:16\b", done.stdout)
    assert "1 passed, 1 failed" in done.stdout
    found = told("recipes", "try", "sort", "--test", "a refund")
    assert (found["passed"], found["failed"], found["tests"][0]["output"]["amount"]) == (1, 0, 5.0)
    assert "has no test 'none'" in call("recipes", "try", "sort", "--test", "none", code=2).stderr
    edited(folder, SORT[SORT.index("tests:") :], "")
    assert "has no tests and wants an input: ticket" in call("recipes", "try", "sort", code=2).stderr


def test_try_refuses_what_cannot_be_asked() -> None:
    assert "declares no input 'tickt'" in call("recipes", "try", "sort", "-i", "tickt=x", code=2).stderr
    call("recipes", "try", "sort", "-i", "ticket=", code=2)
    other = told("recipes", "try", "sort", "-i", "ticket=refund 1", "--model", "of-the-provider")
    assert other["usage"]["model"] == "of-the-provider"
    both = call("recipes", "try", "sort", "--test", "1", "-i", "ticket=x", code=2)
    assert "--test has an input of its own" in both.stderr


# ── eval ──


def test_eval_scores_every_row_and_tells_failures_apart() -> None:
    found = told("recipes", "eval", "sort", "--table", "table.csv", "--attempts", "2")
    [one] = found["candidates"]
    assert found["complete"] is True
    assert one["score"] == pytest.approx(3 / 6)
    assert one["verdicts"] == {"right": 3, "wrong": 1, "missing": 0, "invalid": 1, "error": 1}
    assert one["fields"] == {"label": {"right": 3, "of": 6}, "amount": {"right": 4, "of": 6}}
    counts = {(row["expected"], row["given"]): row["count"] for row in one["labels"]["label"]["confusion"]}
    assert counts == {
        ("refund", "refund"): 2, ("billing", "billing"): 1, ("billing", "refund"): 1, ("refund", "(invalid)"): 1,
        ("billing", "(error)"): 1,
    }  # fmt: skip
    assert [row["row"] for row in one["results"]] == [1, 2, 3, 4, 5, 6]
    assert one["results"][4]["error"]["detail"]["answer"] == "I would rather talk."
    assert one["results"][5]["attempts"] == 2
    assert one["input_tokens"] == 10 * (4 + 4)  # four answers at once, and two of two requests each for `chat`
    assert one["again"] == 2


def test_eval_shows_a_matrix_the_wrong_rows_and_what_it_took() -> None:
    shown = call("recipes", "eval", "sort", "--table", "table.csv", "--attempts", "1").stdout
    assert "score 50.0%: 3 of 6 rows are right (1 wrong, 1 invalid, 1 error)" in shown
    assert "label: expected ↓ given →" in shown
    assert "table.csv:4" in shown
    assert 'label: expected "billing", given "refund"' in shown
    assert "the answer was" in shown
    assert "cost unknown" in shown
    assert "(p95)" in shown


def test_eval_compares_models_row_by_row_with_a_sign_test() -> None:
    found = told(
        "recipes", "eval", "sort", "--table", "table.csv", "--model", "good", "--model", "worse", "--attempts", "1"
    )
    [one] = found["comparisons"]
    assert (one["better"], one["worse"], one["both_right"], one["rows"]) == (1, 2, 1, [1, 3, 4])
    assert one["p"] == 1.0
    shown = call(
        "recipes", "eval", "sort", "--table", "table.csv", "--model", "good", "--model", "worse", "--attempts", "1"
    ).stdout
    assert "this may well be chance" in shown
    assert "A and B differ on 3 rows: only B is right on 1, only A on 2" in shown


def test_eval_compares_versions_from_the_library_and_from_files(folder: Path) -> None:
    call("recipes", "publish", "recipes/sort.yaml")
    edited(folder, 'version: "1"', 'version: "2"')
    edited(folder, "model: {temperature: 0}", "model: {name: worse}")
    found = told("recipes", "eval", "sort", "--table", "table.csv", "--version", "1", "--version", "2", "--limit", "2")
    assert [(one["name"], one["score"]) for one in found["candidates"]] == [("sort@1", 1.0), ("sort@2", 0.5)]
    twice = call("recipes", "eval", "sort@1", "--table", "table.csv", "--version", "2", code=2)
    assert "named with a version already" in twice.stderr


def test_eval_exits_by_the_least_score_and_writes_its_results(folder: Path) -> None:
    call("recipes", "eval", "sort", "--table", "table.csv", "--limit", "2", "--min-score", "1")
    out = ("--out", "results.jsonl", "--limit", "3")
    call("recipes", "eval", "sort", "--table", "table.csv", *out, "--min-score", "0.9", code=1)
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text("utf-8").splitlines()]
    assert [(one["row"], one["verdict"]) for one in rows] == [(1, "right"), (2, "right"), (3, "wrong")]
    call("recipes", "eval", "sort", "--table", "table.csv", "--out", "results.xlsx", code=2)
    (folder / "down.csv").write_text("ticket,expected.label\ndown,refund\n", "utf-8")
    call("recipes", "eval", "sort", "--table", "down.csv", "--attempts", "1", code=1)
    (folder / "wrong.csv").write_text("ticket,expected.label\nx,refnd\n", "utf-8")
    assert "wrong.csv:2:1" in call("recipes", "eval", "sort", "--table", "wrong.csv", code=2).stderr


def test_eval_tells_of_rows_that_are_there_more_than_once(folder: Path) -> None:
    (folder / "same.csv").write_text("ticket,expected.amount\n" + "refund 1,1\n" * 3, "utf-8")
    assert told("recipes", "eval", "sort", "--table", "same.csv")["repeated"] == 2
    assert "2 rows are there more than once" in call("recipes", "eval", "sort", "--table", "same.csv").stdout
    assert "more than once" not in call("recipes", "eval", "sort", "--table", "table.csv", "--limit", "2").stdout


def test_eval_asks_again_what_can_pass_by_itself(folder: Path, provider: Served) -> None:
    seen: list[str] = []

    def busy_at_first(text: str, model: str) -> Reply:
        seen.append(text)
        if seen.count(text) < 3:
            return Reply(status=429, headers={"Retry-After": "0.01"})
        return by_words(text, model)

    provider.answer = busy_at_first
    found = told("recipes", "eval", "sort", "--table", "table.csv", "--limit", "2")["candidates"][0]
    assert (found["score"], found["again"]) == (1.0, 4)


def test_eval_keeps_the_order_of_the_table_and_its_bound_of_questions_at_once(folder: Path, provider: Served) -> None:
    flying, most, lock = 0, 0, threading.Lock()

    def slow(text: str, model: str) -> Reply:
        nonlocal flying, most
        with lock:
            flying += 1
            most = max(most, flying)
        threading.Timer(0.05, landed).start()
        return Reply(**{**vars_of(by_words(text, model)), "delay": 0.1})

    def landed() -> None:
        nonlocal flying
        with lock:
            flying -= 1

    provider.answer = slow
    rows = "".join(f"refund {number},refund,{number}\n" for number in range(1, 31))
    (folder / "many.csv").write_text("ticket,expected.label,expected.amount\n" + rows, "utf-8")
    found = told("recipes", "eval", "sort", "--table", "many.csv", "--concurrency", "3")["candidates"][0]
    assert found["score"] == 1.0
    assert [one["row"] for one in found["results"]] == [*range(1, 31)]
    assert most <= 3


def vars_of(reply: Reply) -> dict[str, Any]:
    return {name: getattr(reply, name) for name in ("content", "status", "headers")}


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGINT for another process")
def test_eval_tells_what_there_is_when_it_is_interrupted(folder: Path, provider: Served) -> None:
    asked = threading.Event()

    def third_hangs(text: str, model: str) -> Reply:
        if "refund 3" in text:
            asked.set()
            return Reply(hang=True)
        return by_words(text, model)

    provider.answer = third_hangs
    command = [
        sys.executable,
        "-m",
        "stepwell",
        "recipes",
        "eval",
        "sort",
        "--table",
        "table.csv",
        "--concurrency",
        "1",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert asked.wait(60)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted: 2 of 6 rows were answered" in out
    assert "score 100.0%: 2 of 2 rows are right" in out
