"""Settings: `stepwell.toml`, and the environment over it.

The law of the file: nothing else reads the environment. A key is known or an error; a secret is named in the file,
never written in it, and shown nowhere.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stepwell.engine.budget_settings import NO_BUDGETS, BudgetSettings, budgets_of
from stepwell.engine.budget_settings import known_variables as budget_variables
from stepwell.engine.http_settings import HTTP_KEYS, HttpSettings, http_of
from stepwell.engine.limit_settings import LimitSettings, limit_variables, limits_of
from stepwell.engine.mcp_settings import mcp_variables, servers_of
from stepwell.engine.secret import Secret
from stepwell.engine.settings_models import EMBEDDED, ModelSettings, names_of, read_models
from stepwell.engine.settings_models import known_variables as twins_of
from stepwell.engine.settings_secrets import read_secrets
from stepwell.engine.settings_text import Reading
from stepwell.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepwell.adapters.mcp.server import McpServer

Json: TypeAlias = Any

FILE = "stepwell.toml"
DATABASE = "sqlite:///./stepwell.db"
PROJECT_KEYS = ("workflows", "recipes", "tools", "database", "default_model", "durability", "embedded_gguf", "user")
LATER = ("mail", "server")
"""Sections of the format that this version does not read."""


def _embedded_alone() -> dict[str, ModelSettings]:
    return {EMBEDDED: ModelSettings(EMBEDDED, "embedded")}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a project is made of. All paths are absolute; `file` is None where no stepwell.toml was found."""

    root: Path
    file: Path | None = None
    workflows: tuple[Path, ...] = ()
    """Folders."""
    recipes: tuple[Path, ...] = ()
    """Folders."""
    tools: tuple[Path, ...] = ()
    """Files."""
    database: str = DATABASE
    default_model: str = EMBEDDED
    models: Mapping[str, ModelSettings] = field(default_factory=_embedded_alone)
    limits: LimitSettings = field(default_factory=LimitSettings)
    mcp: Mapping[str, McpServer] = field(default_factory=dict)
    budgets: BudgetSettings = NO_BUDGETS
    durability: Literal["full", "normal"] = "full"
    embedded_gguf: str = ""
    """A better model file for the embedded provider; "" is the one that is installed."""
    http: HttpSettings = field(default_factory=HttpSettings)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    """Those that workflows may name."""
    user: str = ""
    """Who one is on the command line, by name or e-mail address; "" is the local operator."""

    @classmethod
    def load(cls, start: Path, environ: Mapping[str, str]) -> Settings:
        """The settings for a file or folder: of the nearest stepwell.toml upwards from it, else of the working folder.

        Relative paths are relative to the file they are written in; those of the environment to the working folder.
        Raises DefinitionError with everything that is wrong.
        """
        cwd = Path.cwd()
        file = find_file(start, cwd)
        reading = Reading(str(file) if file else "", _text(file) if file else "")
        data = _parsed(reading)
        root = file.parent if file else cwd
        settings = cls(root=root, file=file)
        settings = _project(settings, reading, data, environ, cwd)
        settings = _models(settings, reading, data, environ)
        settings = replace(settings, limits=limits_of(reading, data.get("limits", {}), environ, root))
        settings = replace(settings, http=http_of(reading, data.get("http", {}), environ))
        settings = replace(settings, secrets=read_secrets(reading, data.get("secrets", {}), root, environ))
        settings = replace(settings, mcp=servers_of(reading, data.get("mcp", {}), environ, root))
        settings = replace(settings, budgets=budgets_of(reading, data.get("budget", {}), environ))
        if reading.problems:
            raise DefinitionError(reading.problems)
        return settings

    def keys(self) -> dict[str, Secret]:
        """Secrets of the settings that no workflow may name, by where they are said."""
        keys = {f"models.{name}.api_key": model.api_key for name, model in self.models.items() if model.api_key}
        for name, server in self.mcp.items():
            keys |= {f"mcp.{name}.{n}": Secret(value, f"mcp.{name}") for n, value in enumerate(server.secrets)}
        return keys | ({"limits.redis": self.limits.redis} if self.limits.redis else {})


def find_file(start: Path, cwd: Path) -> Path | None:
    """The stepwell.toml that counts for `start`."""
    start = (cwd / start).resolve()
    folder = start if start.is_dir() else start.parent
    for place in (folder, *folder.parents, cwd):
        if (place / FILE).is_file():
            return place / FILE
    return None


