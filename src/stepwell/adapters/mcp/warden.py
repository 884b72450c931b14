"""A script, not imported: runs a program for as long as somebody holds the other end of its standard input.

The law of the file: however the engine ends, also by SIGKILL, the program ends with it. It imports nothing of Stepwell.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

GENTLE = 5.0
"""Seconds that the program gets after it was told to end."""


def main() -> int:
    """Run the command of the arguments; its exit code, 127 where it cannot be started."""
    try:
        program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)  # noqa: S603 -- the user's own settings
    except OSError as error:
        sys.stderr.write(f"its command {sys.argv[1]!r} cannot be started: {error.strerror}\n")
        return 127
    threading.Thread(target=_guard, args=(program,), daemon=True).start()
    return program.wait()


def _guard(program: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        pass
    program.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        program.wait(GENTLE)
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)  # the group of this script: whatever is left of the program, and this script
    program.kill()


if __name__ == "__main__":
    sys.exit(main())
