"""Servers over standard input that answer with what cannot be read, print without end, or offer tools of nonsense."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stepwell.adapters.mcp.server import McpServer
from stepwell.adapters.mcp.tools import McpTools
from stepwell.definition.schemas import problems_with_foreign
from stepwell.errors import StepFailed
from stepwell.ports import ToolCallContext
from tests.mcp.servers import pool_of

SERVER = """
import json, sys

def write(text):
    sys.stdout.write(text + "\\n")
    sys.stdout.flush()

OFFERED = {"name": "t", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    asked = json.loads(line)
    answer = '{"jsonrpc": "2.0", "id": %s, "result": ' % json.dumps(asked.get("id"))
    if asked["method"] == "initialize":
        about = {"serverInfo": {"name": "x", "version": "1"}, "capabilities": {"tools": {}}}
        write(answer + json.dumps(about | {"protocolVersion": asked["params"]["protocolVersion"]}) + "}")
    elif asked["method"] == "tools/list":
        wrong = [{"name": "wrong", "inputSchema": {"properties": 5}}] if "wrong" in sys.argv else []
        write(answer + json.dumps({"tools": [OFFERED, *wrong]}) + "}")
    elif asked["method"] == "tools/call":
        do = asked["params"]["arguments"].get("do", "")
        if do == "surrogate":
            write(answer + r'{"content": [{"type": "text", "text": "cut \\ud83d"}]}}')
        elif do == "null":
            write(answer + "null}")
        elif do == "deep":
            write(answer + '{"content": [], "structuredContent": {"a": ' + "[" * 5000 + "]" * 5000 + "}}}")
        elif do == "half":
            write(answer + '{"content": [')
        elif do == "noise":
            while True:
                sys.stdout.write("x\\n" * 10000)
        else:
            write(answer + '{"content": [{"type": "text", "text": "ok"}]}}')
    elif "id" in asked:
        write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "unknown"}}))
""".replace("\\\\", "\\")


@asynccontextmanager
async def tools_of(tmp_path: Path, *words: str) -> AsyncIterator[McpTools]:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    async with pool_of() as pool:
        yield McpTools([McpServer("s", command=sys.executable, args=(str(file), *words))], pool)


async def call(tools: McpTools, do: str) -> object:
    return await tools.call("s.t", {"do": do}, ToolCallContext("run", "/a", 1, "key", 60.0))


async def test_half_of_a_character_is_replaced_and_the_rest_is_the_answer(tmp_path: Path) -> None:
    async with tools_of(tmp_path) as tools:
        assert await call(tools, "surrogate") == "cut \ufffd"


@pytest.mark.parametrize("do", ["null", "deep", "half"])
async def test_an_answer_that_cannot_be_read_fails_its_call_at_once(tmp_path: Path, do: str) -> None:
    async with tools_of(tmp_path) as tools:
        await call(tools, "")
        begun = time.monotonic()
        with pytest.raises(StepFailed, match="its answer cannot be read") as caught:
            await call(tools, do)
        assert caught.value.kind == "tool_error"
        assert time.monotonic() - begun < 30
        assert await call(tools, "") == "ok", "the connection goes on"


async def test_a_flood_of_lines_ends_the_connection_and_holds_up_nobody(tmp_path: Path) -> None:
    async with tools_of(tmp_path) as tools:
        await call(tools, "")
        flooded = asyncio.ensure_future(call(tools, "noise"))
        late = 0.0
        while not flooded.done():
            begun = time.monotonic()
            await asyncio.sleep(0.01)
            late = max(late, time.monotonic() - begun)
        with pytest.raises(StepFailed, match="lines that are no messages"):
            await flooded
        assert late < 5
        assert await call(tools, "") == "ok"


async def test_a_listing_that_cannot_be_read_is_told_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    async with tools_of(tmp_path, "wrong") as tools:
        said = (await tools.reach(["s"]))["s"]
        assert "tools.1.inputSchema" in said


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}},
        {"properties": {"a": {"type": "strnig"}}},
        {"properties": {"a": {"pattern": "("}}},
        {"properties": {"a": {"pattern": "^(a+)+$"}}},
        {"properties": 5},
        {"patternProperties": {"^(a+)+$": False}},
    ],
)
def test_a_schema_of_nonsense_says_nothing_and_soon(schema: dict[str, object]) -> None:
    begun = time.monotonic()
    assert problems_with_foreign(schema, {"a": "a" * 40 + "!", "a" * 40 + "!": 1}) == []
    assert time.monotonic() - begun < 10


def test_a_schema_of_sense_says_what_is_wrong() -> None:
    schema = {"properties": {"pattern": {"type": "string"}, "n": {"type": "integer", "pattern": "x"}}}
    assert problems_with_foreign(schema, {"pattern": 5, "n": "y"}) == [
        "/pattern: 5 is not of type 'string'", "/n: 'y' is not of type 'integer'"
    ]  # fmt: skip
