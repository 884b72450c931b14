"""What an HTTP response gives: status, headers, and its body as JSON, text or base64; or the failure that it means.

The law of the file: a body is read up to a bound, also when it was compressed, and what goes beyond is a failure.
"""

from __future__ import annotations

import base64
import codecs
import json
import math
import time
import zlib
from collections.abc import AsyncIterable, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias

from stepwell.adapters.errors import kind_of_status
from stepwell.errors import StepFailed

Json: TypeAlias = Any
Headers: TypeAlias = dict[str, str]

SHOWN = 2000
"""Characters of a body that a failure keeps."""
_LEFT_OUT = frozenset({"set-cookie", "set-cookie2"})
_TEXTS = ("text/", "application/xml", "application/javascript", "application/x-www-form-urlencoded", "application/yaml")
_NO_CHARSETS = frozenset(
    {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf-7", "mbcs", "oem"}
)
"""Codecs of Python that no body is written in; the first two take quadratic time."""


def headers_of(raw: Sequence[tuple[bytes, bytes]]) -> Headers:
    """The headers by lower-case name; repeated ones joined. Cookies are left out: nobody keeps them."""
    found: Headers = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        if key not in _LEFT_OUT:
            found[key] = f"{found[key]}, {text}" if key in found else text
    return found


async def body_of(stream: AsyncIterable[bytes], headers: Headers, limit: int) -> bytes:
    """The whole body, unpacked. Raises StepFailed: `output_too_large` beyond `limit` bytes, `output_invalid`."""
    packing = headers.get("content-encoding", "identity").strip().lower()
    if packing not in {"gzip", "x-gzip", "deflate", "identity", ""}:
        raise StepFailed("output_invalid", f"the body is packed in a way that was not asked for: {packing[:40]!r}")
    unpack = None if packing in {"identity", ""} else Unpacking(packing)
    said = headers.get("content-length", "")
    if said.isdecimal() and int(said) > limit and unpack is None:
        raise _too_large(limit, int(said))
    body, packed = bytearray(), 0
    try:
        async for part in stream:
            packed += len(part)
            if packed > limit + 65_536:  # no packing makes a body that much longer
                raise _too_large(limit)
            body += part if unpack is None else unpack.decompress(part, limit + 1 - len(body))
            if len(body) > limit:
                raise _too_large(limit)
    except zlib.error:
        raise StepFailed("output_invalid", f"the body is not {packing}, which it says it is") from None
    if unpack is not None and (body or said not in {"", "0"}) and not unpack.whole:
        raise StepFailed("connection_error", "the body ended before its packing did")
    return bytes(body)


class Unpacking:
    """Takes a body apart that was packed: `gzip` may have several members, `deflate` may lack its frame."""

    def __init__(self, packing: str) -> None:
        self._bare = packing == "deflate"
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._begun = False

    @property
    def whole(self) -> bool:
        """Whether the last member has come to its end."""
        return self._member.eof

    def decompress(self, part: bytes, limit: int) -> bytes:
        """The next at most `limit` bytes, or more than the body may have. Raises zlib.error."""
        found = bytearray()
        while part and len(found) < limit:
            if self._member.eof:
                part = part.lstrip(b"\0")  # members may be padded
                if not part:
                    break
                self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            found += self._some(part, limit - len(found))
            part = self._member.unused_data
        return bytes(found)

    def _some(self, part: bytes, limit: int) -> bytes:
        first, self._begun = not self._begun, True
        try:
            return self._member.decompress(part, limit)
        except zlib.error:
            if not (first and self._bare):
                raise
            self._member = zlib.decompressobj(-zlib.MAX_WBITS)
            return self._member.decompress(part, limit)


def _too_large(limit: int, size: int = 0) -> StepFailed:
    told = f"{size:,} bytes" if size else f"more than {limit:,} bytes"
    detail = {"limit": limit} | ({"bytes": size} if size else {})
    return StepFailed("output_too_large", f"the body has {told}; at most {limit:,} are taken", detail=detail)


def answer_of(status: int, headers: Headers, body: bytes) -> dict[str, Json]:
    """`{status, headers, json}` for JSON, `{…, text}` for text, `{…, base64}` for anything else."""
    found: dict[str, Json] = {"status": status, "headers": headers}
    kind, charset = _media(headers.get("content-type", ""))
    if body and (kind == "application/json" or kind.endswith("+json")):
        text = _decoded(body, "utf-8" if charset == "" else charset)
        try:
            return found | {"json": json.loads(text, parse_constant=_no_number, parse_float=_number)}
        except (ValueError, RecursionError):
            detail = {"status": status, "answer": text[:SHOWN]}
            raise StepFailed(
                "output_invalid", f"the body is not JSON, which it says it is ({kind})", detail=detail
            ) from None
    if not body or charset or kind.startswith(_TEXTS) or kind.endswith("+xml") or (not kind and _is_text(body)):
        return found | {"text": _decoded(body, charset)}
    return found | {"base64": base64.b64encode(body).decode()}


def _no_number(word: str) -> Json:
    raise ValueError(word)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # 1e999
        raise ValueError(text)
    return number


def _media(value: str) -> tuple[str, str]:
    """Media type and charset, lower-case; "" where not said or unknown."""
    kind, *parameters = value.lower().split(";")
    charset = ""
    for parameter in parameters:
        name, _, said = parameter.strip().partition("=")
        if name == "charset":
            try:
                charset = codecs.lookup(said.strip("\"' ")[:40]).name
            except (LookupError, ValueError):
                charset = ""
            charset = "" if charset in _NO_CHARSETS else charset
    return kind.strip(), charset


def _decoded(body: bytes, charset: str) -> str:
    if charset in {"", "utf-8"}:
        charset = "utf-8-sig"
    try:
        return body.decode(charset, "replace")
    except (LookupError, ValueError):  # a codec that is none for texts
        return body.decode("utf-8", "replace")


def _is_text(body: bytes) -> bool:
    try:
        return "\0" not in body.decode("utf-8")
    except UnicodeDecodeError:
        return False


def failure_of(method: str, place: str, answer: dict[str, Json]) -> StepFailed:
    """What a status means that nobody expected."""
    status = answer["status"]
    kind = "invalid_request" if status < 400 else kind_of_status(status)
    body = answer.get("json", answer.get("text", ""))
    shown = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    detail: dict[str, Json] = {"status": status, "body": shown[:SHOWN]}
    hint = _retry_after(answer["headers"].get("retry-after", ""), time.time())
    said = " ".join(shown[:200].split())
    message = f"{method} {place} answered {status}" + (f": {said}" if said else "")
    return StepFailed(kind, message, None, hint, detail)


def _retry_after(value: str, now: float) -> float | None:
    """The wait that is asked for, in seconds or as a date; zero, negative and senseless ones are none."""
    value = value.strip()
    if value.isdecimal() and len(value) < 12:
        return float(value) or None
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return round(at.timestamp() - now, 3) if at.timestamp() > now else None
