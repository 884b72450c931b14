"""The real browser of the tests: one at a time on a machine, whoever runs them."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepwell.adapters.mcp.server import McpServer
from tests.browser import install
from tests.browser.office import Office

URL = "http://localhost:{port}/mcp"


@contextmanager
def one_browser() -> Iterator[tuple[list[str], str]]:
    """The command of the server and the path of Chromium, while nobody else has them."""
    with Path(tempfile.gettempdir(), f"stepwell-one-browser-{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield install.browser()


def arguments(chromium: str, folder: Path) -> list[str]:
    return [
        "--headless", "--no-sandbox", "--isolated", "--executable-path", chromium, "--output-dir", str(folder),
        "--port", "{port}", "--host", "127.0.0.1",
    ]  # fmt: skip


def server(browser: tuple[list[str], str], folder: Path) -> McpServer:
    command, chromium = browser
    args = (*command[1:], *arguments(chromium, folder))
    return McpServer("browser", command=command[0], args=args, url=URL, folder=folder)


def variables(browser: tuple[list[str], str], folder: Path) -> dict[str, str]:
    """The same in the place of what a `stepwell.toml` says of its server `browser`."""
    command, chromium = browser
    args = [*command[1:], *arguments(chromium, folder)]
    return {"STEPWELL_MCP_BROWSER_COMMAND": command[0], "STEPWELL_MCP_BROWSER_ARGS": os.pathsep.join(args)}


@contextmanager
def open_office() -> Iterator[tuple[Office, str]]:
    """The back office of the example, and where it is."""
    office = Office()
    thread = threading.Thread(target=office.serve_forever, daemon=True)
    thread.start()
    try:
        yield office, f"http://127.0.0.1:{office.server_port}"
    finally:
        office.shutdown()
        office.server_close()
        thread.join(5)
