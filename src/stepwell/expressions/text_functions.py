"""The functions over texts: they count in code points, and pay by length before they do the work."""

from __future__ import annotations

from typing import Any

from .errors import Fault
from .limits import CHARS_PER_UNIT
from .results import as_json, as_text, scalar_text, weigh_tree
from .values import Frame, kind_of, paid, spend, spend_text, whole_number


def starts_with(frame: Frame, text: str, prefix: str) -> bool:
    spend(frame, 1 + len(prefix) // CHARS_PER_UNIT)
    return text.startswith(prefix)


def ends_with(frame: Frame, text: str, suffix: str) -> bool:
    spend(frame, 1 + len(suffix) // CHARS_PER_UNIT)
    return text.endswith(suffix)


def lower(frame: Frame, text: str) -> str:
    spend_text(frame, len(text))
    return text.lower()


def upper(frame: Frame, text: str) -> str:
    spend_text(frame, len(text))
    return text.upper()


def trim(frame: Frame, text: str) -> str:
    spend_text(frame, len(text))
    return text.strip()


def replace(frame: Frame, text: str, old: str, new: str) -> str:
    if not old:
        raise Fault("eval", "replace() needs a text to look for, got an empty one")
    spend_text(frame, len(text))
    spend_text(frame, len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def split(frame: Frame, text: str, separator: str, limit: Any = -1) -> list[str]:
    """Parts of a text; an empty separator gives its characters; at most `limit` parts when it is not negative."""
    most = whole_number(limit, "a limit")
    spend_text(frame, len(text))
    if most == 0:
        return []
    if not separator:
        spend(frame, len(text))
        chars = list(text)
        return chars if most < 0 or most >= len(chars) else [*chars[: most - 1], "".join(chars[most - 1 :])]
    spend(frame, text.count(separator))
    return text.split(separator, most - 1 if most > 0 else -1)


def join(frame: Frame, items: list[Any], separator: str = "") -> str:
    spend(frame, len(items))
    parts = [_joinable(item, index) for index, item in paid(frame, items)]
    spend_text(frame, sum(map(len, parts)) + len(separator) * max(len(parts) - 1, 0))
    return separator.join(parts)


def bullets(frame: Frame, items: list[Any]) -> str:
    spend(frame, len(items))
    parts = [_joinable(item, index) for index, item in paid(frame, items)]
    spend_text(frame, sum(map(len, parts)) + 3 * len(parts))
    return "\n".join(f"- {part}" for part in parts)


def _joinable(item: Any, index: int) -> str:
    kind = kind_of(item)
    if kind == "string":
        return str.__str__(item)
    if kind in ("array", "object", "null"):
        raise Fault("type", f"element {index} is {kind}, not a text", hint="convert with  .map(x, string(x))")
    return scalar_text(item, kind)


def substring(frame: Frame, text: str, start: Any, end: Any = None) -> str:
    """From `start` up to but not including `end`, both cut to the text. Raises Fault (eval) when negative."""
    low = whole_number(start, "a position")
    high = len(text) if end is None else whole_number(end, "a position")
    if low < 0 or high < 0:
        raise Fault("eval", "substring() counts from 0; a position is negative", hint="slice() counts from the end")
    spend_text(frame, max(0, min(high, len(text)) - low))
    return text[low:high]


def truncate(frame: Frame, text: str, length: Any, ending: str = "") -> str:
    """At most `length` characters, the last of them `ending` when something was cut."""
    most = whole_number(length, "a length")
    if most < 0:
        raise Fault("eval", "a length is not negative")
    if len(text) <= most:
        return text
    spend_text(frame, most)
    return text[: max(0, most - len(ending))] + ending[:most]


def lines(frame: Frame, text: str) -> list[str]:
    spend_text(frame, len(text))
    found = text.splitlines()
    spend(frame, len(found))
    return found


def string(frame: Frame, value: Any) -> str:
    text = as_text(value, frame)
    if text is not value:
        spend_text(frame, len(text))
    return text


def json(frame: Frame, value: Any, indent: Any = None) -> str:
    step = None if indent is None else whole_number(indent, "an indent")
    if step is not None and not 0 <= step <= 8:
        raise Fault("eval", "an indent is 0 to 8 spaces")
    text = as_json(value, frame, step)
    spend_text(frame, len(text))
    return text


def parse_json(frame: Frame, text: str) -> Any:
    from json import loads

    spend_text(frame, len(text) * 2)
    try:
        value = loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise Fault("limit", "the JSON is nested too deep") from None
    except ValueError as error:
        raise Fault("eval", f"not JSON: {str(error)[:80]}") from None
    weigh_tree(value)
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def base64(frame: Frame, text: str) -> str:
    from base64 import b64encode

    spend_text(frame, len(text) * 4)
    return b64encode(_encoded(text)).decode("ascii")


def base64_decode(frame: Frame, text: str) -> str:
    from base64 import b64decode

    spend_text(frame, len(text))
    try:
        return b64decode(_encoded(text), validate=True).decode("utf-8")
    except ValueError:
        raise Fault("eval", "not base64 of a UTF-8 text") from None


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise Fault("eval", "the text holds a lone surrogate") from None
