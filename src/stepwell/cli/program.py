"""How the reader can call the program again: commands that are suggested must work when they are copied."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache
from pathlib import Path


@cache
def program() -> str:
    """`stepwell` where PATH finds it, else the path by which it was called."""
    called = Path(sys.argv[0])
    if called.name != "stepwell" or not called.is_file():
        return "stepwell"
    found = shutil.which("stepwell")
    if found is not None and called.samefile(found):
        return "stepwell"
    try:
        near = os.path.relpath(called)
    except ValueError:  # on another drive
        return str(called)
    shown = near if len(near) < len(str(called)) else str(called)
    return f'"{shown}"' if " " in shown else shown
