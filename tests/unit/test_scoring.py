"""Scores over examples: nothing is left out, and chance is called chance."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest

from stepwell.library.scoring import compared, judged, percentile, score, sign_test

LABELS = {"type": "object", "properties": {"label": {"enum": ["a", "b"]}, "ok": {"type": "boolean"}, "text": {}}}


def of(expected, given, **more):
    return judged({"label": expected}, {"label": given} if given else {}, schema=LABELS, **more)


def test_every_row_counts_whatever_became_of_it():
    found = [of("a", "a"), of("a", "b"), of("b", ""), of("b", "b", failed="invalid"), of("b", "b", failed="error")]
    result = score(found)
    assert (result.rows, result.right, result.score) == (5, 1, 0.2)
    assert result.verdicts == {"right": 1, "wrong": 1, "missing": 1, "invalid": 1, "error": 1}
    assert result.fields == {"label": (1, 5)}
    [confusion] = result.confusions
    assert confusion.counts == {
        ("a", "a"): 1, ("a", "b"): 1, ("b", "(missing)"): 1, ("b", "(invalid)"): 1, ("b", "(error)"): 1,
    }  # fmt: skip
    assert confusion.labels == ["a", "b", "(error)", "(invalid)", "(missing)"]
    first, second = confusion.scores()
    assert (first.precision, first.recall, second.precision, second.recall) == (1.0, 0.5, 0.0, 0.0)


@pytest.mark.parametrize(
    ("expected", "given", "right"),
    [
        ("Refund", " refund ", True),
        ("ｒｅｆｕｎｄ", "refund", True),
        ("退款", "退 款", False),
        (10, 10.000001, True),
        (10, 10.1, False),
        (0, 0.0000001, True),
        (1, True, False),
        (["a", "B"], ["A", "b"], True),
        (["a"], ["a", "b"], False),
        ({"min": 3}, 4, True),
        ({"contains": "x"}, "aXa", True),
        (None, None, True),
    ],
)
def test_texts_are_normalised_and_numbers_may_be_a_little_off(expected, given, right):
    assert judged({"field": expected}, {"field": given}).right is right


def test_fields_inside_fields_count_one_by_one():
    found = judged({"who": {"name": "Ana", "age": 3}, "label": "a"}, {"who": {"name": "ana"}, "label": "a"})
    assert found.fields == {"who.name": True, "who.age": False, "label": True}
    assert found.verdict == "missing"
    assert judged({"who": {"name": "Ana"}}, {"who": "Ana"}).verdict == "missing"
    assert judged({"label": "a", "x": 1}, {"label": "b"}).verdict == "wrong"


def test_labels_are_those_of_the_schema_and_a_right_one_has_the_expected_spelling():
    found = judged({"label": "a", "ok": True, "text": "x"}, {"label": "A", "ok": False, "text": "x"}, schema=LABELS)
    assert found.labels == {"label": ("a", "A"), "ok": ("true", "false")}
    assert score([found]).confusions[0].counts == {("a", "a"): 1}


def test_the_sign_test_is_exact():
    assert sign_test(0, 0) == 1.0
    assert sign_test(3, 1) == pytest.approx(0.625)
    assert sign_test(9, 1) == pytest.approx(float(Fraction(2 * (comb(10, 0) + comb(10, 1)), 2**10)))
    assert sign_test(5000, 5000) == 1.0
    assert 0 < sign_test(3000, 2000) < 1e-40


def test_a_comparison_says_what_may_be_chance():
    right, off = of("a", "a"), of("a", "b")
    few = compared([off, off, off, right], [right, right, right, off])
    assert (few.better, few.worse, few.both) == (3, 1, 0)
    assert "better on 2 more of 4 rows; this may well be chance" in few.told
    many = compared([off] * 10 + [right] * 5, [right] * 15)
    assert (many.both, many.better) == (5, 10)
    assert "unlikely to be chance" in many.told
    assert compared([right] * 10, [off] * 10).told.startswith("worse on 10 more")
    assert compared([right, off], [off, right]).told == "no difference in how many are right"


def test_percentiles_are_values_that_were_seen():
    assert percentile([], 0.5) == 0.0
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.0
    assert percentile([float(number) for number in range(1, 101)], 0.95) == 95.0
