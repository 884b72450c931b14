"""The workloads W1 to W7: `python -m bench W3 --store sqlite --json` ends with one JSON object.

Without a name, all of them. Processor time is the figure to compare: wall-clock figures are only as good as the machine
is idle, and its load is printed beside them. `--profile FILE` writes a cProfile of the main thread.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.commands import COMMANDS
from bench.killing import KILLED
from bench.parked import PARKED
from stepwell.testing.bench.workloads import WORKLOADS, Workload
from stepwell.testing.bench.world import Setup

ALL: dict[str, Workload] = WORKLOADS | {one.name: one for one in (COMMANDS, KILLED, PARKED)}


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = f"{', '.join(ALL)}; default: W1 to W7"
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", choices=[*ALL, []], help=names)
    parser.add_argument("--store", choices=["sqlite", "memory"], default="sqlite")
    parser.add_argument("--durability", choices=["full", "normal"], default="full")
    parser.add_argument(
        "--performer", choices=["tools", "bare"], default="tools", help="bare: without the tool registry"
    )
    parser.add_argument("--size", type=int, default=0, help="runs, steps or iterations; default: the workload's own")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the database lies; default: a temporary folder")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="write a cProfile of the main thread")
    parser.add_argument("--json", action="store_true", help="print JSON only, one object a line")
    return parser.parse_args(given)


def measured(workload: Workload, given: argparse.Namespace) -> dict[str, Any]:
    """One workload in a folder of its own."""
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="bench-") as folder:
        setup = Setup(Path(folder), given.store, given.durability, given.performer)
        return asyncio.run(workload.measure(setup, given.size, given.rounds))


def told(found: dict[str, Any]) -> str:
    """A few lines for people."""
    lines = [f"{found['workload']} {found['title']} ({found['store']})"]
    lines += [f"  {name:24} {found[name]}" for name in list(found)[2:] if name not in {"title", "targets", "store"}]
    for target in found["targets"]:
        bound = f"at most {target['at_most']}" if "at_most" in target else f"at least {target['at_least']}"
        verdict = {True: "met", False: "MISSED", None: "not measured"}[target["met"]]
        lines.append(f"  target: {target['figure']} {bound}: {verdict}")
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> None:
    """Run what is named, one after the other."""
    options = arguments(given)
    profile = cProfile.Profile() if options.profile else None
    for name in options.workloads or [name for name in ALL if "-" not in name]:
        if profile is None:
            found = measured(ALL[name], options)
        else:
            found = profile.runcall(measured, ALL[name], options)
            profile.dump_stats(options.profile)
        print(json.dumps(found) if options.json else told(found), flush=True)


if __name__ == "__main__":
    main()
