"""
Regular expressions by RE2: linear in the text, so that no pattern can hang a run.

The library is loaded when the first pattern is compiled, not when the package is imported.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from .errors import Fault
from .limits import CHARS_PER_UNIT, PATTERN_CHARS, PATTERN_MEMORY
from .values import Frame, spend, spend_text

_COMPILE_UNITS = 500
_PROGRAM_UNIT = 256


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """The RE2 program of a pattern. Raises Fault (syntax, limit) when it is wrong, too long or too large."""
    if len(pattern) > PATTERN_CHARS:
        raise Fault("limit", f"a pattern of more than {PATTERN_CHARS} characters")
    try:
        import re2
    except ImportError:
        raise Fault("syntax", "matches() needs the package google-re2, which is not installed") from None
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY
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
        program = compiled(pattern)
    except Fault as fault:
        code = "eval" if fault.code == "syntax" else fault.code
        raise Fault(code, fault.message) from None
    return matched(frame, text, program)


def matched(frame: Frame, text: str, program: Any) -> bool:
    spend_text(frame, len(text))
    # A small automaton is cheap a character, a large one may be simulated state by state.
    spend(frame, (1 + len(text) // CHARS_PER_UNIT) * (program.programsize // _PROGRAM_UNIT))
    try:
        return program.search(text) is not None
    except UnicodeEncodeError:
        raise Fault("eval", "the text holds a lone surrogate") from None
