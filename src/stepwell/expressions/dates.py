"""
Timestamps and durations: reading, arithmetic's types, writing. There is no `now()`: a replay must see the same.

A timestamp always has a fixed offset; a zone name is resolved once, at reading. RFC 3339 is the format of a text.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

from .errors import Fault
from .values import Frame, kind_of, spend, spend_text

_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?(?:([Zz])|([+-]\d\d:?\d\d))?)?", re.ASCII
)
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|us|s|m|h|d|w)", re.ASCII)
_UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DIRECTIVE = re.compile(r"%(.)", re.DOTALL)


def timestamp(frame: Frame, value: Any, zone: str | None = None) -> datetime:
    """
    A text with an offset, a text without one in a zone, or seconds since 1970.

    In a zone, an hour that is missing moves forward and of a doubled hour the first is taken (RFC 5545).
    Raises Fault (eval).
    """
    spend(frame, 1)
    kind = kind_of(value)
    try:
        if kind == "timestamp":
            moment: datetime = value
        elif kind == "number":
            moment = datetime.fromtimestamp(value, UTC)
        else:
            moment = _read(value, zone)
        return moment if zone is None else _fixed(moment.astimezone(_zone(zone)))
    except (ValueError, OverflowError, OSError):
        raise Fault("eval", "the value is not a timestamp of the years 1 to 9999") from None


def _read(text: str, zone: str | None) -> datetime:
    found = _STAMP.fullmatch(text)
    if found is None:
        raise Fault("eval", "the text is not a timestamp", hint="write  2026-01-31T09:30:00+01:00")
    day, clock, fraction, zulu, offset = found.groups()
    moment = datetime.fromisoformat(f"{day}T{clock or '00:00'}")
    if fraction:
        moment += timedelta(microseconds=int(fraction[:6].ljust(6, "0")))
    if zulu:
        return moment.replace(tzinfo=UTC)
    if offset:
        hours, minutes = int(offset[1:3]), int(offset[-2:])
        shift = timedelta(hours=hours, minutes=minutes)
        return moment.replace(tzinfo=timezone(-shift if offset[0] == "-" else shift))
    if zone is None:
        raise Fault(
            "eval", "the timestamp has no offset", hint='add one, or name a zone: timestamp(text, "Europe/Rome")'
        )
    return moment.replace(tzinfo=_zone(zone), fold=0).astimezone(UTC)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name[:64])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Fault("eval", f"unknown time zone '{name[:40]}'", hint="write it as Europe/Rome") from None


def _fixed(moment: datetime) -> datetime:
    return moment.replace(tzinfo=timezone(moment.utcoffset() or timedelta()))


def duration(frame: Frame, value: Any) -> timedelta:
    """A text such as `90s`, `1h30m`, `2d`, `1.5h`, with a sign if need be. Raises Fault (eval)."""
    if isinstance(value, timedelta):
        return value
    spend_text(frame, len(value))
    text = value.strip().removeprefix("-")
    total, position = timedelta(), 0
    try:
        while position < len(text):
            part = _DURATION.match(text, position)
            if part is None or position > 100:
                break
            position = part.end()
            total += _UNITS[part[2]] * (float(part[1]) if "." in part[1] else int(part[1]))
    except OverflowError:
        position = 0
    if not text or position != len(text):
        raise Fault("eval", "the text is not a duration", hint="write  90s, 15m, 1h30m or 2d")
    return -total if value.strip().startswith("-") else total


def format_date(frame: Frame, value: Any, pattern: str, zone: str | None = None) -> str:
    """A timestamp by %Y %m %d %H %M %S %y %j %B %b %A %a %I %p %z %%, English names. Raises Fault (eval)."""
    moment = timestamp(frame, value, zone)
    spend_text(frame, len(pattern) * 9)
    return _DIRECTIVE.sub(lambda found: _written(moment, found[1]), pattern)


def _written(moment: datetime, letter: str) -> str:
    clock = {
        "Y": f"{moment.year:04d}",
        "y": f"{moment.year % 100:02d}",
        "m": f"{moment.month:02d}",
        "d": f"{moment.day:02d}",
        "H": f"{moment.hour:02d}",
        "I": f"{(moment.hour + 11) % 12 + 1:02d}",
        "M": f"{moment.minute:02d}",
        "S": f"{moment.second:02d}",
        "p": "AM" if moment.hour < 12 else "PM",
        "j": f"{moment.timetuple().tm_yday:03d}",
        "B": _MONTHS[moment.month - 1],
        "b": _MONTHS[moment.month - 1][:3],
        "A": _DAYS[moment.weekday()],
        "a": _DAYS[moment.weekday()][:3],
        "z": moment.isoformat()[-6:],
        "%": "%",
    }
    written = clock.get(letter)
    if written is None:
        raise Fault(
            "eval", f"unknown directive '%{letter}'", hint="known: %Y %m %d %H %M %S %B %b %A %a %I %p %j %z %%"
        )
    return written
