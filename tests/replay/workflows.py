"""The workflows whose journals are kept: one for each construct that the interpreter performs."""

from __future__ import annotations

from typing import Any

Json = Any
QUICK = {"initial_delay": 0.001, "jitter": "none"}
GATE = {"id": "go", "type": "approval", "title": "Go on?"}


def tool(step: str, **parts: Json) -> Json:
    return {"id": step, "type": "tool_call", "tool": "t", "retry": QUICK, **parts}


def uses(*steps: str) -> Json:
    return {step: f"{{{{ step.{step} ?? 'none' }}}}" for step in steps}


def of(*steps: Json, **found: Json) -> Json:
    base: Json = {"parts": {}, "refusing": [], "flaky": {}, "returns": {}, "breaks": {}, "children": {}}
    return {"steps": list(steps), **base, **found}


WORKFLOWS: dict[str, Json] = {
    "sequence": of(tool("a"), {"id": "s", "type": "set", "values": {"from": "{{ step.a.path }}"}}, GATE, tool("b", arguments=uses("s"))),
    "graph": of(
        tool("a", depends_on=[]),
        tool("b", depends_on=[], condition="workflow_input.no"),
        GATE | {"depends_on": ["a"]},
        tool("c", depends_on=["a", "b"], arguments=uses("a")),
        tool("d", depends_on=["b"], join="all_completed"),
        tool("e", depends_on=["go", "c", "d"], join="all_settled", arguments=uses("c", "d")),
    ),
    "condition": of(
        {"id": "c", "type": "condition", "when": "workflow_input.yes", "then": [tool("a"), GATE], "else": [tool("b")]},
        tool("after", arguments=uses("a", "b")),
    ),
    "loop": of(
        {"id": "l", "type": "loop", "over": "workflow_input.items", "as": "one", "concurrency": 2, "tolerate": 1,
         "steps": [tool("a", arguments={"item": "{{one}}", "at": "{{loop.index}}"}), GATE]},
        tool("after", arguments=uses("l")),
    ),
    "until": of(
        {"id": "u", "type": "loop", "until": "loop.index >= 2", "max_iterations": 5, "output": {"at": "{{loop.index}}"},
         "steps": [tool("a", arguments={"before": "{{ loop.previous ?? 'none' }}"}), GATE]},
    ),
    "parallel": of(
        {"id": "p", "type": "parallel", "continue_on_error": True,
         "branches": {"a": [tool("t1"), GATE], "b": [tool("t2")], "c": [tool("t3", arguments={"big": True})]}},
        tool("after", arguments=uses("t1", "t2")),
        refusing=["t2"],
    ),
    "race": of(
        {"id": "p", "type": "parallel", "mode": {"quorum": 2},
         "branches": {"a": [tool("t1")], "b": [tool("t2")], "c": [{"id": "w", "type": "wait", "for": "36500d"}, tool("t3")]}},
        GATE,
        tool("after", arguments={"p": "{{ step.p }}"}),
    ),
    "retry": of(tool("a"), GATE, tool("b", on_error={"strategy": "continue", "default": {"kind": "{{error.kind}}"}}),
                tool("c", arguments=uses("b")), flaky={"a": 2}, refusing=["b"]),
    "rounds": of(
        {"id": "c", "type": "condition", "when": "true", "retry": QUICK | {"max_attempts": 2},
         "then": [tool("a"), tool("b", retry={"max_attempts": 1})]},
        GATE,
        breaks={"b": 1},
    ),
    "goto": of(
        tool("a"),
        GATE,
        tool("b", arguments=uses("a"), on_error={"errors": ["refused"], "strategy": "goto", "goto": "a"}),
        tool("c", arguments=uses("b")),
        returns={"b": 1},
    ),
    "sub_workflow": of(
        {"id": "w", "type": "sub_workflow", "workflow": "child", "inputs": {"items": "{{workflow_input.items}}"}},
        tool("after", arguments=uses("w")),
        children={"child": {"steps": [tool("a", arguments={"items": "{{workflow_input.items}}"}), GATE, tool("b")],
                            "parts": {"output": {"b": "{{ step.b.path }}"}}}},
    ),
    "wait": of(tool("a"), {"id": "w", "type": "wait", "for": "36500d"}, tool("b")),
    "end": of(GATE, tool("a"), {"id": "e", "type": "end", "status": "failed", "output": uses("a"), "message": "enough"}, tool("b")),
    "on_failure": of(GATE, tool("a"), parts={"on_failure": {"steps": [tool("tell", arguments={"kind": "{{error.kind}}"})]}},
                     refusing=["a"]),
}  # fmt: skip
