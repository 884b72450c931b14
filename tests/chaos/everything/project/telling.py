"""How a tool tells the ledger of a call, from within the process that makes it. CHAOS_LEDGER is the file."""

from __future__ import annotations

import json
import os
import time
from functools import cache
from typing import Any


@cache
def _opened(file: str) -> int:
    return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def tell(word: str, key: str, said: Any = None) -> None:
    """One line by one write. A kill may tear it, so it also begins a line: what is torn spoils nothing else."""
    line = {"word": word, "key": key, "pid": os.getpid(), "at": time.time(), "said": said}
    os.write(_opened(os.environ["CHAOS_LEDGER"]), f"\n{json.dumps(line)}\n".encode())
