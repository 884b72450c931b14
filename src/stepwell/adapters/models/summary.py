"""A summary that only quotes: the sentences of a text that lie nearest to the whole of it.

The law of the file: every sentence of a summary stands in the text as it is, and in the text's order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.adapters.models.labels import cosine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stepwell.ports import Embedder

Json: TypeAlias = Any

SENTENCES = 3
"""Sentences of a summary; of a short text at most half of its sentences."""
READ = 200
"""Sentences that are read, from the beginning; embedding them takes some seconds."""

_END = re.compile(
    r"""(?P<wide>[。！？；…]+[”’」』）】]*)            # no space follows in Chinese and Japanese
      | (?P<latin>[.!?]+["'”’»)\]]*(?:\s»)?)(?=\s|$)  # a space or the end follows elsewhere
      | (?P<line>\n+)""",
    re.VERBOSE,
)
_SHORTENED = frozenset({
    "mr", "mrs", "ms", "dr", "prof", "st", "no", "nr", "vs", "etc", "e.g", "i.e", "cf", "al", "fig", "art", "p",
    "pp", "vol", "inc", "ltd", "co", "m", "mm", "mme", "mlle", "me", "av", "env", "ex", "réf", "tél", "z.b",
})  # fmt: skip
_WORD = re.compile(r"[\w.]*\Z")
_WIDE = re.compile(r"[\u3000-\u9fff\uf900-\ufaff\uff00-\uffef]\Z")


def sentences(text: str) -> list[str]:
    """The sentences of a text, without the blanks around them; lines end sentences too."""
    return [part for part in (piece.strip() for piece in _pieces(text)) if re.search(r"\w", part)]


def _pieces(text: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(text):
        if end["latin"] and not _ends(text, start, end):
            continue
        yield text[start : end.end()]
        start = end.end()
    yield text[start:]


def _ends(text: str, start: int, end: re.Match[str]) -> bool:
    """Whether a full stop ends a sentence: not after an abbreviation, nor before a small letter."""
    if end["latin"][0] != ".":
        return True
    before = _WORD.search(text, max(start, end.start() - 20), end.start())
    word = before[0].lower().strip(".") if before else ""
    after = text[end.end() : end.end() + 2].lstrip()
    initial = len(word) == 1 and word.isalpha()
    return word not in _SHORTENED and not initial and not after[:1].islower()


async def extract_summary(text: str, embedder: Embedder) -> dict[str, Json]:
    """`{text, sentences}`: the sentences nearest to the text's vector, in the text's order. Never invents anything."""
    found = list(dict.fromkeys(sentences(text)))[:READ]
    wanted = max(1, min(SENTENCES, len(found) // 2))
    if len(found) > wanted:
        whole, *vectors = await embedder.passages([" ".join(found), *found])
        nearness = [cosine(whole, vector) for vector in vectors]
        best = sorted(range(len(found)), key=lambda index: (-nearness[index], index))[:wanted]
        found = [found[index] for index in sorted(best)]
    return {"text": _joined(found), "sentences": found}


def _joined(parts: Sequence[str]) -> str:
    text = ""
    for part in parts:
        text += part if not text or _WIDE.search(text) else f" {part}"
    return text
