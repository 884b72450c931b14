"""Passages, words and files of the knowledge base."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.knowledge.bigrams import LONGEST_WORD, folded, query_words, words
from stepwell.knowledge.chunking import LONGEST, Chunk, chunks
from stepwell.knowledge.ranking import scores


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Refunds: TK-050000!", ["refunds", "tk", "050000"]),
        ("Crème BRÛLÉE Straße", ["creme", "brulee", "strasse"]),
        ("审批步骤", ["审批", "批步", "步骤", "骤"]),
        ("我", ["我"]),
        ("用API审批", ["用", "api", "审批", "批"]),
        ("がｶﾞ", ["がガ", "ガ"]),
        ("환불", ["환불", "불"]),
        ("ﬁne ①", ["fine", "1"]),
        ("a\x00b \ud800 _ -", ["a", "b"]),
        ("x" * 130, ["x" * 64, "x" * 64, "xx"]),
        ("", []),
    ],
)
def test_words_of_a_text(text, found):
    assert list(words(text)) == found


@given(st.text(), st.text())
def test_every_word_of_a_text_is_found_by_a_query_of_it(before, text):
    held = set(words(f"{before} {text}"))
    for wanted in query_words(text):
        assert any(wanted.weight(word) for word in held)


@given(st.text())
def test_words_hold_nothing_that_full_text_search_could_read_as_syntax(text):
    for word in words(text):
        assert 0 < len(word) <= LONGEST_WORD
        assert not set(word) & set("\"*(){}:^+-'\x00 ")
        assert folded(word) == folded(folded(word))


@given(st.lists(st.text(alphabet="ab .!。\n\r\t#审`-|>", max_size=400), max_size=12).map("\n\n".join))
def test_passages_are_slices_of_the_text_in_its_order_and_fit(text):
    found = chunks(text)
    assert all(chunk.text.strip() == chunk.text and 0 < len(chunk.text) <= LONGEST for chunk in found)
    assert all(text[chunk.start : chunk.start + len(chunk.text)] == chunk.text for chunk in found)
    assert all(one.start + len(one.text) <= other.start for one, other in pairwise(found))
    assert re.sub(r"\s", "", "".join(chunk.text for chunk in found)) == re.sub(r"\s", "", text)
    assert chunks(text) == found


def test_a_section_is_a_passage_and_its_headings_go_with_all_its_passages():
    long = " ".join(f"Sentence number {number} of the long part." for number in range(60))
    found = chunks(f"# Title\n## Refunds\n\nThirty days.\n\n## Shipping\n{long}\n\n```\n# no heading\n```\n\n# End\n")
    assert found[0] == Chunk("# Title\n## Refunds\n\nThirty days.", 0, "Title > Refunds")
    assert found[1].text.startswith("## Shipping\nSentence number 0")
    assert [chunk.heading for chunk in found[1:]] == [*["Title > Shipping"] * (len(found) - 2), "End"]
    assert len(found) > 4
    assert "# no heading" in found[-2].text
    assert found[-1].text == "# End"


def test_chinese_is_cut_at_its_sentences():
    found = chunks("客户可以在三十天内申请退款，需要缴税。" * 120)
    assert len(found) > 2
    assert all(chunk.text.endswith("。") for chunk in found)


@pytest.mark.parametrize(
    "text", ["x" * 2_000_000, "\n" * 2_000_000, "# \n" * 500_000, ". " * 1_000_000, "\n \t" * 500_000, "。" * 1_000_000]
)
def test_the_time_for_passages_grows_with_the_length_alone(text):
    started = time.process_time()
    found = chunks(text)
    assert time.process_time() - started < 15
    assert all(len(chunk.text) <= LONGEST for chunk in found)


def test_a_score_grows_with_every_word_that_is_held():
    wanted = query_words("refund damaged goods")
    counts = dict.fromkeys(wanted, 1)
    found = scores(wanted, counts, 1, ["refund", "refund damaged", "refund damaged goods", "other"])
    assert found[0] < found[1] < found[2]
    assert found[3] == 0
    assert scores([], {}, 0, ["x"]) == [0.0]
