"""An MCP server over stdio that misbehaves on request: a script without any library, so that it can."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

Json = object
LOCK = threading.Lock()
TOOLS = {
    "echo": {"read_only": True},
    "sleep": {"read_only": True},
    "count": {"destructive": True},
    "charge": {"idempotent": False},
    "die": {},
    "mute": {},
    "flood": {},
    "foreign": {},
    "progress": {},
    "meta": {},
    "env": {},
    "fail": {},
    "picture": {},
    "structured": {},
    "json": {},
    "stderr": {},
    "refuse": {},
    "wait_and_count": {},
}


def send(message: dict[str, Json]) -> None:
    with LOCK:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def text(*said: str, **more: Json) -> dict[str, Json]:
    return {"content": [{"type": "text", "text": one} for one in said], **more}


def note(file: str) -> None:
    with Path(file).open("a", encoding="utf-8") as out:
        out.write("called\n")


def call(name: str, given: dict[str, Json], params: dict[str, Json], number: Json) -> dict[str, Json] | None:
    if name == "echo":
        return text(str(given.get("say", "")))
    if name == "sleep":
        time.sleep(given["seconds"])
        return text("slept")
    if name in {"count", "charge"}:
        note(given["file"])
        return text("counted")
    if name == "wait_and_count":
        time.sleep(given["seconds"])
        note(given["file"])
        return text("counted")
    if name == "die":
        if "file" in given:
            note(given["file"])
            if Path(given["file"]).read_text(encoding="utf-8").count("\n") > given.get("times", 10**9):
                return text("lived")
        print("I cannot go on", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "mute":
        return None
    if name == "flood":
        return text("x" * int(given["megabytes"] * 2**20))
    if name == "foreign":
        send({"jsonrpc": "2.0", "id": 987654, "result": text("for somebody else")})
        return None
    if name == "progress":
        while True:
            send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "..."}})
            time.sleep(0.05)
    if name == "meta":
        return text(json.dumps(params.get("_meta") or {}))
    if name == "env":
        return text(os.environ.get(given["name"], "-"))
    if name == "fail":
        return text(f"\x1b[31mno\x1b[0m {os.environ.get('TOKEN', '')}", isError=True)
    if name == "picture":
        return {
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image", "mimeType": "image/png", "data": "A" * int(given.get("size", 8))},
            ]
        }
    if name == "structured":
        return text("seven", structuredContent={"seven": 7})
    if name == "json":
        return text('{"seven": [7, null]}')
    if name == "stderr":
        sys.stderr.write("y" * 5_000_000 + "\nthe last words\n")
        sys.stderr.flush()
        return text("written")
    send({"jsonrpc": "2.0", "id": number, "error": {"code": -32602, "message": "not like this"}})
    return None


def answer(message: dict[str, Json]) -> None:
    method, number = message.get("method"), message.get("id")
    if number is None:
        return
    if method == "initialize":
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "rude", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": [described(name, hints) for name, hints in TOOLS.items()]}
    elif method == "ping":
        result = {}
    elif method == "tools/call":
        params = message["params"]
        result = call(params["name"], params.get("arguments") or {}, params, number)
    else:
        send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "unknown"}})
        return
    if result is not None:
        send({"jsonrpc": "2.0", "id": number, "result": result})


def described(name: str, hints: dict[str, Json]) -> dict[str, Json]:
    schema = {"type": "object", "properties": {}}
    if name == "echo":
        schema = {
            "type": "object",
            "properties": {"say": {"type": "string"}},
            "required": ["say"],
            "additionalProperties": False,
        }
    shown = {"read_only": "readOnlyHint", "destructive": "destructiveHint", "idempotent": "idempotentHint"}
    found = {"name": name, "description": f"It does {name}.", "inputSchema": schema}
    if hints:
        found["annotations"] = {shown[hint]: value for hint, value in hints.items()}
    return found


def main() -> None:
    manner = sys.argv[1] if len(sys.argv) > 1 else ""
    if marks := os.environ.get("STARTS"):
        note(marks)
    if manner == "exit":
        print("no configuration", file=sys.stderr)
        sys.exit(4)
    if manner == "mute":
        time.sleep(600)
    if manner == "slow":
        time.sleep(1)
    print("this line is no message of the protocol", flush=True)
    for line in sys.stdin:
        threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()


if __name__ == "__main__":
    main()
