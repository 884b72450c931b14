"""Orders passages by how well they answer a query: BM25 (Robertson and Zaragoza, 2009), weighted by what they share.

The law of the file: the score of a passage grows with every word of the query that it holds, also in a knowledge base
of one document, where the usual formula gives nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepwell.knowledge.bigrams import Wanted

_K1, _B = 1.2, 0.75
_FEW = 50
"""So many passages at least are reckoned with: in a few, every word that is there would seem to say little."""
_ENOUGH = 0.3
"""The score from which words speak for a passage beside its meaning: not quite a third of what the query asks for."""
_QUESTION = 24
"""Words of a query up to which that is so; of longer texts no passage holds a third."""

K = TypeVar("K")


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


def speaking(ranked: Sequence[tuple[float, K]], words: int) -> list[K]:
    """Of passages ranked by their scores, best first, those whose words count where meaning is ranked, too.

    Without this, passages that share nothing with a question but "how" and "the" would be ranked as if they answered
    it, and outweigh those that answer it in other words or in another language. `words` is how many the query has.
    """
    if not ranked:
        return []
    floor = _ENOUGH if words <= _QUESTION else min(_ENOUGH, ranked[0][0] / 2)
    return [key for score, key in ranked if score >= floor]


def _telling(holding: int, total: int) -> float:
    return math.log(1 + (max(total, _FEW) - holding + 0.5) / (holding + 0.5))


def _times(wanted: Wanted, counter: Counter[str]) -> float:
    if not wanted.stem:
        return float(counter.get(wanted.word, 0))
    return sum(times * wanted.weight(word) for word, times in counter.items() if word.startswith(wanted.stem))
