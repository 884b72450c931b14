"""The whole storm: `python -m tests.chaos --kills 100`. Ends with 1 if a promise was broken."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
from dataclasses import fields
from pathlib import Path

from tests.chaos.storm import Plan, as_record, storm


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    for field in fields(Plan):
        default = random.SystemRandom().randrange(10**6) if field.name == "seed" else field.default
        parser.add_argument(f"--{field.name}", type=type(field.default), default=default)
    parser.add_argument(
        "--keep", type=Path, help="folder for the databases, ledgers and logs (default: a temporary one)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one line of JSON")
    given = vars(parser.parse_args())
    keep, as_json = given.pop("keep"), given.pop("json")
    plan = Plan(**given)
    if keep is not None:
        keep.mkdir(parents=True)
        figures = asyncio.run(storm(plan, keep))
    else:
        with tempfile.TemporaryDirectory() as folder:
            figures = asyncio.run(storm(plan, Path(folder)))
    print(json.dumps(as_record(plan, figures)) if as_json else "\n".join([*figures.lines(), f"seed {plan.seed}"]))
    return any(figures.broken_promises().values())


if __name__ == "__main__":
    raise SystemExit(main())
