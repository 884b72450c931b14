"""Retrieval finds what answers a question: measured with the embedded model on a labelled set in six languages."""

from __future__ import annotations

import pytest

from tests.knowledge.recall import measured


@pytest.mark.models
async def test_the_right_passage_is_among_the_first_five():
    score = await measured()
    print(f"\n{score.table()}")
    both = score.recall("both")
    assert both >= 0.87, score.table()
    assert both >= score.recall("words"), score.table()
    assert both >= score.recall("meaning") - 0.01, score.table()
    assert score.recall("both", "id") == 1, score.missed["both"]
    assert score.recall("both", "words") >= 0.93, score.missed["both"]
    assert score.recall("both", "cross") >= 0.5, score.missed["both"]
