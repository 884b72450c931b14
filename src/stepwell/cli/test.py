"""`stepwell test`: the tests of a project's workflows, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits
from stepwell.cli.command import Command

if TYPE_CHECKING:
    from stepwell.testing.checking import Checked
    from stepwell.testing.coverage import Coverage
    from stepwell.testing.suite import Suite

Json: TypeAlias = Any


@click.command(
    cls=Command,
    example="""
        stepwell test
        stepwell test tests/refund.test.yaml -k "large refund" --crash
    """,
    epilog="Exit codes: 0 all passed, 1 a test failed, 2 wrong use or a wrong test file.",
)
@click.argument("places", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE|DIR]...")
@click.option("-k", "part", default="", metavar="TEXT", help="Only tests whose name contains this.")
@click.option("--crash", is_flag=True, help="Run each test again with a crash after every write to the journal.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def test(*, places: tuple[Path, ...], part: str, crash: bool, as_json: bool) -> None:
    """Run the test files (*.test.yaml) in FILEs and DIRs, by default those below the current folder.

    Workflows run as they do in earnest, but nothing outside is called: scripts answer, and waiting takes no time.
    """
    from stepwell.errors import DefinitionError, NotFound
    from stepwell.testing.suite import find_suites, load_suite

    suites: list[Suite] = []
    problems = []
    try:
        files = find_suites(list(places) or [Path()])
    except NotFound as missing:
        raise exits.Refusal(str(missing), hint="see docs/guides/testing.md for how to write one") from None
    for file in files:
        try:
            suites.append(load_suite(file))
        except DefinitionError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    if problems:
        raise DefinitionError(problems)
    click.get_current_context().exit(_run(suites, part.casefold(), crash=crash, as_json=as_json))


def _run(suites: list[Suite], part: str, *, crash: bool, as_json: bool) -> int:
    """Run, and tell of each test when it has ended; returns the exit code."""
    from stepwell.testing.checking import run_test
    from stepwell.testing.coverage import Coverage

    told: list[tuple[Suite, Checked]] = []
    coverages: dict[str, Coverage] = {}
    for suite in suites:
        chosen = [one for one in suite.tests if part in one.name.casefold()]
        if chosen and not as_json:
            click.echo(click.style(str(suite.file), bold=True))
        for one in chosen:
            checked = run_test(one, crash=crash)
            told.append((suite, checked))
            loaded = one.project.loaded
            coverage = coverages.setdefault(loaded.file, Coverage(loaded))
            if checked.result is not None:
                coverage.add(checked.result)
            if not as_json:
                click.echo("\n".join(_lines(suite, checked)))
    if not told:
        names = f"no test has {part!r} in its name"
        raise exits.Refusal(names, hint="leave out -k to run them all")
    failed = sum(not checked.passed for _, checked in told)
    if as_json:
        _print_json(told, coverages)
    else:
        _summary(told, coverages, failed)
    return exits.FAILED if failed else exits.OK


def _lines(suite: Suite, checked: Checked) -> list[str]:
    """A test as a line, and below it why it failed."""
    from stepwell.cli.text import duration, visible, visible_lines

    test = checked.test
    sign = click.style("✓", fg="green") if checked.passed else click.style("✗", fg="red", bold=True)
    spans = f"{checked.seconds:.2f} s"
    if checked.result is not None:
        spans = f"{duration(checked.result.virtual_seconds)} in {spans}"
    crashes = f", {checked.crashes} crashes" if checked.crashes else ""
    lines = [f"  {sign} {visible(test.name)}  {click.style(f'({spans}{crashes})', dim=True)}"]
    if checked.passed:
        return lines
    lines.append(f"      {visible(suite.place((*test.where, 'name')))}")
    for difference in checked.differences:
        what, *rest = difference.lines()
        place = click.style(f"  ({visible(suite.place(difference.where))})", dim=True)
        lines.append(f"    {click.style(visible(what), bold=True)}{place}")
        lines += [f"    {visible(line)}" for line in rest]
    lines += [f"    {line}" for line in visible_lines(checked.problem)] if checked.problem else []
    if checked.differences and checked.result is not None:
        lines += ["", *(f"    {line}" for line in visible_lines(str(checked.result))), ""]
    return lines


def _summary(told: list[tuple[Suite, Checked]], coverages: dict[str, Coverage], failed: int) -> None:
    from stepwell.cli.text import duration, visible

    virtual = sum(checked.result.virtual_seconds for _, checked in told if checked.result is not None)
    real = sum(checked.seconds for _, checked in told)
    click.echo("")
    for coverage in coverages.values():
        ran, of = coverage.counted
        click.echo(f"{visible(coverage.loaded.workflow.workflow)}: {ran} of {of} steps and branches ran")
        if missed := coverage.missed:
            click.echo(f"  never run: {visible(', '.join(missed))}")
    passed = len(told) - failed
    words = [click.style(f"{passed} passed", fg="green")] if passed else []
    words += [click.style(f"{failed} failed", fg="red", bold=True)] if failed else []
    click.echo(f"{', '.join(words)}: {duration(virtual)} of virtual time in {real:.2f} s")


def _print_json(told: list[tuple[Suite, Checked]], coverages: dict[str, Coverage]) -> None:
    from stepwell.cli.text import json_text

    tests = [_object(suite, checked) for suite, checked in told]
    covered = [
        {
            "workflow": coverage.loaded.workflow.workflow,
            "file": coverage.loaded.file,
            "ran": coverage.counted[0],
            "of": coverage.counted[1],
            "never_run": coverage.missed,
        }
        for coverage in coverages.values()
    ]
    failed = sum(not checked.passed for _, checked in told)
    counts = {"passed": len(told) - failed, "failed": failed}
    click.echo(json_text({**counts, "tests": tests, "coverage": covered}, indent=2))


def _object(suite: Suite, checked: Checked) -> dict[str, Json]:
    result = checked.result
    return {
        "file": str(suite.file),
        "line": suite.positions.place((*checked.test.where, "name"), key=True)[0],
        "name": checked.test.name,
        "passed": checked.passed,
        "status": result.status if result else None,
        "differences": [
            difference.as_json() | {"line": suite.positions.place(difference.where, key=True)[0]}
            for difference in checked.differences
        ],
        "problem": checked.problem or None,
        "crashes": checked.crashes,
        "virtual_seconds": round(result.virtual_seconds, 3) if result else None,
        "seconds": round(checked.seconds, 3),
    }
