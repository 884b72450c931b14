"""Scores of a recipe over examples: what is right, which labels are mixed up, and whether a difference is chance.

The law of the file: an answer that cannot be used, or none at all, is never right and never left out; a comparison of
two says how likely it is that nothing but chance is seen.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, comb
from typing import Any, Literal, TypeAlias

from stepwell.definition.expectation import ABSENT, Unlike, is_comparison, is_number, same, unlike

Json: TypeAlias = Any
Verdict: TypeAlias = Literal["right", "wrong", "missing", "invalid", "error"]

TOLERANCE = 1e-6
"""How far a number may be from the expected one, as a part of it."""
SURE = 0.05
"""The probability below which a difference counts as more than chance."""
_UNUSABLE: Mapping[str, str] = {"invalid": "(invalid)", "error": "(error)", "missing": "(missing)"}


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer held against its example.

    `fields` says of each expected field whether it is right; `labels` are (expected, given) of fields that are labels.
    """

    verdict: Verdict
    fields: dict[str, bool]
    unlike: tuple[Unlike, ...] = ()
    labels: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        return self.verdict == "right"


def judged(
    expected: dict[str, Json], output: Json, *, failed: Verdict | None = None, tolerance: float = TOLERANCE,
    schema: Json = None,
) -> Judged:  # fmt: skip
    """What to make of an output; `failed` says that there is none, or none that can be used."""
    wanted = dict(_leaves(expected, ()))
    labels = [name for name, value in wanted.items() if isinstance(value, str | bool) and _is_label(schema, name)]
    if failed is not None:
        given = {name: (_word(wanted[name]), _UNUSABLE[failed]) for name in labels}
        return Judged(failed, dict.fromkeys(wanted, False), labels=given)
    wrong = [
        part
        for name, value in wanted.items()
        for part in unlike(value, _at(output, name), tuple(name.split(".")), equal=alike(tolerance))
    ]
    off = {".".join(map(str, part.where)) for part in wrong}
    fields = {name: not any(one == name or one.startswith(f"{name}.") for one in off) for name in wanted}
    given = {name: (_word(wanted[name]), _given(_at(output, name))) for name in labels}
    verdict: Verdict = "right"
    if wrong:
        verdict = "missing" if all(part.found is ABSENT for part in wrong) else "wrong"
    return Judged(verdict, fields, tuple(wrong), given)


def alike(tolerance: float) -> Any:
    """Equality that looks away from case and spaces of texts, and from small differences of numbers."""

    def equal(one: Json, other: Json) -> bool:
        if isinstance(one, str) and isinstance(other, str):
            return normalised(one) == normalised(other)
        if is_number(one) and is_number(other):
            return bool(abs(one - other) <= tolerance * max(1.0, abs(one)))
        return same(one, other)

    return equal


