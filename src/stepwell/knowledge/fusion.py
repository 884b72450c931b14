"""Puts two rankings together: reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009) with k = 60.

The law of the file: only ranks count, never how far apart two passages are; what words and meaning both find comes
first.

Passages that hold too little of the query do not take part in the ranking by words (`ranking.speaking`).

    score = (share(rank by words) + share(rank by meaning)) / 2      share(r) = 61 / (60 + r), 0 where it is not ranked

So 1 is the passage that is first in both rankings, and 0.5 one that is first in one and not in the other. Where there
is one ranking alone, because no vectors are there, the score is its share. A score says nothing of how good the best
passage is: the nearest is always near.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

K = 60
DEPTH = 50
"""Passages of each ranking that count."""

T = TypeVar("T")


class Fused(NamedTuple):
    """A passage's score and its ranks from 1; 0 where it is not ranked."""

    score: float
    by_words: int
    by_meaning: int


def fused(
    by_words: Sequence[T], by_meaning: Sequence[T] | None, depth: int = DEPTH, *, unknown: Collection[T] = ()
) -> list[tuple[T, Fused]]:
    """The first `depth` passages of two rankings, best first; `by_meaning` is None where there are no vectors.

    Of `unknown` ones, which have no vector yet, words alone are counted, so that what was just written is found as if
    meaning ranked it likewise. Of two with the same score, the one that words rank higher comes first.
    """
    words = {key: rank for rank, key in enumerate(by_words[:depth], 1)}
    meaning = {key: rank for rank, key in enumerate((by_meaning or ())[:depth], 1)}
    found = [
        (
            key,
            Fused(
                round((_share(first) + _share(second)) / (1 if by_meaning is None or key in unknown else 2), 6),
                first,
                second,
            ),
        )
        for key in dict.fromkeys([*words, *meaning])
        for first, second in [(words.get(key, 0), meaning.get(key, 0))]
    ]
    found.sort(key=lambda one: (-one[1].score, one[1].by_words or depth + 1, one[1].by_meaning))
    return found


def _share(rank: int) -> float:
    return (K + 1) / (K + rank) if rank else 0.0
