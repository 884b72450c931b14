"""
Regular expressions by RE2: linear in the text, so that no pattern can hang a run.

The library is loaded when the first pattern is compiled, not when the package is imported.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from .errors import Fault
from .limits import CHARS_PER_UNIT, PATTERN_CHARS, PATTERN_INSTRUCTIONS, PATTERN_MEMORY
from .values import Frame, spend

_COMPILE_UNITS = 500
_UNITS_PER_INSTRUCTION = 3
_STATES_PER_UNIT = 64
_COMPUTED_MEMORY = 1 << 18


class PatternRoom:
    """How many instructions the patterns written in one text may have together; compiling one takes about 1 us."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = PATTERN_INSTRUCTIONS

    def compile(self, pattern: str) -> Any:
        """The program of a pattern. Raises Fault (syntax, limit)."""
        program = compiled(pattern)
        self.left -= program.programsize
        if self.left < 0:
            raise Fault("limit", f"the patterns are too large: more than {PATTERN_INSTRUCTIONS} instructions")
        return program


@lru_cache(maxsize=32)
def compiled(pattern: str, memory: int = PATTERN_MEMORY) -> Any:
    """The RE2 program of a pattern. Raises Fault (syntax, limit) when it is wrong, too long or too large."""
    if len(pattern) > PATTERN_CHARS:
        raise Fault("limit", f"a pattern of more than {PATTERN_CHARS} characters")
    try:
        import re2
    except ImportError:
        raise Fault("syntax", "matches() needs the package google-re2, which is not installed") from None
    options = re2.Options()
    options.max_mem = memory
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except UnicodeEncodeError:
        raise Fault("syntax", "bad regular expression: it holds a lone surrogate") from None
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise Fault("syntax", f"bad regular expression: {text[:120]}") from None


def matches(frame: Frame, text: str, pattern: str) -> bool:
    """Whether the pattern occurs anywhere in the text (anchor it with ^ and $)."""
    spend(frame, _COMPILE_UNITS)
    try:
        program = compiled(pattern, _COMPUTED_MEMORY)
    except Fault as fault:
        code = "eval" if fault.code == "syntax" else fault.code
        raise Fault(code, fault.message) from None
    spend(frame, _UNITS_PER_INSTRUCTION * program.programsize)
    return matched(frame, text, program)


def matched(frame: Frame, text: str, program: Any) -> bool:
    """Search; the charge is for the worst case, in which RE2 simulates the automaton state by state."""
    spend(frame, 1 + len(text) // CHARS_PER_UNIT + len(text) * program.programsize // _STATES_PER_UNIT)
    try:
        return program.search(text) is not None
    except UnicodeEncodeError:
        raise Fault("eval", "the text holds a lone surrogate") from None