def normalised(text: str) -> str:
    """A text as it is compared: composed (NFKC), without case, with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _leaves(expected: Json, where: tuple[str, ...]) -> Iterator[tuple[str, Json]]:
    for name, value in expected.items():
        if isinstance(value, dict) and value and not is_comparison(value):
            yield from _leaves(value, (*where, name))
        else:
            yield ".".join((*where, name)), value


def _at(output: Json, name: str) -> Json:
    for part in name.split("."):
        output = output.get(part, ABSENT) if isinstance(output, dict) else ABSENT
    return output


def _is_label(schema: Json, name: str) -> bool:
    """Whether a field has one of few values that are known beforehand."""
    for part in name.split("."):
        properties = schema.get("properties") if isinstance(schema, dict) else None
        schema = properties.get(part) if isinstance(properties, dict) else None
    return isinstance(schema, dict) and ("enum" in schema or schema.get("type") == "boolean")


def _word(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _given(value: Json) -> str:
    return _UNUSABLE["missing"] if value is ABSENT else _word(value)


# ── one ──


@dataclass(frozen=True, slots=True)
class LabelScore:
    """How one label of a field was given. Precision is None where it was never given, recall where never expected."""

    label: str
    expected: int
    given: int
    right: int

    @property
    def precision(self) -> float | None:
        return self.right / self.given if self.given else None

    @property
    def recall(self) -> float | None:
        return self.right / self.expected if self.expected else None


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often each expected label (row) was answered with which (column)."""

    field: str
    counts: dict[tuple[str, str], int]

    @property
    def labels(self) -> list[str]:
        """Labels that were expected or given; what is none comes last."""
        return sorted({label for pair in self.counts for label in pair}, key=lambda label: (label[:1] == "(", label))

    def scores(self) -> list[LabelScore]:
        found = []
        for label in self.labels:
            if label not in _UNUSABLE.values():
                wanted = sum(count for (expected, _), count in self.counts.items() if expected == label)
                given = sum(count for (_, answer), count in self.counts.items() if answer == label)
                found.append(LabelScore(label, wanted, given, self.counts.get((label, label), 0)))
        return found


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one candidate: how many rows there were, how many ended how, and how many fields were right."""

    rows: int
    verdicts: dict[Verdict, int]
    fields: dict[str, tuple[int, int]]
    """Right and all, by field."""
    confusions: tuple[Confusion, ...]

    @property
    def right(self) -> int:
        return self.verdicts.get("right", 0)

    @property
    def score(self) -> float:
        """The part of the rows in which everything that was expected is right."""
        return self.right / self.rows if self.rows else 0.0


def score(found: Sequence[Judged]) -> Score:
    """The score of all answers of a candidate."""
    verdicts: Counter[Verdict] = Counter(one.verdict for one in found)
    names = dict.fromkeys(name for one in found for name in one.fields)
    fields = {}
    for name in names:
        held = [one.fields[name] for one in found if name in one.fields]
        fields[name] = (sum(held), len(held))
    pairs: dict[str, Counter[tuple[str, str]]] = {}
    for one in found:
        for name, pair in one.labels.items():
            pairs.setdefault(name, Counter())[_as_expected(pair)] += 1
    confusions = tuple(Confusion(name, dict(counts)) for name, counts in pairs.items())
    return Score(len(found), dict(verdicts), fields, confusions)


def _as_expected(pair: tuple[str, str]) -> tuple[str, str]:
    """A label that counts as right has the spelling that was expected."""
    expected, given = pair
    return (expected, expected) if normalised(expected) == normalised(given) else pair


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of the values do not exceed; 0.0 of none."""
    ordered = sorted(values)
    return ordered[max(0, ceil(part * len(ordered)) - 1)] if ordered else 0.0


# ── two ──


@dataclass(frozen=True, slots=True)
class Compared:
    """Two candidates on the same rows. `better` and `worse` are rows that only the second, only the first has right."""

    rows: int
    both: int
    better: int
    worse: int

    @property
    def p(self) -> float:
        """The exact p value of McNemar's test, two-sided: how likely so uneven a split is if neither is better."""
        return sign_test(self.better, self.worse)

    @property
    def told(self) -> str:
        """What may be made of it, in words."""
        if self.better == self.worse:
            return "no difference in how many are right"
        word = "better" if self.better > self.worse else "worse"
        sure = "unlikely to be chance" if self.p < SURE else "this may well be chance"
        return f"{word} on {abs(self.better - self.worse)} more of {self.rows} rows; {sure} (p = {self.p:.3g})"


def compared(first: Sequence[Judged], second: Sequence[Judged]) -> Compared:
    """What differs between two candidates, row by row."""
    pairs = [(one.right, other.right) for one, other in zip(first, second, strict=True)]
    better, worse = pairs.count((False, True)), pairs.count((True, False))
    return Compared(len(pairs), pairs.count((True, True)), better, worse)


def sign_test(better: int, worse: int) -> float:
    """The two-sided exact p value of `better` against `worse` of a fair coin."""
    tosses, fewer = better + worse, min(better, worse)
    as_uneven = 2 * sum(comb(tosses, heads) for heads in range(fewer + 1))
    return min(1.0, float(as_uneven / 2**tosses))
