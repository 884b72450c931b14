"""Who owns a lease, and whether that owner lives: process identities and a clock that nobody sets.

The law of the file: a lease never looks at the wall clock. Its times are seconds since the machine was started
(CLOCK_BOOTTIME, which goes on while the machine sleeps), and they mean something only together with the boot they
belong to.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_PROC = Path("/proc")


def boot_seconds() -> float:
    """Seconds since the machine was started, which no change of the wall clock touches."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@lru_cache(maxsize=1)
def boot_id() -> str:
    """An identity of this start of the machine."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # No such file outside Linux: the instant of the start, coarse enough to survive small corrections of the clock.
        return f"started-{round((time.time() - time.monotonic()) / 600)}"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process of some machine, told apart from a later one that has the same number.

    `host` names the machine and the space of its process numbers (containers have their own); `started` is what the
    system says of the process's start, "" where it says nothing.
    """

    host: str
    pid: int
    started: str
    boot: str

    @classmethod
    def current(cls) -> ProcessIdentity:
        """The process that asks."""
        pid = os.getpid()
        return cls(_host(), pid, _start_of(pid) or "", boot_id())

    @classmethod
    def parse(cls, text: str) -> ProcessIdentity:
        """The identity that `str()` wrote. Raises ValueError."""
        host, pid, started, boot = text.rsplit(":", 3)
        return cls(host, int(pid), started, boot)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started}:{self.boot}"

    def known_dead(self) -> bool:
        """Whether this process certainly does not run any more; False where nobody here can know."""
        if self.boot != boot_id():
            return True
        if self.host != _host():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # it exists and belongs to someone else
        started = _start_of(self.pid)
        if started is None:
            return _PROC.joinpath("self/stat").exists()
        return bool(self.started) and started != self.started


@lru_cache(maxsize=1)
def _host() -> str:
    name = socket.gethostname()
    try:
        return f"{name}/{(_PROC / 'self/ns/pid').readlink()}".replace(":", "")
    except OSError:
        return name


def _start_of(pid: int) -> str | None:
    """When a process started, in clock ticks after the boot (proc(5), field 22 of stat); None for none or a zombie."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], fields[19]
    return None if state in "ZXx" else started
