"""A script, not imported: runs a program for as long as somebody holds the other end of a pipe.

The law of the file: however the engine ends, also by SIGKILL, the program and what it started end with it. It imports
nothing of Stepwell.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

QUIET = 2.0
"""Seconds that a program which was spoken to gets to end by itself, once its input has ended."""
GENTLE = 5.0
"""Seconds that the program gets after it was told to end."""
ENDING = threading.Event()


def main() -> int:
    """Run the command behind the first argument; its exit code, 127 where it cannot be started.

    The first argument is the pipe that is watched; 0 stands for the standard input, which the program then lacks.
    """
    watched, command = int(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGTERM, _passed_on)
    try:
        program = subprocess.Popen(command, stdin=None if watched else subprocess.DEVNULL)  # noqa: S603 -- the user's own settings
    except (OSError, ValueError) as error:
        sys.stderr.write(f"its command {command[0]!r} cannot be started: {getattr(error, 'strerror', None) or error}\n")
        return 127
    if watched:
        _let_go()
    guard = threading.Thread(target=_guard, args=(program, watched), daemon=True)
    guard.start()
    code = program.wait()
    if ENDING.is_set():
        guard.join()
    return code


def _passed_on(_number: int, _frame: object) -> None:
    """The program is in the same group and hears it too; it is waited for."""


def _let_go() -> None:
    """The program's input and output are its alone: their ends are to be seen."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)


def _guard(program: subprocess.Popen[bytes], watched: int) -> None:
    while os.read(watched, 4096):
        pass
    ENDING.set()
    with contextlib.suppress(subprocess.TimeoutExpired):
        if watched:
            program.wait(QUIET)
    program.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        program.wait(GENTLE)
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)  # the group of this script: whatever is left of the program, and this script
    program.kill()


def _end(code: int) -> None:
    """End as the program did, by its signal too."""
    if code < 0:
        with contextlib.suppress(Exception):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program's own is enough
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(abs(code))


if __name__ == "__main__":
    _end(main())
