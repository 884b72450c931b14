"""`stepwell recipes try`: a recipe asked once, or its own tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.exits import FAILED, Refusal
from stepwell.cli.lines import dollars
from stepwell.cli.opening import opened, run_async
from stepwell.cli.program import program
from stepwell.cli.recipe_sources import folder_of, recipe_named, recipe_refusals
from stepwell.cli.text import cut, json_text, visible, visible_lines

if TYPE_CHECKING:
    from stepwell.engine.engine import Engine
    from stepwell.engine.recipe_trials import Tested, Trial
    from stepwell.library.recipes import FoundRecipe

Json: TypeAlias = Any

_LONGEST = 400
"""Characters of an answer that are shown in a line."""


@click.command(
    "try",
    cls=Command,
    example="""
        stepwell recipes try mood
        stepwell recipes try mood -i text="Thank you!" --show-prompt
        stepwell recipes try recipes/mood.yaml --test "a thank you" --model gpt --json
    """,
    epilog="Exit codes: 0 answered (of tests: all passed), 1 failed, 2 wrong use, recipe, input or model.",
)
@click.argument("recipe", metavar="ID[@VERSION]|FILE")
@click.option("-i", "pairs", multiple=True, metavar="NAME=VALUE", help="An input; NAME:=JSON for other than text.")
@click.option("--input", "file", type=click.Path(path_type=Path), metavar="FILE", help="The inputs as JSON; -: stdin.")
@click.option("--test", "test", default="", metavar="NAME", help="Only this test of the recipe, by name or number.")
@click.option("--model", default="", metavar="NAME", help="Ask this model instead of the one that the recipe names.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=60.0, metavar="SECONDS", help="Default: 60.")
@click.option("--show-prompt", is_flag=True, help="Print what is asked, with the inputs put in.")
@options.database
@options.as_json
def try_recipe(**given: Any) -> None:
    """Ask a recipe as a step would, and show the answer, the model, tokens, cost and time. No run is made.

    Without an input the recipe's own tests are run.
    """
    click.get_current_context().exit(run_async(_try(**given)))


async def _try(  # noqa: PLR0913 -- the options of the command
    *,
    recipe: str,
    pairs: tuple[str, ...],
    file: Path | None,
    test: str,
    model: str,
    timeout: float,
    show_prompt: bool,
    database: str,
    as_json: bool,
) -> int:
    if test and (pairs or file):
        raise Refusal("--test has an input of its own", hint="leave out -i and --input, or --test")
    async with opened(database, start=folder_of(recipe), missing="aside") as engine:
        found = recipe_named(engine, recipe)
        refuse_problems(engine, found, model)
        if pairs or file is not None or not (found.definition.tests or test):
            value = _input(found, pairs, file)
            trial = await engine.recipes.try_(found, value, model=model, timeout=timeout)
            _tell(trial, as_json=as_json, show_prompt=show_prompt)
            return exits.OK if trial.error is None else FAILED
        with recipe_refusals(code=exits.USAGE):
            outcomes = await engine.recipes.test(found, name=test, model=model, timeout=timeout)
        return _tell_tests(found, outcomes, as_json=as_json, show_prompt=show_prompt)


def refuse_problems(engine: Engine, found: FoundRecipe, model: str) -> None:
    """Tell what stands in the way of asking a model. Raises DefinitionError."""
    from stepwell.errors import DefinitionError

    problems = [one for one in engine.recipes.problems(found, model) if one.severity == "error"]
    if problems:
        raise DefinitionError(problems)


def _input(found: FoundRecipe, pairs: tuple[str, ...], file: Path | None) -> dict[str, Json]:
    """The input from the command line. Raises InputError, Refusal."""
    from stepwell.cli.inputs import hinted, pair_hints, read_input
    from stepwell.engine.preflight import checked_input
    from stepwell.errors import InputError

    schema = found.definition.input
    filled, problems = checked_input(schema, read_input(file, pairs, schema), "the recipe")
    wrong = [one for one in problems if one.severity == "error"]
    if wrong and not pairs and file is None:
        needed = ", ".join(schema.get("required") or ())
        hint = f"`{program()} recipes try {found.definition.recipe} -i NAME=VALUE`, or give the recipe `tests`"
        raise Refusal(f"{found.reference} has no tests and wants an input: {needed}", hint=hint)
    if wrong:
        raise InputError(hinted(problems, pair_hints(pairs, schema)))
    exits.tell_problems(problems)
    value: dict[str, Json] = filled
    return value


# ── for people ──


def _tell(trial: Trial, *, as_json: bool, show_prompt: bool) -> None:
    if as_json:
        prompt = {"system": trial.system, "prompt": trial.prompt} if show_prompt else {}
        click.echo(json_text(trial.as_json() | prompt, indent=2))
        return
    if show_prompt:
        _prompt(trial)
    if trial.error is None:
        click.echo("\n".join(visible_lines(json_text(trial.output, indent=2))))
    else:
        exits.tell_error(f"{trial.error['kind']}: {trial.error['message']}")
        for line in _wrong(trial):
            click.echo(line, err=True)
    click.echo(click.style(_took(trial), dim=True), err=True)


def _prompt(trial: Trial) -> None:
    for head, text in (("system", trial.system), ("prompt", trial.prompt)):
        if text:
            click.echo(click.style(f"{head}:", bold=True))
            click.echo("\n".join(f"  {line}" for line in visible_lines(text)))
    click.echo()


def _wrong(trial: Trial) -> list[str]:
    """What was wrong with an answer, and the answer."""
    detail = (trial.error or {}).get("detail")
    problems = detail.get("problems") or () if isinstance(detail, dict) else ()
    lines = [f"  wrong: {visible(problem)}" for problem in problems]
    if trial.answer is not None:
        text = trial.answer if isinstance(trial.answer, str) else json_text(trial.answer, indent=2)
        lines += ["  the answer was:", *(f"    {line}" for line in visible_lines(text))]
    return lines


def _took(trial: Trial) -> str:
    """Model, way, tokens, cost and time in a line."""
    usage = trial.usage
    parts = [visible(usage[name]) for name in ("model",) if usage.get(name)]
    parts += [f"by {usage['way']}"] if usage.get("way") else []
    tokens = [usage.get(name, 0) for name in ("input_tokens", "output_tokens")]
    parts += [f"{tokens[0]} + {tokens[1]} tokens"] if any(tokens) else []
    parts += [dollars(usage["cost_usd"])] if usage.get("cost_usd") is not None else []
    parts += [f"{usage['repairs']} repaired"] if usage.get("repairs") else []
    return ", ".join([*parts, f"{trial.seconds:.2f} s"])


def _tell_tests(found: FoundRecipe, outcomes: list[Tested], *, as_json: bool, show_prompt: bool) -> int:
    failed = sum(not one.passed for one in outcomes)
    if as_json:
        told = {"recipe": found.reference, "passed": len(outcomes) - failed, "failed": failed}
        click.echo(json_text({**told, "tests": [_object(found, one) for one in outcomes]}, indent=2))
    else:
        click.echo(click.style(f"{visible(found.reference)}  {visible(found.file)}", bold=True))
        for one in outcomes:
            click.echo("\n".join(_lines(found, one, show_prompt=show_prompt)))
        words = [click.style(f"{len(outcomes) - failed} passed", fg="green")] if failed < len(outcomes) else []
        words += [click.style(f"{failed} failed", fg="red", bold=True)] if failed else []
        click.echo(", ".join(words))
    return FAILED if failed else exits.OK


def _lines(found: FoundRecipe, one: Tested, *, show_prompt: bool) -> list[str]:
    sign = click.style("✓", fg="green") if one.passed else click.style("✗", fg="red", bold=True)
    lines = [f"  {sign} {visible(one.name)}  {click.style(f'({_took(one.trial)})', dim=True)}"]
    if show_prompt:
        lines += [f"      {line}" for line in visible_lines(one.trial.prompt)]
    if one.passed:
        return lines
    lines.append(f"      {visible(found.place(('tests', one.number - 1, 'name')))}")
    if one.trial.error is not None:
        lines.append(f"    {visible(one.trial.error['kind'])}: {visible(one.trial.error['message'])}")
        lines += [f"    {line}" for line in _wrong(one.trial)]
    for part in one.unlike:
        lines.append(f"    {click.style(visible(part.field), bold=True)}")
        lines.append(f"      expected  {_short(part.expected)}")
        lines.append(f"      found     {_short(part.found)}")
    return lines


def _short(value: Json) -> str:
    from stepwell.definition.expectation import ABSENT

    return "nothing" if value is ABSENT else cut(json_text(value), _LONGEST)


def _object(found: FoundRecipe, one: Tested) -> dict[str, Json]:
    from stepwell.definition.expectation import ABSENT

    unlike = [
        {"field": part.field, "expected": part.expected, "found": None if part.found is ABSENT else part.found}
        for part in one.unlike
    ]
    place = found.place(("tests", one.number - 1, "name"))
    return {"name": one.name, "place": place, "passed": one.passed, "unlike": unlike, **one.trial.as_json()}
