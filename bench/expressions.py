"""Times of the expression language against its targets: compile, evaluate, render, import.

Run: python bench/expressions.py
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

from stepwell.expressions import CheckEnv, StepShape, check_expression, compile_expression, compile_template

CONDITION = 'steps.extract.result.confidence > 0.8 && steps.my-step.status == "completed"'
EXISTS = 'steps.extract.result.items.exists(i, i.price > 15 && i.name != "a")'
PROMPT = (
    "Dear {{workflow_input.name}}, your order {{step.extract.order_id}} of {{step.extract.items.0.name}} is "
    "{{steps.my-step.status}} since {{step.my-step.date}}."
)


def context(steps: int) -> dict[str, Any]:
    """A run with many finished steps, each with an output of some size."""
    filler = {f"s{n}": {"rows": [{"id": i, "text": "x" * 40} for i in range(50)]} for n in range(steps)}
    items = [{"name": "a", "price": 10}, {"name": "b", "price": 20.5}]
    extract = {"confidence": 0.9, "order_id": 123, "items": items, **{f"f{n}": n for n in range(50)}}
    outputs = {**filler, "extract": extract, "my-step": {"date": "2026-01-31"}}
    records = {name: {"status": "completed", "result": output, "attempts": 1} for name, output in outputs.items()}
    return {"workflow_input": {"name": "Zoé"}, "step": outputs, "steps": records, "run": {"id": "r-1"}}


def best(call: Callable[[], Any], number: int = 200, rounds: int = 250) -> float:
    """Microseconds a call, the best of many short rounds, so that a busy machine disturbs little."""
    found = []
    for _ in range(rounds):
        start = perf_counter()
        for _ in range(number):
            call()
        found.append((perf_counter() - start) / number * 1e6)
    return min(found)


def import_ms() -> float:
    """CPU milliseconds the package itself takes once the standard library modules it uses are loaded."""
    code = (
        "import re, dataclasses, typing, json, datetime, enum; from time import process_time; s = process_time();"
        "import stepwell.expressions; print((process_time() - s) * 1e3)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


def main() -> None:
    small, large = context(2), context(500)
    condition, exists = compile_expression(CONDITION), compile_expression(EXISTS)
    prompt, whole = compile_template(PROMPT), compile_template("{{step.extract.items}}")
    env = CheckEnv(visible={"extract": StepShape({"type": "object"}), "my-step": StepShape()})
    rows: list[tuple[str, float, float | None]] = [
        ("compile a condition", best(lambda: compile_expression(CONDITION)), 60),
        ("compile a prompt of five references", best(lambda: compile_template(PROMPT)), None),
        ("check a condition", best(lambda: check_expression(condition, env, boolean=True)), None),
        ("evaluate two comparisons, 2 steps", best(lambda: condition.test(small)), 2),
        ("evaluate two comparisons, 500 steps", best(lambda: condition.test(large)), 2),
        ("evaluate exists over two items", best(lambda: exists.test(large)), None),
        ("render five references, 2 steps", best(lambda: prompt.render(small)), 10),
        ("render five references, 500 steps", best(lambda: prompt.render(large)), 10),
        ("render a whole value", best(lambda: whole.render(large)), None),
    ]
    for name, us, target in rows:
        verdict = "" if target is None else f"   target {target:g} us: {'met' if us < target else 'MISSED'}"
        print(f"{name:40} {us:8.2f} us{verdict}")
    ms = import_ms()
    print(f"{'import':40} {ms:8.2f} ms   target 20 ms: {'met' if ms < 20 else 'MISSED (is bytecode cached?)'}")


if __name__ == "__main__":
    main()
