"""A payment service, in a process of its own: it charges as often as it is asked, and says how often that was.

The law of the file: requests take effect one after the other, in the order in which their connections were made, so
that a look-up knows of every charge that was sent before it. Answers come late, or never, as the number of the run
says.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_PATIENCE = 5.0
"""Seconds that a connection may be open without a request."""
_LATE = 3.0
"""Seconds by which an answer comes after whoever asked has given up."""


class Payments:
    """What was charged, asked for and paid back, by key."""

    def __init__(self, pause: float, calm: Path) -> None:
        self.charges: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.refunds: Counter[str] = Counter()
        self.hung_up = 0
        self.answered_late = 0
        self.put_off = 0
        self._pause = pause
        self._calm = calm

    def answer(self, method: str, path: str, said: dict[str, Any]) -> tuple[int, Any, float]:
        """Status (0: hang up), what is said, and after how many seconds."""
        pause = 0.0 if self._calm.exists() else random.uniform(0, 2 * self._pause)
        match method, path.split("/")[1:]:
            case "GET", ["report"]:
                return 200, {name: value for name, value in vars(self).items() if not name.startswith("_")}, 0.0
            case "GET", ["charges", key]:
                return 200, {"count": self.charges[unquote(key)]}, 0.0
            case "POST", ["refunds"]:
                self.refunds[said["key"]] += 1
                return 200, {"refunded": True}, pause
            case "POST", ["charges"]:
                return self._charge(said["key"], said["n"], pause)
        return 404, {}, 0.0

    def _charge(self, key: str, n: int, pause: float) -> tuple[int, Any, float]:
        self.asked[key] += 1
        first = self.asked[key] == 1
        if first and n % 8 == 3:
            self.put_off += 1
            return 503, {"charged": False}, pause
        self.charges[key] += 1
        if first and n % 8 == 1:
            self.hung_up += 1
            return 0, None, pause
        if first and n % 8 == 2:
            self.answered_late += 1
            return 200, {"charge": key}, _LATE
        return 200, {"charge": key}, pause


def _received(connection: socket.socket) -> tuple[str, str, dict[str, Any]] | None:
    """The request of a connection; None if the other side was gone before all of it was sent."""
    text = b""
    try:
        while b"\r\n\r\n" not in text:
            if not (more := connection.recv(65536)):
                return None
            text += more
        head, _, body = text.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        length = next((int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length:")), 0)
        while len(body) < length:
            if not (more := connection.recv(65536)):
                return None
            body += more
    except OSError:
        return None
    method, path, _ = lines[0].split(" ")
    return method, path, json.loads(body) if body else {}


def _reply(connection: socket.socket, status: int, said: Any, after: float) -> None:
    time.sleep(after)
    with connection:
        if status:
            body = json.dumps(said).encode()
            head = f"HTTP/1.1 {status} Said\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            try:
                connection.sendall(head.encode() + body)
            except OSError:  # whoever asked is gone
                return


def main(arguments: list[str]) -> None:
    """Serve until killed; the port is said once."""
    pause, calm = float(arguments[0]), Path(arguments[1])
    payments = Payments(pause, calm)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
        print(json.dumps({"port": server.getsockname()[1]}), flush=True)
        while True:
            connection, _ = server.accept()
            connection.settimeout(_PATIENCE)
            request = _received(connection)
            if request is None:
                connection.close()
                continue
            answer = payments.answer(*request)
            threading.Thread(target=_reply, args=(connection, *answer), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
