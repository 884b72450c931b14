"""`stepwell recipes eval`: a score over a table, and a comparison of two versions or models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.exits import FAILED, INTERRUPTED, Refusal
from stepwell.cli.opening import opened, run_async
from stepwell.cli.recipe_sources import LIBRARY, folder_of, recipe_named
from stepwell.cli.recipe_try import refuse_problems
from stepwell.cli.text import json_text, visible

if TYPE_CHECKING:
    from stepwell.engine.engine import Engine
    from stepwell.engine.recipe_evaluations import Candidate, Evaluation

Json: TypeAlias = Any

MOST_CANDIDATES = 6


@dataclass(slots=True)
class _Wanted:
    """What the command was given, and what it has found when it is interrupted."""

    recipe: str
    table: Path
    expects: tuple[str, ...]
    models: tuple[str, ...]
    versions: tuple[str, ...]
    limit: int | None
    concurrency: int
    tolerance: float
    timeout: float
    attempts: int
    database: str
    unused: Sequence[str] = ()
    evaluation: Evaluation | None = None


@click.command(
    "eval",
    cls=Command,
    example="""
        stepwell recipes eval triage --table tickets.csv
        stepwell recipes eval triage --table tickets.csv --expect label=class --version 1 --version 2
        stepwell recipes eval triage --table tickets.jsonl --model gpt --model claude --min-score 0.9
    """,
    epilog="Exit codes: 0 evaluated, 1 below --min-score or nothing could be answered, 2 wrong use, 130 interrupted.",
)
@click.argument("recipe", metavar="ID[@VERSION]|FILE")
@click.option(
    "--table", required=True, type=options.FILE, metavar="FILE", help="Rows: .csv, .tsv, .jsonl, .json, .yaml."
)
@click.option("--expect", "expects", multiple=True, metavar="FIELD=COLUMN", help="Where a field's right value stands.")
@click.option(
    "--model", "models", multiple=True, metavar="NAME", help="Ask this model; of several the first is the base."
)
@click.option(
    "--version", "versions", multiple=True, metavar="VERSION", help="This version, or a recipe file; the same."
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N rows.")
@click.option("--concurrency", type=click.IntRange(1, 64), default=4, metavar="N", help="Questions at once; default 4.")
@click.option("--tolerance", type=click.FloatRange(min=0), default=1e-6, metavar="PART",
              help="How far a number may be off, as a part of it; default 0.000001.")  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=60.0, metavar="SECONDS", help="Of one answer; default 60."
)
@click.option(
    "--attempts", type=click.IntRange(1, 20), default=3, metavar="N", help="Of a row, as in a run; default 3."
)
@click.option("--min-score", type=click.FloatRange(0, 1), metavar="PART", help="Exit with 1 if a score is below this.")
@click.option("--all", "show_all", is_flag=True, help="Show every row that is wrong.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write all results: .json the whole report, .jsonl one row a line.")  # fmt: skip
@options.database
@options.as_json
def evaluate(**given: Any) -> None:
    """Ask a recipe every row of a table and score the answers; with several models or versions, compare them.

    Columns with the names of inputs go in; what is expected stands in columns expected.FIELD. Answers that cannot be
    used, and rows that failed, count as wrong and are told apart. Ctrl-C prints what there is.
    """
    min_score, show_all, out, as_json = (given.pop(name) for name in ("min_score", "show_all", "out", "as_json"))
    if out is not None and out.suffix not in {".json", ".jsonl"}:
        raise Refusal(f"--out {out}: results are written as .json or .jsonl")
    wanted = _Wanted(**given)
    interrupted = False
    try:
        run_async(_evaluate(wanted))
    except KeyboardInterrupt:
        interrupted = True
    found = wanted.evaluation
    if found is None or (interrupted and not found.done):
        raise KeyboardInterrupt
    if out is not None:
        _write(found, out)
    if as_json:
        click.echo(json_text(found.as_json(), indent=2))
    else:
        from stepwell.cli.recipe_scores import report

        click.echo("\n".join(report(found, unused=wanted.unused, show_all=show_all)))
    click.get_current_context().exit(INTERRUPTED if interrupted else _code(found, min_score))


def _code(found: Evaluation, min_score: float | None) -> int:
    """1 for a score that is too low, and where no row of a candidate was answered at all."""
    scores = [found.score(column) for column in range(len(found.candidates))]
    if any(one.verdicts.get("error", 0) == one.rows for one in scores):
        return FAILED
    return FAILED if min_score is not None and min(one.score for one in scores) < min_score else exits.OK


async def _evaluate(wanted: _Wanted) -> None:
    from stepwell.definition.policy import RetryPolicy
    from stepwell.engine.recipe_evaluations import Manner
    from stepwell.library.examples import examples_of
    from stepwell.library.tables import read_table

    table = read_table(wanted.table)
    async with opened(wanted.database, start=folder_of(wanted.recipe), missing="aside") as engine:
        candidates = _candidates(engine, wanted)
        for one in candidates:
            refuse_problems(engine, one.recipe, one.model)
        recipes = [one.recipe.definition for one in candidates]
        examples, wanted.unused = examples_of(table, recipes, _expects(wanted.expects))
        retry = RetryPolicy(max_attempts=wanted.attempts)
        manner = Manner(wanted.concurrency, wanted.tolerance, wanted.timeout, retry)
        wanted.evaluation = engine.recipes.evaluation(candidates, examples[: wanted.limit], manner)
        await wanted.evaluation.run(_progress(wanted.evaluation))
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)


def _candidates(engine: Engine, wanted: _Wanted) -> list[Candidate]:
    from stepwell.engine.recipe_evaluations import Candidate

    name, _, version = wanted.recipe.partition("@")
    if wanted.versions and (version or Path(wanted.recipe).is_file()):
        raise Refusal("the recipe is named with a version already", hint="leave out --version, or @VERSION")
    named = [_version(name, one) for one in wanted.versions] or [wanted.recipe]
    found = [recipe_named(engine, one) for one in dict.fromkeys(named)]
    made = [Candidate(one, model) for one in found for model in dict.fromkeys(wanted.models or ("",))]
    if len(made) > MOST_CANDIDATES:
        raise Refusal(f"{len(made)} candidates are more than {MOST_CANDIDATES}", hint="compare fewer at once")
    return made


def _version(recipe: str, version: str) -> str:
    """A version as a recipe is named: a file, the one of the library, or any."""
    if Path(version).is_file():
        return version
    bare = version.removeprefix(LIBRARY)
    return f"{recipe}@{version}" if bare == version else f"{LIBRARY}{recipe}@{bare}"


def _expects(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, sign, column = pair.partition("=")
        if not sign or not name or not column:
            raise Refusal(f"--expect {pair}: this is not FIELD=COLUMN", hint="write --expect label=class")
        found[name] = column
    return found


def _progress(evaluation: Evaluation) -> Any:
    """A line that counts, on a terminal alone."""
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda count: click.echo(f"\r\x1b[K{count} of {evaluation.asked} asked", nl=False, err=True)


def _write(found: Evaluation, out: Path) -> None:
    whole = found.as_json()
    if out.suffix == ".json":
        text = json_text(whole, indent=2)
    else:
        rows = [
            {"candidate": candidate["name"], **result}
            for candidate in whole["candidates"]
            for result in candidate["results"]
        ]
        text = "\n".join(json_text(row) for row in rows)
    out.write_text(f"{text}\n", "utf-8")
    click.echo(f"results written to {visible(out)}", err=True)
