"""Loads files of Python tools, each under a module name of its own.

The law of the file: loading registers nothing in Stepwell; what a file declares is what it hands back.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from stepwell.errors import DefinitionError, Problem
from stepwell.tool import ToolDeclaration, declaration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType


@dataclass(frozen=True, slots=True)
class Declared:
    """A marked function and where it was found."""

    declaration: ToolDeclaration
    function: Callable[..., Any]
    file: str = ""
    line: int = 0


def load_tool_file(path: Path) -> list[Declared]:
    """The marked functions of a file, those that it imports included, in the order of its names.

    While the file is executed, its folder is the first place where it may import from. Raises DefinitionError with
    file and line if it cannot be read or executed.
    """
    file = path.resolve()
    if not file.is_file():
        raise DefinitionError([_problem(str(path), 0, "there is no such file", "check --tools and stepwell.toml")])
    module = _executed(file, str(path))
    found: dict[int, Declared] = {}
    for value in vars(module).values():
        mark = declaration(value)
        if mark is not None and callable(value):
            found.setdefault(id(value), Declared(mark, value, str(path), _line_of(value)))
    return list(found.values())


def _executed(file: Path, shown: str) -> ModuleType:
    name = f"stepwell_tools_{blake2b(str(file).encode(), digest_size=6).hexdigest()}_{_identifier(file.stem)}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise DefinitionError([_problem(shown, 0, "this is not a Python file", "tools files end in .py")])
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        with _importing_from(file.parent):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise DefinitionError([_why(shown, file, error)]) from error
    return module


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _why(shown: str, file: Path, error: BaseException) -> Problem:
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return _problem(shown, error.lineno or 0, f"syntax error: {error.msg}", "", error.offset or 0)
    lines = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    hint = "install it into the environment that runs stepwell" if isinstance(error, ModuleNotFoundError) else ""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return _problem(shown, lines[-1] if lines else 0, f"the file cannot be executed: {said}", hint)


def _problem(file: str, line: int, message: str, hint: str = "", column: int = 0) -> Problem:
    return Problem("error", "tools", message, hint, file=file, line=line, column=column or (1 if line else 0))


def _line_of(function: object) -> int:
    code = getattr(function, "__code__", None)
    return int(getattr(code, "co_firstlineno", 0))


def _identifier(stem: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in stem)
