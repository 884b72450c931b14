"""The built-in tool `http`: its arguments, and which of its methods may be repeated."""

from __future__ import annotations

from typing import Any, TypeAlias

Json: TypeAlias = Any

HTTP = "http"
"""The tool's name; no function of a project may have it."""
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Methods of which a second request does what the first did (RFC 9110, 9.2.2)."""
WITHOUT_BODY = frozenset({"GET", "HEAD"})

_TEXTS: Json = {"type": ["string", "integer", "number", "boolean"]}
PARAMETERS: dict[str, Json] = {
    "type": "object",
    "properties": {
        "method": {"type": "string", "description": f"one of {', '.join(METHODS)}; GET if absent"},
        "url": {"type": "string", "description": "http:// or https://"},
        "query": {
            "type": "object",
            "additionalProperties": {**_TEXTS, "type": [*_TEXTS["type"], "array", "null"]},
            "description": "parameters added to the url; a list gives one for each item, null none",
        },
        "headers": {"type": "object", "additionalProperties": _TEXTS},
        "json": {"description": "the body, sent as JSON"},
        "body": {"type": ["string", "object"], "description": "the body as text, or as the fields of a form"},
        "timeout": {"type": ["number", "string"], "description": "seconds or 500ms, 10s, 2m; at most the step's"},
        "expect": {
            "type": ["integer", "array"],
            "items": {"type": "integer"},
            "description": "statuses that are results; 200 to 299 if absent",
        },
    },
    "required": ["url"],
    "additionalProperties": False,
}


def may_repeat(arguments: dict[str, Json]) -> bool:
    """Whether a request with these arguments may be made again when nobody knows whether it was made."""
    return str(arguments.get("method") or "GET").upper() in REPEATABLE
