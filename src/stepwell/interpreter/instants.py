"""Instants written as text."""

from __future__ import annotations

from datetime import UTC, datetime


def instant(text: str) -> float:
    """UTC seconds since 1970 of an ISO 8601 text with an offset. Raises ValueError that says what is missing."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not an instant; write 2026-03-01T09:00:00+01:00") from None
    if found.tzinfo is None:
        raise ValueError(f"{text[:40]!r} has no offset; write 2026-03-01T09:00:00+01:00 or …Z")
    return found.timestamp()


def instant_text(seconds: float) -> str:
    """ISO 8601 in UTC, to the millisecond, of UTC seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
