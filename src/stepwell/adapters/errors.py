"""The one classifier: from what a library raised to an error kind of the language (LANGUAGE, Failure).

The law of the file: no library is imported to classify its errors; an error that exists has imported its own.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from typing import Any, TypeAlias
from urllib.parse import quote

from stepwell.errors import StepFailed

Json: TypeAlias = Any

SHOWN = 500
"""Characters of another service's words that a message repeats."""
HIDDEN = "[redacted]"


def redacted(text: str, secrets: Iterable[str]) -> str:
    """`text` without the secrets, also where they stand URL-encoded, in base64 or escaped for JSON."""
    for secret in secrets:
        if len(secret) < 4:
            continue
        raw = secret.encode("utf-8", "replace")
        forms = {
            secret,
            quote(secret, safe=""),
            secret.replace("\\", "\\\\").replace('"', '\\"'),
            base64.b64encode(raw).decode(),
            base64.urlsafe_b64encode(raw).decode().rstrip("="),
        }
        for form in sorted(forms, key=len, reverse=True):
            text = text.replace(form, HIDDEN)
    return text


_STATUS_KINDS = {
    401: "auth_error",
    403: "auth_error",
    404: "not_found",
    408: "timeout",
    425: "overloaded",
    429: "rate_limit",
    529: "overloaded",
}


def kind_of_status(status: int) -> str:
    """The error kind of an HTTP status of 300 or more."""
    return _STATUS_KINDS.get(status) or ("invalid_request" if 400 <= status < 500 else "server_error")


def classify(error: BaseException, *, service: str = "", secrets: Iterable[str] = ()) -> StepFailed:
    """The failure that `error` means; `service` names the other side in the message.

    A StepFailed passes as it is. Built-in timeouts and connection errors have their kinds; anything unknown is a
    "tool_error" with its type.
    """
    hide = tuple(secrets)
    if isinstance(error, StepFailed):
        return error
    if type(error).__module__.partition(".")[0] == "pydantic_ai":
        return _model_failure(error, service, hide)
    name = type(error).__name__
    text = redacted(f"{name}: {error}" if str(error) else name, hide)[:SHOWN]
    prefix = f"{service}: " if service else ""
    if isinstance(error, TimeoutError):
        return StepFailed("timeout", f"{prefix}{text}")
    if isinstance(error, ConnectionError):
        return StepFailed("connection_error", f"{prefix}{text}")
    return StepFailed("tool_error", f"{prefix}{text}", detail={"type": name})


def _model_failure(error: BaseException, service: str, secrets: tuple[str, ...]) -> StepFailed:
    from pydantic_ai import exceptions as known

    kind, retryable, what = _model_kind(error)
    detail: dict[str, Json] = {}
    if isinstance(error, known.ModelHTTPError):
        detail["status"] = error.status_code
        retryable = retryable if error.provider_retry_hint is None else error.provider_retry_hint
        what = f"HTTP {error.status_code}, {what}"
    if isinstance(error, known.ModelAPIError):
        if code := error.provider_error_code or error.provider_error_type:
            detail["code"] = redacted(code, secrets)[:SHOWN]
        detail["model"] = error.model_name
    if isinstance(error, known.ModelConnectionError) and error.phase:
        detail["phase"] = error.phase
    said = redacted(_words(error), secrets) if isinstance(error, known.ModelAPIError | known.UserError) else ""
    said = said if len(said) <= SHOWN else f"{said[:SHOWN]}…"
    message = f"{service}: {what}" if service else what
    return StepFailed(kind, f"{message}: {said}" if said else message, retryable, _retry_after(error), detail or None)


_NO_SERVICE = ("server_error", None, "the answer is not that of a model service; check base_url")

_MODEL_KINDS: tuple[tuple[str, str, bool | None, str], ...] = (
    ("ModelQuotaExceededError", "rate_limit", False, "the account's quota or credit is used up"),
    ("ModelRateLimitError", "rate_limit", None, "too many requests"),
    ("ModelOverloadedError", "overloaded", None, "the service is overloaded"),
    ("ModelAuthenticationError", "auth_error", None, "the key was refused"),
    ("ModelContextWindowExceededError", "invalid_request", None, "the prompt is longer than the model's context"),
    ("ModelNotFoundError", "not_found", None, "no such model or address; check the model's name and base_url"),
    ("ModelHTTPError", "", None, "the service refused or failed"),
    ("ModelUnavailableError", "server_error", None, "the service failed"),
    ("ModelServerError", "server_error", None, "the service failed"),
    ("ModelRequestRejectedError", "invalid_request", None, "the service refused the request"),
    ("ModelTimeoutError", "timeout", None, "no answer in time"),
    ("ModelRequestTimeout", "timeout", None, "no answer in time"),
    ("ModelConnectionError", "connection_error", None, "the connection failed"),
    ("UserError", "invalid_request", None, "the request cannot be made"),
)
"""Class of pydantic-ai, kind ("": by the HTTP status), whether to try again (None: as the kind says) and a few words.

The first class in the table that an error is of counts: more particular ones come before their bases.
"""


def _model_kind(error: BaseException) -> tuple[str, bool | None, str]:
    classes = {base.__name__ for base in type(error).__mro__}
    for name, kind, retryable, words in _MODEL_KINDS:
        if name in classes:
            return kind or kind_of_status(int(getattr(error, "status_code", 500))), retryable, words
    return _NO_SERVICE


def _words(error: BaseException) -> str:
    """What the other side said, in one line."""
    body = getattr(error, "body", None)
    said = body
    if isinstance(said, dict):
        said = said.get("error", said)
    if isinstance(said, dict):
        said = said.get("message", said)
    return " ".join(str(said or getattr(error, "message", error)).split())


def _retry_after(error: BaseException) -> float | None:
    """The wait that was asked for, in seconds; zero, negative and senseless ones are none."""
    hint = getattr(error, "retry_after", None)
    return hint if isinstance(hint, float) and math.isfinite(hint) and hint > 0 else None
