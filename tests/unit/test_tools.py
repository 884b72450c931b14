"""Python tools: declared, loaded from files, called with checked arguments, ended on time."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

import stepwell
from stepwell.adapters.python_tools import PythonTools
from stepwell.adapters.tool_signature import parameter_descriptions
from stepwell.engine.performer import CallContext
from stepwell.engine.tool_performer import ToolPerformer
from stepwell.errors import DefinitionError, StepFailed
from stepwell.interpreter.effect import ToolCall
from stepwell.ports import ToolCallContext
from stepwell.tool import IdempotencyKey, declaration, tool


def context(timeout=5.0):
    return ToolCallContext("r", "/a", 1, "r/a", timeout)


async def call(function, /, _timeout=5.0, **arguments):
    tools = PythonTools.of(function)
    return await tools.call(tools.names()[0], arguments, context(_timeout))


async def failure(function, /, _timeout=5.0, **arguments):
    with pytest.raises(StepFailed) as caught:
        await call(function, _timeout, **arguments)
    return caught.value


# ── declaring ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_decorator_leaves_the_function_as_it_was_and_registers_nothing_elsewhere():
    @tool
    def plain(x: int) -> int:
        """Doubles."""
        return 2 * x

    @tool(idempotent=False, name="crm.charge", description="Takes money")
    def charge():
        return 1

    assert plain(2) == 4
    assert declaration(plain).name == "plain"
    assert declaration(plain).idempotent
    tools = PythonTools.of(plain, charge)
    assert tools.names() == ["crm.charge", "plain"]
    assert (tools.get("crm.charge").idempotent, tools.get("crm.charge").description) == (False, "Takes money")
    assert tools.get("plain").description == "Doubles."
    assert tools.get("nix") is None
    assert PythonTools().names() == []
    with pytest.raises(TypeError):
        PythonTools.of(lambda: 1)


@pytest.mark.parametrize("name", ["", "1a", "a b", "a/b", "é", "a" * 129, "<lambda>"])
def test_a_name_that_no_workflow_could_write_is_refused(name):
    with pytest.raises(ValueError, match="cannot name a tool"):
        tool(name=name)(lambda: 1)


class Customer(BaseModel):
    name: str
    tags: list[str] = []


def test_the_schema_comes_from_hints_and_docstring():
    @tool
    def charge(
        customer: Customer,
        cents: Annotated[int, Field(gt=0)],
        currency: Literal["EUR", "USD"] = "EUR",
        note: Any = None,
        *,
        key: IdempotencyKey,
    ):
        """Take money
        from a customer.

        More about it.

        Args:
            customer: who pays
            cents (int): how much,
                in cents
            currency: which one

        Returns:
            nothing: really
        """

    found = PythonTools.of(charge).get("charge")
    assert found.description == "Take money from a customer."
    schema = found.parameters
    assert schema["required"] == ["customer", "cents"]
    assert schema["additionalProperties"] is False
    assert list(schema["properties"]) == ["customer", "cents", "currency", "note"]
    assert schema["properties"]["cents"]["description"] == "how much, in cents"
    assert schema["properties"]["cents"]["exclusiveMinimum"] == 0
    assert schema["properties"]["currency"]["enum"] == ["EUR", "USD"]
    assert "description" not in schema["properties"]["note"]


def test_parameters_are_described_in_the_style_of_sphinx_too():
    text = "Do it.\n\n:param int cents: how much\n:param who: a person\n:returns: x"
    assert parameter_descriptions(text) == {"cents": "how much", "who": "a person"}


# ── arguments ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Place:
    street: str
    number: int


async def test_arguments_are_read_as_what_the_hints_say():
    @tool
    def take(
        when: dt.date, price: Decimal, pair: tuple[int, str], place: Place, big: int, share: float, anything, flag: bool
    ):
        return [when, price, pair, place, big, share, anything, flag]

    found = await call(
        take, when="2026-01-02", price="1.10", pair=[1, "a"], place={"street": "s", "number": 3}, big=2**100, share=1,
        anything={"a": [None]}, flag=False,
    )  # fmt: skip
    assert found == [dt.date(2026, 1, 2), Decimal("1.10"), (1, "a"), Place("s", 3), 2**100, 1.0, {"a": [None]}, False]


@pytest.mark.parametrize("value", ["5", True, 1.5, None, [5], "five"])
async def test_c095_nothing_but_an_integer_is_taken_for_one(value):
    @tool
    def take(n: int):
        return n

    found = await failure(take, n=value)
    assert (found.kind, found.retryable) == ("validation_error", False)
    assert found.message.startswith("take: n should be a valid integer")


@pytest.mark.parametrize("value", [0, 0.0, False, "", None, [], {}])
async def test_c095_falsy_arguments_arrive_unchanged_and_a_default_stands_for_absence_alone(value):
    @tool
    def take(a=99):
        return a

    found = await call(take, a=value)
    assert (found, type(found)) == (value, type(value))
    assert await call(take) == 99


async def test_all_wrong_arguments_are_named_at_once():
    @tool
    def take(customer: Customer, cents: int):
        return 1

    found = await failure(take, customer={"name": 1, "tags": ["a", 2]}, sents=5)
    assert found.message == (
        "take: customer.name should be a valid string; customer.tags.1 should be a valid string; "
        "cents is missing; sents is not an argument of this tool"
    )
    assert [one["argument"] for one in found.detail["arguments"]] == [
        "customer.name",
        "customer.tags.1",
        "cents",
        "sents",
    ]


async def test_names_that_clash_with_those_of_models_are_fine():
    @tool
    def take(schema: int, json: int, model_config: int, _x: int, p0: int = 7, *, copy: int = 6, **rest: int):
        return [schema, json, model_config, _x, p0, copy, rest]

    found = await call(take, schema=1, json=2, model_config=3, _x=4, p1=5)
    assert found == [1, 2, 3, 4, 7, 6, {"p1": 5}]


async def test_positional_only_parameters_and_defaults_of_any_kind_work():
    marker = object()

    @tool
    def take(a: int, b: int = 2, /, c: Any = marker):
        return [a, b, c is marker]

    assert await call(take, a=1) == [1, 2, True]


async def test_a_tool_gets_its_own_copy_of_its_arguments():
    @tool
    def take(items: list, more):
        items.append(1)
        more["x"] = 1

    arguments = {"items": [], "more": {}}
    await call(take, **arguments)
    assert arguments == {"items": [], "more": {}}


async def test_the_idempotency_key_is_injected_and_cannot_be_given():
    @tool
    def take(key: IdempotencyKey, x: int = 0):
        return key

    @tool
    async def atake(*, key: IdempotencyKey):
        return key

    assert await call(take, x=1) == "r/a"
    assert await call(atake) == "r/a"
    assert "key" not in PythonTools.of(take).get("take").parameters["properties"]
    assert "key is not an argument" in (await failure(take, key="mine")).message


async def test_arguments_nested_too_deep_are_refused_and_harm_nothing():
    @tool
    def take(x):
        return x

    deep = []
    for _ in range(250):
        deep = [deep]
    assert (await failure(take, x=deep)).kind == "validation_error"


async def test_an_unknown_tool_is_not_found():
    with pytest.raises(StepFailed) as caught:
        await PythonTools().call("nix", {}, context())
    assert (caught.value.kind, caught.value.retryable) == ("not_found", False)


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("error", "kind", "message", "retryable"),
    [
        (TimeoutError("slow"), "timeout", "t: TimeoutError: slow", True),
        (ConnectionRefusedError("no"), "connection_error", "t: ConnectionRefusedError: no", True),
        (ValueError("bad\nthing"), "tool_error", "t: ValueError: bad\nthing", False),
        (ValueError(), "tool_error", "t: ValueError", False),
        (MuteError(), "tool_error", "t: MuteError", False),
        (StopIteration(1), "tool_error", "t: ", False),
        (SystemExit(3), "tool_error", "t: SystemExit: 3", False),
        (KeyboardInterrupt(), "tool_error", "t: KeyboardInterrupt", False),
        (GeneratorExit(), "tool_error", "t: GeneratorExit", False),
        (asyncio.CancelledError(), "tool_error", "t: CancelledError", False),
        (RecursionError("deep"), "tool_error", "t: RecursionError: deep", False),
        (MemoryError(), "tool_error", "t: MemoryError", False),
        (ExceptionGroup("g", [ValueError("x")]), "tool_error", "t: ExceptionGroup: g", False),
        (StepFailed("rate_limit", "wait", retry_after=7), "rate_limit", "wait", True),
        (StepFailed("my_kind", "mine", retryable=True), "my_kind", "mine", True),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_whatever_a_tool_raises_is_its_failure(error, kind, message, retryable, asynchronous):
    @tool(name="t")
    def sync():
        raise error

    @tool(name="t")
    async def async_():
        raise error

    found = await failure(async_ if asynchronous else sync)
    assert (found.kind, found.retryable) == (kind, retryable)
    assert found.message.startswith(message)
    assert asyncio.current_task().cancelling() == 0


async def test_a_failure_tells_the_tools_own_lines_and_no_more_than_two_kilobytes():
    def inner(left):
        if left:
            inner(left - 1)
        raise ValueError("x" * 100_000)

    @tool
    def take():
        inner(300)

    found = await failure(take)
    assert len(found.message) < 2100
    assert len(found.detail["trace"]) <= 2000
    assert found.detail["trace"].splitlines()[-1].startswith("test_tools.py:")
    assert found.detail["trace"].endswith(" in inner")
    assert "python_tools" not in found.detail["trace"]


async def performed(function, **arguments):
    tools = PythonTools.of(function)
    called = CallContext("local", "r", "/a", 1, "r/a", 5.0)
    return await ToolPerformer(tools)(ToolCall(tool=tools.names()[0], call=arguments), called)


async def test_what_a_failure_carries_is_made_recordable():
    @tool
    def take():
        raise StepFailed("", ValueError("m\ud800"), retry_after=float("inf"), detail={"a": b"x"})

    with pytest.raises(StepFailed) as caught:
        await performed(take)
    record = caught.value.record()
    assert record["kind"] == "tool_error"
    assert record["message"] == "m\ufffd"
    assert "retry_after" not in record
    assert record["detail"] == {
        "left_out": "the value at /a is a bytes, which is not JSON; decode it, or return it as base64 text"
    }


async def test_the_performer_gives_the_tools_result():
    @tool
    async def take(x: int):
        return {"x": x}

    assert (await performed(take, x=1)).value == {"x": 1}


@pytest.mark.parametrize(
    "kind", ["invalid_request", "auth_error", "not_found", "rate_limit", "overloaded", "server_error"]
)
async def test_c052_kinds_that_cannot_pass_by_themselves_are_not_retryable(kind):
    @tool
    def take():
        raise StepFailed(kind, "x")

    assert (await failure(take)).retryable is (kind in {"rate_limit", "overloaded", "server_error"})


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def timed_out(function):
    """How long the call took, the failure, and the longest time that the loop did not answer."""
    gaps = []
    stop = False

    async def watch():
        while not stop:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - before)

    watcher = asyncio.create_task(watch())
    started = time.monotonic()
    found = await failure(function, 1.0)
    took = time.monotonic() - started
    stop = True
    await watcher
    return took, found, max(gaps)


async def test_c059_an_async_tool_is_cancelled_on_time():
    ended = []

    @tool
    async def slow():
        try:
            await asyncio.sleep(5)
        finally:
            ended.append(True)

    took, found, gap = await timed_out(slow)
    assert 1.0 <= took < 4  # the tool blocks for 5 s
    assert gap < 1
    assert (found.kind, found.retryable, found.detail) == ("timeout", True, None)
    assert ended == [True]


async def test_c059_a_blocking_tool_is_left_behind_on_time():
    release = threading.Event()

    @tool
    def slow():
        release.wait(5)

    took, found, gap = await timed_out(slow)
    release.set()
    assert 1.0 <= took < 4  # the tool blocks for 5 s
    assert gap < 1
    assert found.detail == {"abandoned": "thread"}
    assert "left behind" in found.message


async def test_c059_an_async_tool_that_swallows_its_cancellation_is_left_behind_on_time():
    alive = []

    @tool
    async def slow():
        while True:
            try:
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                alive.append("cancelled")
            alive.append("woke")

    took, found, gap = await timed_out(slow)
    assert 1.0 <= took < 4  # the tool blocks for 5 s
    assert gap < 1
    assert found.detail == {"abandoned": "task"}
    assert "cancelled" in alive
    await asyncio.sleep(0.1)
    count = len(alive)
    await asyncio.sleep(0.5)
    assert len(alive) == count


def test_neither_blocked_threads_nor_stubborn_tasks_hold_up_the_end_of_the_process(tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        "import asyncio, time\n"
        "from stepwell.adapters.python_tools import PythonTools\n"
        "from stepwell.errors import StepFailed\n"
        "from stepwell.ports import ToolCallContext\n"
        "from stepwell.tool import tool\n"
        "@tool\n"
        "def block():\n    time.sleep(60)\n"
        "@tool\n"
        "async def stubborn():\n"
        "    while True:\n"
        "        try:\n            await asyncio.sleep(60)\n"
        "        except asyncio.CancelledError:\n            pass\n"
        "async def main():\n"
        "    tools = PythonTools.of(block, stubborn)\n"
        "    for name in tools.names():\n"
        "        try:\n            await tools.call(name, {}, ToolCallContext('r', '/a', 1, 'k', 0.2))\n"
        "        except StepFailed as failure:\n            print(failure.kind)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "timeout\ntimeout\n", "")


async def test_cancelling_the_call_cancels_the_tool_and_does_not_wait_for_a_stubborn_one():
    states = []

    @tool
    async def stubborn():
        while True:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                states.append("asked")

    running = asyncio.create_task(call(stubborn, 60.0))
    await asyncio.sleep(0.05)
    started = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - started < 0.9  # the tool sleeps for 1 s
    assert states == ["asked"]


async def test_an_async_tool_may_use_timeouts_groups_and_cancellation_of_its_own():
    @tool
    async def take():
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(1)
        except TimeoutError:
            pass
        async with asyncio.TaskGroup() as group:
            first = group.create_task(asyncio.sleep(0.01, "a"))
        inner = asyncio.create_task(asyncio.sleep(5))
        inner.cancel()
        await asyncio.gather(inner, return_exceptions=True)
        return first.result()

    assert await call(take) == "a"


async def test_a_sync_function_that_gives_an_awaitable_is_awaited():
    async def inner():
        await asyncio.sleep(0)
        return 5

    @tool
    def take():
        return inner()

    assert await call(take) == 5


async def test_threads_are_used_again_and_blocked_ones_take_nobody_s_place():
    release = threading.Event()

    @tool
    def block():
        release.wait(10)

    @tool
    def quick():
        return threading.get_ident()

    tools = PythonTools.of(block, quick)
    blocked = [asyncio.create_task(tools.call("block", {}, context(0.2))) for _ in range(50)]
    results = await asyncio.gather(*blocked, return_exceptions=True)
    assert {getattr(result, "kind", "") for result in results} == {"timeout"}
    idents = {await tools.call("quick", {}, context()) for _ in range(30)}
    release.set()
    assert len(idents) == 1


async def test_concurrent_calls_of_blocking_tools_run_at_the_same_time():
    @tool
    def slow():
        time.sleep(0.2)
        return 1

    tools = PythonTools.of(slow)
    started = time.monotonic()
    assert sum(await asyncio.gather(*[tools.call("slow", {}, context()) for _ in range(20)])) == 20
    assert time.monotonic() - started < 3.5  # one after another: 4 s


async def test_no_task_is_left_once_calls_are_done():
    @tool
    async def take():
        return 1

    before = asyncio.all_tasks()
    for _ in range(100):
        await call(take)
    gc.collect()
    assert asyncio.all_tasks() == before


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def write(folder, name, text):
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


HEAD = "from __future__ import annotations\nimport stepwell\n"


async def test_tools_are_loaded_from_files_with_what_they_import_from_beside_them(tmp_path):
    write(tmp_path, "pricing_of_this_test.py", "RATE = 3\n")
    file = write(
        tmp_path,
        "tools.py",
        HEAD + "from dataclasses import dataclass\nfrom pricing_of_this_test import RATE\n"
        "@dataclass\nclass Line:\n    n: int\n"
        "@stepwell.tool\ndef price(line: Line) -> int:\n    return line.n * RATE\n"
        "def untouched(): pass\nalias = price\n",
    )
    path = list(sys.path)
    tools = PythonTools.from_files([file, str(file)])
    assert sys.path == path
    assert tools.names() == ["price"]
    assert await tools.call("price", {"line": {"n": 2}}, context()) == 6


async def test_two_projects_with_files_of_one_name_do_not_see_each_other(tmp_path):
    found = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = HEAD + f"@stepwell.tool\ndef which(): return {number}\n@stepwell.tool\ndef only_{number}(): pass\n"
        found.append(PythonTools.from_files([write(folder, "tools.py", text)]))
    assert [tools.names() for tools in found] == [["only_1", "which"], ["only_2", "which"]]
    assert [await tools.call("which", {}, context()) for tools in found] == [1, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ndef broken(:\n", ":2:12: error[tools] syntax error: "),
        ("x = 1\n\n1 / 0\n", ":3:1: error[tools] the file cannot be executed: ZeroDivisionError: division by zero"),
        ("import nothing_like_this\n", ":1:1: error[tools] the file cannot be executed: ModuleNotFoundError"),
        ("raise SystemExit(3)\n", ":1:1: error[tools] the file cannot be executed: SystemExit: 3"),
        (HEAD + "@stepwell.tool\ndef f(*a): pass\n", ":3:1: error[tools] the arguments of 'f' cannot be described: *a: a tool"),
        (HEAD + "@stepwell.tool\ndef f(a: Nix): pass\n", ":3:1: error[tools] the arguments of 'f' cannot be described: name 'Nix'"),
        (HEAD + "class C: pass\n@stepwell.tool\ndef f(a: C): pass\n", ":4:1: error[tools] the arguments of 'f' cannot be described: Unable"),
        (HEAD + "@stepwell.tool(name='a b')\ndef f(): pass\n", ":3:1: error[tools] the file cannot be executed: ValueError: 'a b'"),
        ("x = '\x00'\n", "error[tools] "),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_told_with_its_line(tmp_path, text, said):
    file = write(tmp_path, "tools.py", text)
    modules = set(sys.modules)
    with pytest.raises(DefinitionError) as caught:
        PythonTools.from_files([file])
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(file))
    assert {name for name in set(sys.modules) - modules if "stepwell_tools" in name} <= {
        name for name in sys.modules if "arguments" in str(caught.value)
    }


def test_the_problems_of_all_files_are_told_at_once(tmp_path):
    one = write(tmp_path, "one.py", "def (:\n")
    two = write(tmp_path, "two.py", HEAD + "@stepwell.tool\ndef f(*a): pass\n@stepwell.tool\ndef g(**a: X): pass\n")
    with pytest.raises(DefinitionError) as caught:
        PythonTools.from_files([one, two, tmp_path / "missing.py", tmp_path])
    assert len(caught.value.problems) == 5


def test_a_tool_declared_twice_is_told_with_both_places(tmp_path):
    one = write(tmp_path, "one.py", HEAD + "@stepwell.tool\ndef f(): pass\n")
    two = write(tmp_path, "two.py", HEAD + "@stepwell.tool(name='f')\ndef g(): pass\n")
    with pytest.raises(DefinitionError) as caught:
        PythonTools.from_files([one, two])
    assert f"{two}:3:1: error[tools] the tool 'f' is declared twice ({one}:3)" in str(caught.value)


async def test_the_log_of_a_tool_says_for_which_run_and_step_it_was_written(caplog):
    log = stepwell.logger("my.tools")

    @tool
    def sync(x: int) -> None:
        log.warning("sync %s", x, extra={"more": 1})

    @tool
    async def other() -> None:
        await asyncio.sleep(0)
        log.warning("async")

    tools = PythonTools.of(sync, other)
    await asyncio.gather(
        tools.call("sync", {"x": 1}, ToolCallContext("run1", "/a", 2, "k", 5.0)),
        tools.call("other", {}, ToolCallContext("run2", "/b", 1, "k", 5.0)),
    )
    log.warning("outside")
    said = {record.message: (record.run, record.path, record.attempt) for record in caplog.records}
    assert said == {"sync 1": ("run1", "/a", 2), "async": ("run2", "/b", 1), "outside": ("", "", 0)}
