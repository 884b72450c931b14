"""Text of others on a terminal, input from the command line, and what screens show."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.cli.exits import Refusal
from stepwell.cli.inputs import read_input, read_pairs
from stepwell.cli.lines import painted, step_lines
from stepwell.cli.progress import Progress, reason_text
from stepwell.cli.screen import JsonScreen, LiveScreen, PlainScreen
from stepwell.cli.text import cut, duration, json_text, pad, table, visible, visible_lines, width, wrapped
from stepwell.definition.workflow import Workflow
from stepwell.engine.events import Event
from stepwell.kinds import discover

STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u200b\ufeff]")
EVIL = "\x1b[2J\x1b]0;title\x07 \x9b31m \u202egnp.exe\u202c \u2066x\u2069 \x08\r\n\x00 \U000e0041"


@given(st.text(st.characters(codec=None)))
def test_no_text_reaches_a_terminal_with_a_character_that_steers_it(text: str) -> None:
    assert not STEERING.search(visible(text))
    assert "\n" not in visible(text)
    assert not any(STEERING.search(line) for line in visible_lines(text))
    visible(text).encode()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters(codec=None)),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_for_a_terminal_is_the_same_json_without_steering_characters(value: Any) -> None:
    text = json_text(value)
    assert not STEERING.search(text)
    assert json.loads(text) == json.loads(json.dumps(value))
    text.encode()


def test_c035_escape_and_bidi_characters_are_written_out() -> None:
    assert visible("\x1b[31m red \u202e tail \x9b") == "\\x1b[31m red \\u202e tail \\x9b"
    assert visible("a\nb\tc\r") == "a\\nb\\tc\\r"
    assert visible("中文 é 👍 👨‍👩‍👧 العربية") == "中文 é 👍 👨‍👩‍👧 العربية"
    assert visible("\ud800") == "\\ud800"


def test_wide_characters_take_two_columns_and_marks_none() -> None:
    assert [width(text) for text in ("abc", "中文", "e\u0301", "ｱ", "한국")] == [3, 4, 1, 1, 4]
    assert pad("中文", 6) == "中文  "
    assert cut("中文字", 4) == "中…"
    assert width(cut("中文字符号" * 9, 7)) <= 7
    assert cut("abc", 3) == "abc"
    assert cut("abc", 0) == ""


@given(st.text(), st.integers(0, 30))
def test_a_cut_text_fits(text: str, columns: int) -> None:
    assert width(cut(visible(text), columns)) <= columns


def test_tables_are_aligned_with_wide_characters() -> None:
    lines = table([("中文", "x", "one"), ("abc", "yy", "two")], ["NAME", "N", "WHAT"])
    assert lines == ["NAME  N   WHAT", "中文  x   one", "abc   yy  two"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (12.34, "12.3 s"), (60, "1 m"), (200, "3 m 20 s"), (7500, "2 h 5 m"), (273600, "3 d 4 h")],
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# ── input ──

SCHEMA = {
    "properties": {
        "count": {"type": "integer"},
        "flag": {"type": "boolean"},
        "tags": {"type": "array"},
        "text": {"type": "string"},
        "either": {"type": ["string", "integer"]},
        "level": {"enum": [1, 2, "high"]},
        "far": {"$ref": "#/$defs/far"},
        "maybe": {"type": ["null", "number"]},
    },
    "$defs": {"far": {"type": "number"}},
}


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("count=3", 3),
        ("count=three", "three"),
        ("flag=false", False),
        ('tags=["a"]', ["a"]),
        ("text=3", "3"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ("either=3", "3"),
        ("level=2", 2),
        ("level=high", "high"),
        ("far=2.5", 2.5),
        ("maybe=null", None),
        ("unknown=3", "3"),
        ("unknown:=3", 3),
        ('unknown:={"a": [0, null]}', {"a": [0, None]}),
        ("text:=12345678901234567890123", 12345678901234567890123),
    ],
)
def test_a_pair_is_text_unless_the_schema_says_otherwise(pair: str, value: Any) -> None:
    (found,) = read_pairs([pair], SCHEMA, option="-i").values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "pair", ["name", "=x", ":=1", "a:=", "a:={", "a:=NaN", 'a:={"b":1,"b":2}', "a:=" + "[" * 100_000]
)
def test_a_pair_that_cannot_be_read_is_refused(pair: str) -> None:
    with pytest.raises(Refusal):
        read_pairs([pair], {}, option="-i")


def test_pairs_win_over_the_file_and_wrong_files_say_where(tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_text('\ufeff{"a": 1, "b": 2}', encoding="utf-8")
    assert read_input(file, ["b=x"], {}) == {"a": 1, "b": "x"}
    file.write_text('{"a": 1,\n  b: 2}', encoding="utf-8")
    with pytest.raises(Refusal, match=r"in\.json:2:3: this is not JSON"):
        read_input(file, [], {})
    file.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(Refusal, match="UTF-8"):
        read_input(file, [], {})
    file.write_text("[1]", encoding="utf-8")
    assert read_input(file, [], {}) == [1]
    with pytest.raises(Refusal, match="no object"):
        read_input(file, ["a=1"], {})
    with pytest.raises(Refusal, match="No such file"):
        read_input(tmp_path / "none.json", [], {})


# ── screens ──

T = 1_700_000_000.0
TOOL = {"type": "tool_call", "tool": "t"}


def workflow(*steps: dict[str, Any]) -> Workflow:
    return Workflow.model_validate(
        {"workflow": "w", "steps": list(steps)}, context={"kinds": discover(), "names": frozenset()}
    )


LOOP = workflow(
    {"id": "first", "name": EVIL, **TOOL},
    {"id": "each", "type": "loop", "over": "workflow_input.x", "steps": [{"id": "inner", **TOOL}]},
    {"id": "gate", "type": "approval"},
)


def event(name: str, path: str, at: float = 0, **data: Any) -> Event:
    return Event(name, "r1", path, T + at, data)


STORY = [
    event("step_started", "/first", 0, attempt=1),
    event("step_retrying", "/first", 1, attempts=1, retry_at=T + 3, error={"kind": "rate_limit", "message": EVIL}),
    event("step_started", "/first", 3, attempt=2),
    event("step_completed", "/first", 4, attempts=2, duration_ms=1000),
    event("step_started", "/each", 4),
    event("step_completed", "/each/0/inner", 5, attempts=1, duration_ms=900),
    event("step_completed", "/each/0", 5),
    event(
        "step_failed", "/each/1/inner", 6, attempts=1, duration_ms=10, error={"kind": "tool_error", "message": "bad"}
    ),
    event("waiting", "/gate", 7, wait="a1", kind="approval", title=EVIL),
]


def test_progress_counts_iterations_that_ended_well_and_keeps_those_that_failed() -> None:
    progress = Progress(LOOP)
    for told in STORY:
        progress.event(told.name, told.path, told.at, told.data)
    lines = [painted(line) for line in step_lines(progress, T + 8)]
    text = "\n".join(re.sub("\x1b\\[[0-9;]*m", "", line) for line in lines)
    assert "1 done" in text
    assert "tool_error: bad" in text
    assert "[1]" in text
    assert "[0]" not in text
    assert "waits for a person: " in text
    assert not STEERING.search(text)


def test_a_loop_of_any_length_takes_little_room() -> None:
    progress = Progress(LOOP)
    for at in range(5000):
        progress.event("step_completed", f"/each/{at}/inner", T, {"attempts": 1})
        progress.event("step_completed", f"/each/{at}", T, {})
    assert len(list(progress.walk())) == 3


def test_c035_plain_and_json_lines_hold_no_steering_character(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in (PlainScreen, JsonScreen):
        screen = kind(Progress(LOOP))
        screen.begin("r1", EVIL)
        for told in STORY:
            screen.event(told)
        out = capsys.readouterr().out
        assert not STEERING.search(out)
        assert "\\u202e" in out


def test_json_lines_tell_iterations_from_steps_and_times_in_utc(capsys: pytest.CaptureFixture[str]) -> None:
    screen = JsonScreen(Progress(LOOP))
    for told in STORY:
        screen.event(told)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(line["run"] == "r1" for line in lines)
    assert [line["event"] for line in lines if line["path"] == "/each/0"] == ["iteration_completed"]
    assert lines[1]["retry_at"] == "2023-11-14T22:13:23.000Z"
    assert lines[1]["at"] == "2023-11-14T22:13:21.000Z"


def test_plain_lines_have_one_line_for_each_thing_that_happens_to_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PlainScreen(Progress(LOOP))
    for told in STORY:
        screen.event(told)
    lines = [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert lines[2].startswith("attempt 2  first")
    assert lines[3] == "completed  first  1.0 s  attempt 2"
    assert not any("each/0 " in line for line in lines)
    assert len(lines) == len(STORY) - 1


BROKE = {"kind": "timeout", "message": EVIL}
RECOVERING = [
    event("step_started", "/first", 0, attempt=1),
    event("step_completed", "/first", 1, attempts=1, duration_ms=1000),
    event("step_recovering", "/pay", 2, strategy="fallback", attempts=1, error=BROKE),
    event("step_completed", "/pay/~fallback/mail", 3),
    event("step_completed", "/pay", 4, error=BROKE, meta={"completed_by": "fallback", "fallback": "mail"}),
    event("step_skipped", "/after", 5, reason={"type": "operator", "by": EVIL, "message": EVIL}),
    event("run_undoing", "", 6, steps=["/first"], error=BROKE),
    event("step_completed", "/~undo/0/unfirst", 7),
    event("step_compensated", "/first", 8, meta={"undoes": "/first"}),
]
PAYING = workflow(
    {"id": "first", "compensate": {"steps": [{"id": "unfirst", **TOOL}]}, **TOOL},
    {"id": "pay", "on_error": {"strategy": "fallback", "steps": [{"id": "mail", **TOOL}]}, **TOOL},
    {"id": "after", **TOOL},
)


def test_a_tree_that_is_followed_shows_what_mended_a_step_and_what_was_undone() -> None:
    progress = Progress(PAYING)
    for told in RECOVERING[:3]:
        progress.event(told.name, told.path, told.at, told.data)
    running = [painted(line) for line in step_lines(progress, T + 2)]
    assert any("pay" in line and "its fallback runs" in line for line in running)
    for told in RECOVERING[3:]:
        progress.event(told.name, told.path, told.at, told.data)
    lines = [re.sub("\x1b\\[[0-9;]*m", "", painted(line)) for line in step_lines(progress, T + 9)]
    assert not any(STEERING.search(line) for line in lines)
    assert [line.split()[1] for line in lines] == [
        "first",
        "pay",
        "fallback",
        "mail",
        "after",
        "undoing",
        "undo",
        "unfirst",
    ]
    first, pay, _, _, after, _, part, _ = lines
    assert first.endswith("undone")
    assert "by its fallback mail  after timeout: " in pay
    assert "by " in after
    assert "undo first" in part


def test_plain_lines_tell_what_is_done_about_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PlainScreen(Progress(PAYING))
    for told in RECOVERING:
        screen.event(told)
    out = capsys.readouterr().out
    assert not STEERING.search(out)
    words = [line.split()[1:3] for line in out.splitlines()]
    assert words == [
        ["started", "first"], ["completed", "first"], ["failed", "pay"], ["completed", "pay/~fallback/mail"],
        ["completed", "pay"], ["skipped", "after"], ["undoing", "first"], ["completed", "~undo/0/unfirst"],
        ["undone", "first"],
    ]  # fmt: skip
    assert "its fallback runs" in out


def test_c035_the_live_tree_sends_only_its_own_escape_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    received = io.BytesIO()

    def read() -> None:
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:
                return
            if not data:
                return
            received.write(data)

    reader = threading.Thread(target=read)
    reader.start()

    async def show() -> None:
        screen = LiveScreen(Progress(LOOP))
        screen.begin("r1", EVIL)
        for told in STORY:
            screen.event(told)
            await asyncio.sleep(0.03)
        await asyncio.sleep(0.2)
        await screen.end()

    with os.fdopen(slave, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        monkeypatch.setenv("TERM", "xterm-256color")
        asyncio.run(show())
    reader.join(2)
    os.close(master)
    sent = received.getvalue().decode()
    assert "waits for a person" in sent
    assert "\\u202e" in sent
    own = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent).replace("\r", "")
    assert not STEERING.search(own)
    assert "\x1b[2J" not in sent


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (None, ""),
        ({"type": "condition_false", "expression": "a > 1", "values": {"a": 0}}, "a > 1 is false: a is 0"),
        ({"type": "branch_not_taken", "taken": "then"}, "the branch then was taken"),
        ({"type": "withdrawn", "message": "branch b failed"}, "withdrawn: branch b failed"),
        ({"type": "upstream_failed"}, "a step before it failed"),
        ({"type": "operator"}, "by an operator"),
        ({"type": "operator", "by": "ana", "message": "gone"}, "by ana: gone"),
    ],
)
def test_reasons_are_told_in_words(reason: dict[str, Any] | None, text: str) -> None:
    assert reason_text(reason) == text


def test_the_last_column_goes_on_below_itself_where_the_terminal_ends():
    rows = [("a", "one two three four five six seven eight nine"), ("bb", EVIL), ("c", "")]
    lines = wrapped(rows, ["NAME", "SAYS"], columns=30)
    assert lines[:3] == ["NAME  SAYS", "a     one two three four five", "      six seven eight nine"]
    assert lines[-1] == "c"
    assert not any(STEERING.search(line) for line in lines)
    assert wrapped(rows, ["NAME", "SAYS"]) == table(rows, ["NAME", "SAYS"])
