"""What an evaluation found, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli.lines import dollars
from stepwell.cli.text import cut, json_text, table, visible

if TYPE_CHECKING:
    from stepwell.engine.recipe_evaluations import Evaluation, Result
    from stepwell.library.scoring import Confusion, Score

Json: TypeAlias = Any

_FEW = 5
"""Wrong rows that are shown unless all are wanted."""
_WIDEST = 100
_MOST_LABELS = 12
"""Labels up to which the whole matrix is shown."""


def report(found: Evaluation, *, unused: Sequence[str] = (), show_all: bool = False) -> list[str]:
    """All that is told of an evaluation."""
    lines = []
    if not found.complete:
        lines.append(f"interrupted: {found.done} of {len(found.examples)} rows were answered; this is what there is")
    if found.repeated:
        said = f"{_rows(found.repeated)} there more than once: that makes a difference look surer than it is"
        lines.append(click.style(said, fg="yellow"))
    lines += [f"columns that are not used: {visible(', '.join(unused))}"] if unused else []
    if len(found.candidates) > 1:
        lines += [*_side_by_side(found), ""]
    for column, candidate in enumerate(found.candidates):
        score = found.score(column)
        lines += [click.style(f"{_letter(found, column)}{visible(candidate.name)}", bold=True), *_score(score)]
        lines += [f"  {line}" for line in _spent(found.spent(column), score.rows)]
        for confusion in score.confusions:
            lines += ["", *(f"  {line}" for line in _confusion(confusion))]
        wrong = [one for one in found.results(column) if not one.judged.right]
        lines += ["", *_wrong(wrong, show_all=show_all)] if wrong else []
        lines.append("")
    for column in range(1, len(found.candidates)):
        lines += [*_differing(found, column, show_all=show_all), ""]
    return lines[:-1]


def _letter(found: Evaluation, column: int) -> str:
    return f"{chr(ord('A') + column)}  " if len(found.candidates) > 1 else ""


def _score(score: Score) -> Iterator[str]:
    others = [f"{count} {name}" for name, count in score.verdicts.items() if name != "right"]
    told = f" ({', '.join(others)})" if others else ""
    yield f"  score {_share(score.score)}: {score.right} of {_rows(score.rows)} right{told}"
    if len(score.fields) > 1:
        for name, (right, of) in score.fields.items():
            yield f"    {visible(name)}: {_share(right / of)} ({right} of {of})"


def _spent(spent: dict[str, Json], rows: int) -> Iterator[str]:
    tokens = f"{spent['input_tokens']} + {spent['output_tokens']} tokens"
    cost = "cost unknown" if spent["cost_usd"] is None else dollars(spent["cost_usd"])
    if spent["cost_usd"] is not None and spent["priced"] < rows:
        cost += f" (known of {spent['priced']} rows)"
    free = not (spent["input_tokens"] or spent["output_tokens"])
    again = f", {spent['again']} asked again" if spent["again"] else ""
    if spent["fell_back"]:
        yield click.style(
            f"{_rows(spent['fell_back'])} answered by a fallback model, not by the one asked", fg="yellow"
        )
    models = ", ".join(spent["models"]) or "no model"
    ways = f" by {', '.join(spent['ways'])}" if spent["ways"] else ""
    yield f"{visible(models)}{ways}: " + ("no tokens" if free else f"{tokens}, {cost}") + again
    yield f"an answer takes {spent['p50_seconds']:.2f} s (p50), {spent['p95_seconds']:.2f} s (p95)"


def _share(part: float) -> str:
    """A part of 1; one that is not whole never looks as if it were."""
    shown = f"{part:.1%}"
    return "99.9%" if shown == "100.0%" and part < 1 else shown


def _confusion(confusion: Confusion) -> Iterator[str]:
    labels = confusion.labels
    if len(labels) <= _MOST_LABELS:
        rows = []
        for expected in labels:
            if not expected.startswith("("):
                counts = [confusion.counts.get((expected, given), 0) for given in labels]
                rows.append([expected, *(str(count) if count else "·" for count in counts)])
        yield from table(rows, [f"{visible(confusion.field)}: expected ↓ given →", *labels])
        yield ""
    rows = [
        [one.label, _part(one.precision), _part(one.recall), str(one.expected), str(one.given)]
        for one in confusion.scores()
    ]
    yield from table(rows, [visible(confusion.field), "precision", "recall", "expected", "given"])


def _part(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _rows(count: int) -> str:
    return "1 row is" if count == 1 else f"{count} rows are"


def _wrong(wrong: Sequence[Result], *, show_all: bool) -> Iterator[str]:
    shown = wrong if show_all else wrong[:_FEW]
    yield f"  {_rows(len(wrong))} not right" + (f"; the first {len(shown)}:" if len(shown) < len(wrong) else ":")
    for one in shown:
        yield f"    {visible(one.example.place)}  {cut(visible(json_text(one.trial.input)), _WIDEST)}"
        yield from (f"      {line}" for line in _why(one))
    if len(shown) < len(wrong):
        yield "    --all shows them all, --out FILE writes them"


def _why(one: Result) -> Iterator[str]:
    if (error := one.trial.error) is not None:
        yield cut(f"{one.judged.verdict}: {visible(error['kind'])}: {visible(error['message'])}", 2 * _WIDEST)
        if one.trial.answer is not None:
            yield f"the answer was {cut(visible(json_text(one.trial.answer)), _WIDEST)}"
        return
    from stepwell.definition.expectation import ABSENT

    for part in one.judged.unlike:
        given = "nothing" if part.found is ABSENT else cut(visible(json_text(part.found)), _WIDEST)
        yield f"{visible(part.field)}: expected {cut(visible(json_text(part.expected)), _WIDEST)}, given {given}"


# ── several ──


def _side_by_side(found: Evaluation) -> list[str]:
    columns = range(len(found.candidates))
    scores, spent = [found.score(column) for column in columns], [found.spent(column) for column in columns]
    rows = [["score", *(f"{_share(one.score)} ({one.right}/{one.rows})" for one in scores)]]
    names = dict.fromkeys(name for one in scores for name in one.fields)
    rows += [[name, *(_of_field(one, name) for one in scores)] for name in names]
    rows += [
        [f"  {verdict}", *(str(one.verdicts.get(verdict, 0)) for one in scores)]
        for verdict in ("wrong", "missing", "invalid", "error")
        if any(one.verdicts.get(verdict) for one in scores)
    ]
    rows.append(["tokens", *(f"{one['input_tokens']} + {one['output_tokens']}" for one in spent)])
    if any(one["cost_usd"] is not None for one in spent):
        costs = ["unknown" if one["cost_usd"] is None else dollars(one["cost_usd"]) for one in spent]
        rows.append(["cost", *costs])
    rows.append(["p50 / p95", *(f"{one['p50_seconds']:.2f} s / {one['p95_seconds']:.2f} s" for one in spent)])
    heads = [f"{_letter(found, column)}{visible(found.candidates[column].name)}" for column in columns]
    lines = table(rows, [f"{scores[0].rows} rows", *heads])
    for column in columns:
        if column:
            letter, base = _letter(found, column).strip(), _letter(found, 0).strip()
            lines.append(click.style(f"{letter} against {base}: {found.compared(column).told}", bold=True))
    return lines


def _of_field(score: Score, name: str) -> str:
    right, of = score.fields.get(name, (0, 0))
    return f"{_share(right / of)} ({right}/{of})" if of else "-"


def _differing(found: Evaluation, column: int, *, show_all: bool) -> Iterator[str]:
    pairs = found.differing(column)
    base, other = _letter(found, 0).strip(), _letter(found, column).strip()
    compared = found.compared(column)
    rows = "1 row" if len(pairs) == 1 else f"{len(pairs)} rows"
    alone = f"only {other} is right on {compared.better}, only {base} on {compared.worse}"
    yield f"{base} and {other} differ on {rows}: {alone}"
    shown = pairs if show_all else pairs[: 2 * _FEW]
    for one, two in shown:
        right = base if one.judged.right else other
        answers = [f"{name}: {cut(visible(_answered(side)), 40)}" for name, side in ((base, one), (other, two))]
        yield f"  {visible(one.example.place)}  {right} is right  {'  '.join(answers)}"
    if len(shown) < len(pairs):
        yield "  --all shows them all, --out FILE writes them"


def _answered(one: Result) -> str:
    """What was given where something is expected."""
    if one.trial.error is not None:
        return f"{one.judged.verdict} ({one.trial.error['kind']})"
    found: dict[str, Json] = {}
    for name in one.judged.fields:
        value = one.trial.output
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        found[name] = value
    return json_text(found if len(found) != 1 else next(iter(found.values())))
