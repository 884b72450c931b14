"""The whole storm: `python -m tests.chaos --kills 100`. Ends with 1 if a promise was broken.

`python -m tests.chaos --everything` is the other one: `everything/storm.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from tests.chaos import storm
from tests.chaos.everything import storm as everything


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--everything", action="store_true", help="a workflow with everything in it; clocks are set too"
    )
    which = everything if "--everything" in arguments else storm
    for field in fields(which.Plan):
        default = random.SystemRandom().randrange(10**6) if field.name == "seed" else field.default
        parser.add_argument(f"--{field.name}", type=type(field.default), default=default)
    parser.add_argument(
        "--keep", type=Path, help="folder for the databases, ledgers and logs (default: a temporary one)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one line of JSON")
    given = vars(parser.parse_args(arguments))
    keep, as_json, _ = given.pop("keep"), given.pop("json"), given.pop("everything")
    plan = which.Plan(**given)
    if keep is not None:
        keep.mkdir(parents=True)
        figures = asyncio.run(which.storm(plan, keep))
    else:
        with tempfile.TemporaryDirectory() as folder:
            figures = asyncio.run(which.storm(plan, Path(folder)))
    print(json.dumps(which.as_record(plan, figures)) if as_json else "\n".join([*figures.lines(), f"seed {plan.seed}"]))
    return any(figures.broken_promises().values())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
