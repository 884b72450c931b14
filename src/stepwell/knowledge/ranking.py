"""Orders passages by how well they answer a query: BM25 (Robertson and Zaragoza, 2009), weighted by what they share.

The law of the file: the score of a passage grows with every word of the query that it holds, also in a knowledge base
of one document, where the usual formula gives nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepwell.knowledge.bigrams import Wanted

_K1, _B = 1.2, 0.75


def scores(wanted: Sequence[Wanted], counts: Mapping[Wanted, int], total: int, passages: Sequence[str]) -> list[float]:
    """A score per passage, given as its words separated by spaces; 0 where no word of the query is in it.

    `counts` says how many of the `total` passages hold each word. 1 is what a passage of the usual length gets that
    holds every word once; inverse frequencies are those of Lucene, which are never negative.
    """
    held = [Counter(passage.split()) for passage in passages]
    lengths = [sum(counter.values()) for counter in held]
    usual = sum(lengths) / len(lengths) if lengths else 1.0
    telling = {word: _telling(min(counts.get(word, 0), total), total) for word in wanted}
    whole = sum(telling.values())
    found = []
    for counter, length in zip(held, lengths, strict=True):
        norm = _K1 * (1 - _B + _B * length / usual) if usual else _K1
        score = 0.0
        for word, weight in telling.items():
            times = _times(word, counter)
            score += weight * times * (_K1 + 1) / (times + norm)
        found.append(round(score / whole, 6) if whole else 0.0)
    return found


def _telling(holding: int, total: int) -> float:
    return math.log(1 + (total - holding + 0.5) / (holding + 0.5))


def _times(wanted: Wanted, counter: Counter[str]) -> float:
    if not wanted.stem:
        return float(counter.get(wanted.word, 0))
    return sum(times * wanted.weight(word) for word, times in counter.items() if word.startswith(wanted.stem))
