"""What a forked process of the crew does: it becomes the program of its role."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import TextIO

import stepwell.engine.assemble  # noqa: F401 -- imported once, in the server that forks
import tests.chaos.decider
import tests.chaos.everything.board
import tests.chaos.everything.operator
import tests.chaos.everything.payments
import tests.chaos.worker
from stepwell.kinds import discover
from tests.chaos.everything.loose_clock import let_loose

discover()
_ROLES = {
    "worker": tests.chaos.worker.main,
    "decider": tests.chaos.decider.main,
    "board": tests.chaos.everything.board.main,
    "operator": tests.chaos.everything.operator.main,
    "payments": tests.chaos.everything.payments.main,
}


def play(role: str, arguments: list[str], environ: Mapping[str, str], channel: socket.socket, log: str) -> None:
    """Run the role with the channel as its standard input and output, and the log as its standard error."""
    os.environ.update(environ)
    errors = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for source, target in ((channel.fileno(), 0), (channel.fileno(), 1), (errors, 2)):
        os.dup2(source, target)
    channel.close()
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    if jumps := environ.get("CHAOS_JUMPS"):
        let_loose(Path(jumps), Path(environ["CHAOS_CALM"]))
    if role != "worker":  # which reads its input
        Thread(target=_end_with, args=(sys.stdin,), daemon=True).start()
    _ROLES[role](arguments)


def _end_with(channel: TextIO) -> None:
    """End once whoever hired this process has: a test that is killed leaves nothing behind."""
    channel.read()
    os._exit(1)
