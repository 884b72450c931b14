"""Bytes as text: by byte order mark, as UTF-8, or in the encoding that is named.

The law of the file: nothing is guessed; what is not UTF-8 and does not say what it is, is refused with the encodings in
which it could be read.
"""

from __future__ import annotations

import codecs

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LEGACY = ("gb18030", "big5", "shift_jis", "euc_jp", "euc_kr", "windows-1252", "windows-1251")
_PART = 200_000
"""Bytes that are tried in other encodings."""


def decoded(data: bytes, encoding: str = "") -> str:
    """The text. Raises ValueError with what is wrong, a line break, and what helps."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _as(data, name)
    if encoding:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError(f"there is no encoding {encoding!r}\nsuch as {', '.join(_LEGACY)}") from None
        return _as(data, encoding)
    if (wide := _without_mark(data)) is not None:
        return _as(data, wide)
    if b"\0" in data[:_PART]:
        raise ValueError("this is no text: it holds NUL bytes\nadd the text that it was made from")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        could = [name for name in _LEGACY if _reads(data[:_PART], name)]
        hint = f"say which it is with --encoding: it could be {', '.join(could)}" if could else "convert it to UTF-8"
        raise ValueError(f"this is not UTF-8 text: byte {error.start} is wrong\n{hint}") from None


def _as(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"this is not {encoding} text: byte {error.start} is wrong\nconvert it to UTF-8") from None


def _without_mark(data: bytes) -> str | None:
    """UTF-16 without a byte order mark: every other byte of text in Latin script is NUL."""
    part = data[: min(len(data), 2000) // 2 * 2]
    if len(part) < 8:
        return None
    even, odd = part[0::2].count(0), part[1::2].count(0)
    if odd > len(part) // 4 and not even:
        return "utf-16-le"
    return "utf-16-be" if even > len(part) // 4 and not odd else None


def _reads(data: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(data)
    except UnicodeDecodeError:
        return False
    return True
