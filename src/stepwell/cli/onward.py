"""Going on with a run after a person has said something to it.

The law of the file: what was said stands, whatever becomes of the run now.
"""

from __future__ import annotations

import click

from stepwell.cli import exits
from stepwell.cli.program import program


async def go_on(run_id: str, database: str, tail: str, *, as_json: bool) -> bool:
    """Carry a run on here; what goes wrong is the run's, and is told. Returns whether nobody interrupted it."""
    from stepwell.cli.runs import carry_on

    try:
        ending = await carry_on(run_id, database=database, as_json=as_json)
    except Exception as problem:  # noqa: BLE001 -- told in full; what was said was taken all the same
        exits.explain(problem)
        click.echo(f"this is taken; go on with: {program()} runs resume {run_id}{tail}", err=True)
        return True
    return not ending.interrupted
