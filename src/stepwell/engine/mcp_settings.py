"""The sections [mcp.NAME] of the settings: servers of tools, as commands or addresses.

The law of the file: what looks like a secret is named, `env:NAME` or `file:PATH`, and never written into the file.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from stepwell.adapters.mcp.server import PORT, McpServer
from stepwell.engine.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepwell.engine.settings_text import Reading

Json: TypeAlias = Any

MCP_KEYS = ("command", "args", "env", "url", "headers", "timeout", "max_inflight")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_NAMED = re.compile(r"(?P<before>(?:[A-Za-z]+ )?)(?P<source>env|file):(?P<rest>.+)", re.DOTALL)
_SECRET = re.compile(r"authorization|token|secret|password|passwd|api[-_]?key|cookie|credential", re.IGNORECASE)


def servers_of(reading: Reading, sections: Json, environ: Mapping[str, str], root: Path) -> dict[str, McpServer]:
    """The servers by name, with the environment over the file. Every problem is noted in `reading`."""
    found: dict[str, McpServer] = {}
    for name, section in (sections if isinstance(sections, dict) else {}).items():
        if not _NAME.fullmatch(name):
            reading.refuse(("mcp", name), f"{name!r} cannot name a server", "use letters, digits, _ and -")
        elif not isinstance(section, dict):
            reading.refuse(("mcp", name), f"mcp.{name} is a section", f"write [mcp.{name}]")
        else:
            before = len(reading.problems)
            server = _Section(reading, name, section, environ, root).server()
            if len(reading.problems) == before:
                found[name] = server
    return found


def mcp_variables(names: tuple[str, ...] | list[str]) -> list[str]:
    """The environment twins of every key."""
    return [_twin(name, key) for name in names for key in MCP_KEYS]


def _twin(name: str, key: str) -> str:
    spelt = "".join(letter if letter.isalnum() else "_" for letter in name)
    return f"STEPWELL_MCP_{spelt}_{key}".upper()


class _Section:
    """One section while it is read."""

    def __init__(
        self, reading: Reading, name: str, section: dict[str, Json], environ: Mapping[str, str], root: Path
    ) -> None:
        self._reading = reading
        self._name = name
        self._section = section
        self._environ = environ
        self._root = root
        self._missing = ""
        self._secrets: list[str] = []

    def server(self) -> McpServer:
        for key in self._section:
            if key not in MCP_KEYS:
                self._reading.refuse_unknown(("mcp", self._name, key), MCP_KEYS)
        found: dict[str, Json] = {}
        for key in MCP_KEYS:
            said = _twin(self._name, key) if self._environ.get(_twin(self._name, key)) else ""
            if not said and key not in self._section:
                continue
            value = self._environ[said] if said else self._section[key]
            try:
                found[key] = self._value(key, value, written=not said)
            except ValueError as error:
                self._reading.refuse(("mcp", self._name, key), str(error), _HINTS[key], said=said)
        self._check(found)
        return McpServer(self._name, folder=self._root, missing=self._missing, secrets=tuple(self._secrets), **found)

    def _value(self, key: str, value: Json, *, written: bool) -> Json:
        """One setting; `written` says that it stands in the file. Raises ValueError."""
        if key in {"env", "headers"}:
            return self._table(key, value, written=written)
        if key == "args":
            listed = value.split(os.pathsep) if isinstance(value, str) and not written else value
            if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
                raise ValueError("args is a list of texts")
            return tuple(listed)
        if key == "max_inflight":
            return _whole(value, written=written)
        if key == "timeout":
            return _seconds(value, written=written)
        if not isinstance(value, str) or not value:
            raise ValueError(f"{key} is text")
        return self._address(value, written=written) if key == "url" else value

    def _table(self, key: str, value: Json, *, written: bool) -> dict[str, str]:
        if isinstance(value, str) and not written:
            try:
                value = json.loads(value)
            except ValueError:
                raise ValueError(f"{key} is a JSON object of texts") from None
        if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
            raise ValueError(f"{key} is a table of texts")
        return {name: self._text(name, one, written=written) for name, one in value.items()}

    def _text(self, name: str, value: str, *, written: bool) -> str:
        """A text of a table, with the secret that it names put in."""
        if named := _NAMED.fullmatch(value):
            secret = self._secret(named["source"], named["rest"])
            return named["before"] + secret.reveal()
        if _SECRET.search(name):
            if written:
                raise ValueError(f"the secret {name} is not written into stepwell.toml")
            self._secrets.append(value)
        return value

    def _address(self, value: str, *, written: bool) -> str:
        if named := _NAMED.fullmatch(value):
            value, written = self._secret(named["source"], named["rest"]).reveal(), False
            if not value:
                return "http://missing.invalid/"
        split = urlsplit(value.replace(PORT, "1"))
        if split.scheme not in {"http", "https"} or not split.hostname:
            raise ValueError("url begins with http:// or https://")
        if written and (split.password or _SECRET.search(split.query)):
            raise ValueError("a password is not written into stepwell.toml")
        return value

    def _secret(self, source: str, rest: str) -> Secret:
        if source == "env":
            secret = Secret.of_environment(rest, self._environ)
        else:
            secret = Secret.of_file(self._root / Path(rest).expanduser())
        self._missing = self._missing or secret.missing
        if secret:
            self._secrets.append(secret.reveal())
        return secret

    def _check(self, found: dict[str, Json]) -> None:
        where = ("mcp", self._name)
        command, url = found.get("command"), found.get("url", "")
        if not command and not url and not {"command", "url"} & self._section.keys():
            self._reading.refuse(where, f"the server {self._name!r} has neither command nor url", _HINTS["command"])
        if not command:
            for key in sorted({"args", "env"} & found.keys()):
                self._reading.refuse((*where, key), f"{key} belongs to a command, and there is none", "")
        if not url and "headers" in found:
            self._reading.refuse((*where, "headers"), "headers belong to a url, and there is none", "")
        if (PORT in url) != bool(command and url):
            said = f"{PORT} stands for the free port of a server with both command and url"
            self._reading.refuse((*where, "url"), said, f'write url = "http://localhost:{PORT}/mcp"')


def _whole(value: Json, *, written: bool) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() and not written else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError("max_inflight is a whole number of calls, at least 1")
    return number


def _seconds(value: Json, *, written: bool) -> float:
    try:
        seconds = float(value) if isinstance(value, str) and not written else value
    except ValueError:
        seconds = None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 86_400:
        raise ValueError("timeout is a number of seconds, at most a day")
    return float(seconds)


_HINTS = {
    "command": 'write command = "npx" and args = [...], or url = "https://..."',
    "args": 'write args = ["--flag", "value"]',
    "env": 'write env = {TOKEN = "env:NAME_OF_A_VARIABLE"}',
    "url": 'write url = "https://HOST/mcp", or url = "env:NAME_OF_A_VARIABLE" for one with a password',
    "headers": 'write headers = {Authorization = "Bearer env:NAME_OF_A_VARIABLE"}',
    "timeout": "write timeout = 60",
    "max_inflight": "write max_inflight = 16",
}
