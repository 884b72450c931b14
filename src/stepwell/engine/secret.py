"""A secret: where it comes from can be shown, what it is cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Secret:
    """A secret text with its source. Printing, comparing and pickling never give it away."""

    __slots__ = ("_value", "missing", "source")

    def __init__(self, value: str, source: str, missing: str = "") -> None:
        self._value = value
        self.source = source
        """ "env:NAME", "file:PATH" or "" where none is configured."""
        self.missing = missing
        """Why there is nothing, as a sentence; "" if it is there or none is configured."""

    @classmethod
    def of_environment(cls, name: str, environ: Mapping[str, str]) -> Secret:
        value = environ.get(name, "")
        return cls(value, f"env:{name}", "" if value else f"the environment variable {name} is not set")

    @classmethod
    def of_file(cls, path: Path) -> Secret:
        """The file's text without surrounding white space."""
        try:
            value = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            return cls("", f"file:{path}", f"the file {path} cannot be read: {reason}")
        return cls(value, f"file:{path}", "" if value else f"the file {path} is empty")

    @classmethod
    def given(cls, value: str, variable: str) -> Secret:
        return cls(value, f"env:{variable}")

    def reveal(self) -> str:
        """The secret itself; "" if it is missing or none is configured."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return f"Secret({self.source or 'none'})"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (other.source, other._value) == (self.source, self._value)

    def __hash__(self) -> int:
        return hash(self.source)

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a secret is not pickled")


NO_SECRET = Secret("", "")
