"""The definitions of the workloads, as a user would write them: every step's arguments are templates."""

from __future__ import annotations

from typing import Any, TypeAlias

Json: TypeAlias = Any

_INPUT: dict[str, Json] = {
    "type": "object",
    "required": ["number"],
    "properties": {"number": {"type": "integer"}, "items": {"type": "array", "items": {"type": "integer"}}},
}


def _call(name: str, number: str, tool: str = "work", **more: Json) -> dict[str, Json]:
    arguments = {"number": number, "text": f"run {{{{run.id}}}} at {name}"}
    return {"id": name, "type": "tool_call", "tool": tool, "arguments": arguments, **more}


def chain(length: int, *, charge_at: int | None = None) -> dict[str, Json]:
    """So many steps in sequence, each with the result of the one before; one may call `charge`, not idempotent."""
    steps = []
    for index in range(length):
        number = f"{{{{step.s{index - 1}.number}}}}" if index else "{{workflow_input.number}}"
        steps.append(_call(f"s{index}", number, "charge" if index == charge_at else "work"))
    return _workflow("chain", steps, {"number": f"{{{{step.s{length - 1}.number}}}}"})


def fan(width: int) -> dict[str, Json]:
    """A step, so many that depend on it, and one that depends on all of those."""
    inner = [_call(f"s{index}", "{{step.first.number}}", depends_on=["first"]) for index in range(width)]
    last = _call("join", f"{{{{step.s{width - 1}.number}}}}", depends_on=[step["id"] for step in inner])
    return _workflow("fan", [_call("first", "{{workflow_input.number}}", depends_on=[]), *inner, last])


def spread() -> dict[str, Json]:
    """The same as a loop over a list whose iterations run at the same time."""
    loop = {
        "id": "loop",
        "type": "loop",
        "over": "workflow_input.items",
        "concurrency": 1000,
        "steps": [_call("s0", "{{loop_item}}")],
    }
    return _workflow("spread", [_call("first", "{{workflow_input.number}}"), loop])


def loop() -> dict[str, Json]:
    """Iterations of two steps one after the other, over a list."""
    body = [_call("s0", "{{loop_item}}"), _call("s1", "{{step.s0.number}}")]
    return _workflow("loop", [{"id": "loop", "type": "loop", "over": "workflow_input.items", "steps": body}])


def approval() -> dict[str, Json]:
    """A step, an approval, and a step behind it."""
    ask = {"id": "ask", "type": "approval", "title": "Pay {{step.s0.number}}?"}
    return _workflow("approval", [_call("s0", "{{workflow_input.number}}"), ask, _call("s1", "{{step.s0.number}}")])


def _workflow(name: str, steps: list[dict[str, Json]], output: Json = None) -> dict[str, Json]:
    whole = {"workflow": f"bench-{name}", "version": "1", "input": _INPUT, "timeout": "1h", "steps": steps}
    return whole if output is None else whole | {"output": output}
