"""`stepwell bench`: how fast this machine and this disk carry runs on."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import options
from stepwell.cli.command import Command
from stepwell.cli.exits import Refusal
from stepwell.cli.opening import run_async
from stepwell.cli.text import json_text, table

if TYPE_CHECKING:
    from stepwell.testing.bench.workloads import Workload

Json: TypeAlias = Any

_SHORT = {"W1": 2, "W3": 2, "W5": 1}
"""The workloads that are run, and their rounds."""
_RUNS_PARKED = 200


@click.command(cls=Command, example="stepwell bench\nstepwell bench --store memory --json")
@click.option("--store", type=click.Choice(["sqlite", "memory"]), default="sqlite", help="Where the runs are kept.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="On which disk: a folder that is made in DIR and removed again. Default: the working directory.",
)
@options.as_json
def bench(*, store: str, folder: Path, as_json: bool) -> None:
    """Measure this machine: steps in sequence, many runs at once, and runs parked at an approval.

    Takes some seconds and leaves nothing behind. What the workloads are, and what else can be measured, is in
    docs/reference/bench.md.
    """
    from stepwell.testing.bench.workloads import WORKLOADS

    found = [_measured(WORKLOADS[name], rounds, store, folder) for name, rounds in _SHORT.items()]
    if as_json:
        click.echo(json_text(found, indent=2))
        return
    heads = ["", "WORKLOAD", "STEPS/S", "CPU S/1000 STEPS", "P50 MS", "P99 MS", "OF WHAT"]
    click.echo("\n".join(table([_row(one) for one in found], heads)))
    load = found[-1]["load"]
    click.echo(f"\npeak memory {found[-1]['peak_rss_mb']} MB" + (f", load of the machine {load[0]}" if load else ""))


def _measured(workload: Workload, rounds: int, store: str, folder: Path) -> dict[str, Json]:
    from stepwell.testing.bench.world import Setup

    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".stepwell-bench-") as made:
            setup = Setup(Path(made), "memory" if store == "memory" else "sqlite")
            size = _RUNS_PARKED if workload.name == "W5" else 0
            return run_async(workload.measure(setup, size, rounds))
    except OSError as error:
        raise Refusal(f"{folder}: {error}", hint="name a folder that can be written to with --folder") from error


def _row(found: dict[str, Json]) -> list[Json]:
    names = ("workload", "title", "steps_per_s", "cpu_s_per_1000_steps", "p50_ms", "p99_ms", "sample")
    return [found[name] for name in names]
