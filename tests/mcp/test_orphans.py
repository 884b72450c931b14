"""No process of a server outlives the engine that started it, however the engine ends and whatever the server does."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import psutil
import pytest

SOURCE = Path(__file__).parents[2] / "src"

SERVER = """
import json, os, signal, subprocess, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()} {child.pid} ")

def say(id, result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)

for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        about = {"serverInfo": {"name": "stubborn", "version": "1"}, "capabilities": {"tools": {}}}
        say(asked["id"], about | {"protocolVersion": asked["params"]["protocolVersion"]})
    elif asked["method"] == "tools/list":
        say(asked["id"], {"tools": [{"name": "nothing", "inputSchema": {"type": "object"}}]})
    elif asked["method"] == "tools/call":
        say(asked["id"], {"content": []})
    elif "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "unknown"}}), flush=True)
while True:
    time.sleep(60)
"""

ENGINE = """
import asyncio, os, signal, sys
from stepwell.adapters.mcp.pool import Pool
from stepwell.adapters.mcp.server import McpServer

async def main():
    pool = Pool()
    server = McpServer("stubborn", command=sys.executable, args=(sys.argv[1], sys.argv[2]))
    await pool.call(server, "nothing", {}, timeout=60)
    if sys.argv[3] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    await pool.aclose()

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["killed", "closed"])
async def test_a_server_that_minds_nothing_and_its_children_end_with_the_engine(tmp_path: Path, how: str) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    pids = tmp_path / "pids"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ENGINE, str(tmp_path / "server.py"), str(pids), how,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert await process.wait() == (-9 if how == "killed" else 0)
    started = [int(word) for word in pids.read_text().split()]
    assert len(started) >= 2
    until = time.monotonic() + 60
    while (left := [pid for pid in started if _lives(pid)]) and time.monotonic() < until:
        await asyncio.sleep(0.2)
    assert not left


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
