"""Evaluations: recipes or models asked the same examples, scored, and compared.

The law of the file: every row is asked of every candidate and none is lost, whatever fails; results lie in the order of
the table however they come; what an interrupted evaluation has found can be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.canonical import digest_of
from stepwell.definition.policy import RetryPolicy
from stepwell.definition.recipe import output_schema_of
from stepwell.engine.recipe_trials import AS_A_RUN, INVALID, TIMEOUT, Trial, Trials
from stepwell.errors import InputError, Problem
from stepwell.library.examples import Example, taken_by
from stepwell.library.scoring import TOLERANCE, Compared, Judged, Score, compared, judged, percentile, score

if TYPE_CHECKING:
    from stepwell.library.recipes import FoundRecipe

Json: TypeAlias = Any

CONCURRENCY = 4
"""Questions that are asked at once unless something else is said."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is evaluated: a recipe, asked of the model that it names or of another."""

    recipe: FoundRecipe
    model: str = ""

    @property
    def name(self) -> str:
        return f"{self.recipe.reference} on {self.model}" if self.model else self.recipe.reference


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one row for one candidate."""

    number: int
    example: Example
    trial: Trial
    judged: Judged

    def as_json(self) -> dict[str, Json]:
        return {
            "row": self.number,
            "place": self.example.place,
            "verdict": self.judged.verdict,
            "expected": self.example.expected,
            "fields": self.judged.fields,
            **self.trial.as_json(),
        }


@dataclass(frozen=True, slots=True)
class Manner:
    """How questions are asked and answers held against what is expected."""

    concurrency: int = CONCURRENCY
    tolerance: float = TOLERANCE
    timeout: float = TIMEOUT
    retry: RetryPolicy = AS_A_RUN


class Evaluation:
    """Candidates, examples, and the results as they come; `run` asks what was not asked yet."""

    def __init__(
        self,
        trials: Trials,
        candidates: Sequence[Candidate],
        examples: Sequence[Example],
        manner: Manner = Manner(),
    ) -> None:
        if not candidates or manner.concurrency < 1:
            raise InputError([Problem("error", "evaluation", "an evaluation has a candidate and asks one at a time")])
        self.candidates = tuple(candidates)
        self.examples = tuple(examples)
        self._trials = trials
        self._manner = manner
        self._found: dict[tuple[int, int], Result] = {}

    async def run(self, told: Callable[[int], None] = lambda _: None) -> None:
        """Ask; `told` hears after each answer how many there are."""
        waiting = iter([place for place in self._places() if place not in self._found])
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._manner.concurrency):
                    group.create_task(self._ask(waiting, told))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None

    def _places(self) -> Iterator[tuple[int, int]]:
        """Row by row, so that what an interrupted evaluation has found is of the same rows for all candidates."""
        return ((row, column) for row in range(len(self.examples)) for column in range(len(self.candidates)))

    async def _ask(self, waiting: Iterator[tuple[int, int]], told: Callable[[int], None]) -> None:
        for row, column in waiting:
            example, candidate = self.examples[row], self.candidates[column]
            recipe = candidate.recipe.definition
            given = taken_by(recipe, example.input)
            trial = await self._trials.ask(
                candidate.recipe, given, model=candidate.model, retry=self._manner.retry, timeout=self._manner.timeout
            )
            kind = trial.error["kind"] if trial.error is not None else ""
            failed: Any = None if not kind else "invalid" if kind in INVALID else "error"
            found = judged(
                example.expected,
                trial.output,
                failed=failed,
                tolerance=self._manner.tolerance,
                schema=output_schema_of(recipe),
            )
            self._found[row, column] = Result(row + 1, example, trial, found)
            told(len(self._found))

    # ── what was found ──

    @property
    def done(self) -> int:
        """Rows that every candidate has answered."""
        return len(self._rows())

    @property
    def complete(self) -> bool:
        return self.done == len(self.examples)

    @property
    def asked(self) -> int:
        return len(self.examples) * len(self.candidates)

    @property
    def repeated(self) -> int:
        """Rows with an input that was there before: they say nothing new, and make differences look surer."""
        return len(self.examples) - len({digest_of({"input": one.input}) for one in self.examples})

    def _rows(self) -> list[int]:
        columns = range(len(self.candidates))
        return [row for row in range(len(self.examples)) if all((row, column) in self._found for column in columns)]

    def results(self, column: int = 0) -> list[Result]:
        """The results of a candidate in the order of the table, of the rows that all have answered."""
        return [self._found[row, column] for row in self._rows()]

    def score(self, column: int = 0) -> Score:
        return score([result.judged for result in self.results(column)])

    def compared(self, column: int) -> Compared:
        """A candidate against the first."""
        first, second = self.results(0), self.results(column)
        return compared([one.judged for one in first], [one.judged for one in second])

    def differing(self, column: int) -> list[tuple[Result, Result]]:
        """The rows that only one of a candidate and the first has right."""
        pairs = zip(self.results(0), self.results(column), strict=True)
        return [(one, other) for one, other in pairs if one.judged.right != other.judged.right]

    def spent(self, column: int = 0) -> dict[str, Json]:
        """Tokens, money, seconds and ways of a candidate; money is None where no price is known."""
        trials = [result.trial for result in self.results(column)]
        costs = [trial.usage["cost_usd"] for trial in trials if trial.usage.get("cost_usd") is not None]
        answered = [trial.seconds for trial in trials if trial.attempts]
        return {
            "input_tokens": sum(trial.usage.get("input_tokens", 0) for trial in trials),
            "output_tokens": sum(trial.usage.get("output_tokens", 0) for trial in trials),
            "cost_usd": sum(costs) if costs else None,
            "priced": len(costs),
            "p50_seconds": percentile(answered, 0.5),
            "p95_seconds": percentile(answered, 0.95),
            "fell_back": sum(bool(trial.usage.get("fell_back")) for trial in trials),
            "again": sum(max(0, trial.attempts - 1) for trial in trials),
            "models": sorted({str(trial.usage["model"]) for trial in trials if trial.usage.get("model")}),
            "ways": sorted({str(trial.usage["way"]) for trial in trials if trial.usage.get("way")}),
        }

    def as_json(self) -> dict[str, Json]:
        """All of it, for programs."""
        columns = range(len(self.candidates))
        return {
            "rows": len(self.examples),
            "done": self.done,
            "complete": self.complete,
            "repeated": self.repeated,
            "candidates": [self._candidate(column) for column in columns],
            "comparisons": [self._comparison(column) for column in columns if column],
        }

    def _candidate(self, column: int) -> dict[str, Json]:
        candidate, found = self.candidates[column], self.score(column)
        return {
            "name": candidate.name,
            "recipe": candidate.recipe.definition.recipe,
            "version": candidate.recipe.definition.version,
            "digest": candidate.recipe.digest,
            "model": candidate.model or None,
            "score": found.score,
            "verdicts": {name: found.verdicts.get(name, 0) for name in _VERDICTS},
            "fields": {name: {"right": right, "of": of} for name, (right, of) in found.fields.items()},
            "labels": {one.field: _labels(one) for one in found.confusions},
            **self.spent(column),
            "results": [result.as_json() for result in self.results(column)],
        }

    def _comparison(self, column: int) -> dict[str, Json]:
        found = self.compared(column)
        return {
            "first": self.candidates[0].name,
            "second": self.candidates[column].name,
            "both_right": found.both,
            "better": found.better,
            "worse": found.worse,
            "p": found.p,
            "told": found.told,
            "rows": [one.number for one, _ in self.differing(column)],
        }


_VERDICTS: Any = ("right", "wrong", "missing", "invalid", "error")


def _labels(confusion: Any) -> dict[str, Json]:
    return {
        "confusion": [
            {"expected": expected, "given": given, "count": count}
            for (expected, given), count in sorted(confusion.counts.items())
        ],
        "scores": [
            {
                "label": one.label,
                "precision": one.precision,
                "recall": one.recall,
                "expected": one.expected,
                "given": one.given,
            }
            for one in confusion.scores()
        ],
    }
