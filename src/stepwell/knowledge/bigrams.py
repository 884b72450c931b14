"""Words of a text as the full-text index knows them, for every language by one function.

The law of the file: index and query go through the same `words`, so that whatever is folded, is folded in both.

Text is compared without case, accents and width (Unicode NFKC, case folding, combining marks dropped). Scripts that
write no spaces between words (Chinese, Japanese, Korean, Thai and others) become overlapping pairs of characters, and
the last character of a run stands alone besides, so that every character begins some word and a query of a single
character finds it as a prefix.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

LONGEST_WORD = 64
"""Characters of a word; a longer one is several."""
_ENDING = 3

_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007"  # ideographic iteration mark, closing mark, zero
    "\u3040-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # Hiragana, Katakana
    "\u3100-\u312f\u31a0-\u31bf"  # Bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\uac00-\ud7a3"  # Hangul
    "\U00020000-\U0003ffff"  # Han, the rare ones
)
_RUN = re.compile(f"([{_UNSPACED}]+)|((?:(?![{_UNSPACED}])[^\\W_]){{1,{LONGEST_WORD}}})")
_ASCII = re.compile(f"[a-z0-9]{{1,{LONGEST_WORD}}}")
# Marks of Latin, Greek, Cyrillic, Hebrew and Arabic, which readers leave out; those of Indian scripts are letters.
_MARKS = re.compile("[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1-\u05c7\u0610-\u061a\u064b-\u065f\u0670]+")


def words(text: str) -> list[str]:
    """The words of `text`, in order and with repetitions."""
    compared = folded(text)
    if compared.isascii():
        return _ASCII.findall(compared)
    found: list[str] = []
    for unspaced, word in _RUN.findall(compared):
        if word:
            found.append(word)
        else:
            found += map("".join, pairwise(unspaced))
            found.append(unspaced[-1])
    return found


@dataclass(frozen=True, slots=True)
class Wanted:
    """A word of a query. With `stem`, words that begin with it and have at most `more` characters more count, too."""

    word: str
    stem: str = ""
    more: int = 0

    def weight(self, word: str) -> float:
        """How much a word of a passage counts for this one: 1 for the same, 0.7 for one of its forms, else 0."""
        if word == self.word:
            return 1.0
        return 0.7 if self.stem and word.startswith(self.stem) and len(word) <= len(self.stem) + self.more else 0.0


def query_words(text: str) -> list[Wanted]:
    """The words to look for, each once and in order.

    Of a run without spaces only the pairs count, and a run of one character is looked for as a beginning. Words of
    letters are looked for with endings, too ("refunds" finds "refund" and "refunded").
    """
    found: dict[Wanted, None] = {}
    for run in _RUN.finditer(folded(text)):
        if unspaced := run[1]:
            for index in range(len(unspaced) - 1):
                found[Wanted(unspaced[index : index + 2])] = None
            if len(unspaced) == 1:
                found[Wanted(unspaced, unspaced, 1)] = None
        else:
            word = run[2]
            found[Wanted(word, _stem(word), _ENDING) if len(word) >= 4 and word.isalpha() else Wanted(word)] = None
    return list(found)


def _stem(word: str) -> str:
    """The word without an English ending, if enough of it is left; other languages lose a plural s at most."""
    for ending in ("ing", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4 and not word.endswith("ss"):
            return word[: -len(ending)]
    return word


def folded(text: str) -> str:
    """`text` without case, accents and width."""
    if text.isascii():
        return text.lower()
    spread = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text).casefold())
    return unicodedata.normalize("NFC", _MARKS.sub("", spread))