def absolute_database(url: str, folder: Path) -> str:
    """`sqlite:///PATH` with an absolute path; a bare path is read as one of SQLite. Raises ValueError."""
    scheme, mark, path = url.partition("://")
    if not mark:
        scheme, path = "sqlite", f"/{url}"
    if scheme != "sqlite":
        raise ValueError(f"databases of this version are sqlite:///PATH, this is {scheme}://…")
    if path.lstrip("/").removeprefix("file:").partition("?")[0] == ":memory:":
        raise ValueError(f"{url!r} names no file, and runs are kept in one; write sqlite:///stepwell.db")
    if not path.startswith("/") or path == "/":
        raise ValueError(f"{url!r} names no file; write sqlite:///PATH (sqlite:////PATH for an absolute one)")
    return f"sqlite:///{(folder / path[1:]).resolve()}"


def _text(file: Path) -> str:
    return file.read_bytes().decode("utf-8-sig", "replace")


def _parsed(reading: Reading) -> dict[str, Json]:
    try:
        data = tomllib.loads(reading.text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        reading.refuse_syntax(str(error))
        return {}
    known = ("project", "models", "limits", "http", "secrets", "mcp", "budget")
    for section in data:
        if section in LATER:
            reading.refuse((section,), f"[{section}] is not read by this version", "take it out", code="not_performed")
        elif section not in known:
            hint = "paths and the database belong into [project]" if section in PROJECT_KEYS else ""
            reading.refuse_unknown((section,), known, hint)
    for section in known:
        if not isinstance(data.get(section, {}), dict):
            reading.refuse((section,), f"{section} is a section", f"write [{section}]")
            data.pop(section)
    return data


def _project(
    settings: Settings, reading: Reading, data: dict[str, Json], environ: Mapping[str, str], cwd: Path
) -> Settings:
    section = data.get("project", {})
    for key in section:
        if key not in PROJECT_KEYS:
            reading.refuse_unknown(("project", key), PROJECT_KEYS)
    found: dict[str, Json] = {}
    for key in PROJECT_KEYS:
        twin = f"STEPWELL_{key.upper()}"
        if environ.get(twin):
            value: Json = environ[twin].split(os.pathsep) if key in {"workflows", "recipes", "tools"} else environ[twin]
            found |= _value(reading, ("project", key), value, cwd, said=twin)
        elif key in section:
            found |= _value(reading, ("project", key), section[key], settings.root)
    found.setdefault("database", absolute_database(DATABASE, cwd))
    return replace(settings, **found)


def _value(reading: Reading, where: tuple[str, ...], value: Json, folder: Path, *, said: str = "") -> dict[str, Json]:
    """The setting under its name, or nothing but a problem."""
    key = where[-1]
    if key in {"workflows", "recipes", "tools"}:
        paths = [value] if isinstance(value, str) else value
        if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
            return reading.refuse(where, f"{key} is a path or a list of paths", f'write {key} = ["{key}"]', said=said)
        return {key: tuple((folder / path).resolve() for path in paths)}
    if not isinstance(value, str) or not value:
        return reading.refuse(where, f"{key} is text", f'write {key} = "..."', said=said)
    try:
        return {key: _text_value(key, value, folder)}
    except ValueError as error:
        return reading.refuse(where, str(error), "", said=said)


def _text_value(key: str, value: str, folder: Path) -> str:
    if key == "database":
        return absolute_database(value, folder)
    if key == "durability" and value not in {"full", "normal"}:
        raise ValueError(f"durability is full or normal, this is {value!r}")
    return str((folder / value).resolve()) if key == "embedded_gguf" else value


def _models(settings: Settings, reading: Reading, data: dict[str, Json], environ: Mapping[str, str]) -> Settings:
    sections = data.get("models", {})
    names = names_of(sections, environ)
    read = read_models(reading, sections, settings.root, environ)
    models = _embedded_alone() | read
    default = settings.default_model
    if default == EMBEDDED and not _says_default(data, environ) and len(read) == 1:
        default = next(iter(read))
    if default not in models and default not in names:
        said = "STEPWELL_DEFAULT_MODEL" if environ.get("STEPWELL_DEFAULT_MODEL") else ""
        known = (*names, EMBEDDED)
        reading.refuse_unknown(("project", "default_model"), known, name=default, noun="model", said=said)
    return replace(settings, models=models, default_model=default)


def _says_default(data: dict[str, Json], environ: Mapping[str, str]) -> bool:
    return bool(environ.get("STEPWELL_DEFAULT_MODEL")) or "default_model" in data.get("project", {})


def known_variables(models: Sequence[str] = (), servers: Sequence[str] = ()) -> list[str]:
    """The environment twins of every key."""
    project = [f"STEPWELL_{key.upper()}" for key in PROJECT_KEYS]
    http = [f"STEPWELL_HTTP_{key.upper()}" for key in HTTP_KEYS]
    more = http + budget_variables() + twins_of(models) + mcp_variables(list(servers))
    return project + limit_variables() + more
