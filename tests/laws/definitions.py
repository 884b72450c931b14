"""Random definitions: nested conditions, loops, parallels, graphs, approvals, retries, ends."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Json = Any


class _Writer:
    """Draws one definition; `visible` are ids whose output a text may use."""

    def __init__(self, draw: Any, *, failing: bool) -> None:
        self.draw = draw
        self.failing = failing
        self.count = 0
        self.budget = 14
        self.refusing: list[str] = []
        self.flaky: dict[str, int] = {}
        self.returns: dict[str, int] = {}

    def id(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def arguments(self, visible: list[str], looping: bool) -> Json:
        found: dict[str, Json] = {"n": self.draw(st.integers(0, 3))}
        if visible:
            source = self.draw(st.sampled_from(visible))
            found["from"] = f"{{{{ step.{source} ?? 'none' }}}}"
        if looping:
            found["item"] = "{{loop_item}}"
            found["index"] = "{{loop.index}}"
        return found

    def step(self, depth: int, visible: list[str], looping: bool) -> tuple[Json, list[str]]:
        """A step, and the ids that are visible after it."""
        self.budget -= 1
        kinds = ["tool", "tool", "set", "approval"]
        if depth < 3 and self.budget > 0:
            kinds += ["condition", "loop", "parallel", "until"]
        kind = self.draw(st.sampled_from(kinds))
        return getattr(self, f"_{kind}")(depth, visible, looping)

    def _common(self, step: Json) -> Json:
        if self.draw(st.integers(0, 5)) == 0:
            step["condition"] = self.draw(st.sampled_from(["workflow_input.yes", "workflow_input.no"]))
        return step

    def _tool(self, depth: int, visible: list[str], looping: bool) -> tuple[Json, list[str]]:
        step = {"id": self.id("t"), "type": "tool_call", "tool": "t", "arguments": self.arguments(visible, looping),
                "retry": {"initial_delay": 0.0005, "jitter": "none"}}  # fmt: skip
        if self.draw(st.integers(0, 3)) == 0:
            self.flaky[step["id"]] = self.draw(st.integers(1, 2))
        if self.failing and self.draw(st.integers(0, 4)) == 0:
            self.refusing.append(step["id"])
            if self.draw(st.booleans()):
                step["on_error"] = {"strategy": "continue", "default": {"gone": True}}
        return self._common(step), [step["id"]]

    def _set(self, depth: int, visible: list[str], looping: bool) -> tuple[Json, list[str]]:
        step = {"id": self.id("s"), "type": "set", "values": self.arguments(visible, looping)}
        return self._common(step), [step["id"]]

    def _approval(self, depth: int, visible: list[str], looping: bool) -> tuple[Json, list[str]]:
        step = {"id": self.id("g"), "type": "approval", "title": "go?", "show": self.arguments(visible, looping)}
        return self._common(step), [step["id"]]

    def _condition(self, depth: int, visible: list[str], looping: bool) -> tuple[Json, list[str]]:
        step: Json = {"id": self.id("c"), "type": "condition"}
        step["when"] = self.draw(st.sampled_from(["workflow_input.yes", "workflow_input.no", "1 < 2"]))
        step["then"], inner = self.block(depth + 1, visible, looping)
        if self.draw(st.booleans()):
            step["else"], other = self.block(depth + 1, visible, looping)
            inner = inner + other
        return self._common(step), [step["id"], *inner]

    def _parallel(self, depth: int, visible: list[str], looping: bool) -> tuple[Json, list[str]]:
        step: Json = {"id": self.id("p"), "type": "parallel", "branches": {}}
        seen = [step["id"]]
        for name in ("a", "b", "c")[: self.draw(st.integers(1, 3))]:
            step["branches"][name], inner = self.block(depth + 1, visible, looping)
            seen += inner
        if self.draw(st.integers(0, 3)) == 0:
            step["continue_on_error"] = True
        if self.failing and self.draw(st.booleans()):
            quorum = {"quorum": self.draw(st.integers(1, len(step["branches"])))}
            step["mode"] = self.draw(st.sampled_from(["fail_fast", "first_success", quorum]))
        return self._common(step), seen

    def _loop(self, depth: int, visible: list[str], looping: bool) -> tuple[Json, list[str]]:
        step: Json = {"id": self.id("l"), "type": "loop", "over": "workflow_input.items"}
        step["concurrency"] = self.draw(st.integers(1, 3))
        step["steps"], _ = self.block(depth + 1, visible, looping=True)
        if self.failing and self.draw(st.booleans()):
            step["tolerate"] = self.draw(st.sampled_from([1, "50%", "100%"]))
        return self._common(step), [step["id"]]

    def _until(self, depth: int, visible: list[str], looping: bool) -> tuple[Json, list[str]]:
        step: Json = {"id": self.id("u"), "type": "loop", "until": "loop.index >= 1", "max_iterations": 3}
        step["steps"], _ = self.block(depth + 1, visible, looping=True)
        return self._common(step), [step["id"]]

    def _goes_back(self, step: Json, before: list[Json], *, graph: bool) -> None:
        """Let a step return to an earlier one of its block on which it depends, for one or two rounds."""
        upstream = step["depends_on"] if graph else [one["id"] for one in before]
        if upstream:
            target = self.draw(st.sampled_from(upstream))
            step["on_error"] = {"errors": ["refused"], "strategy": "goto", "goto": target}
            self.returns[step["id"]] = self.draw(st.integers(1, 2))

    def block(self, depth: int, visible: list[str], looping: bool) -> tuple[list[Json], list[str]]:
        steps: list[Json] = []
        seen: list[str] = []
        after: dict[str, list[str]] = {}
        graph = self.draw(st.integers(0, 3)) == 0
        for _ in range(self.draw(st.integers(1, 3))):
            before: list[str] = []
            reach = list(seen)
            if graph:
                before = [step["id"] for step in steps if self.draw(st.booleans())]
                reach = [inner for name in before for inner in after[name]]
            step, new = self.step(depth, visible + reach, looping)
            if graph:
                step["depends_on"] = before
                step["join"] = self.draw(st.sampled_from(["any_completed", "all_completed", "all_settled"]))
                after[step["id"]] = [*dict.fromkeys([*reach, *new])]
            if step["type"] == "tool_call" and steps and self.draw(st.integers(0, 3)) == 0:
                self._goes_back(step, steps, graph=graph)
            steps.append(step)
            seen += new
        return steps, seen


@st.composite
def definitions(draw: Any, *, failing: bool = False) -> Json:
    """`{"steps", "refusing": ids of tools that always fail, "flaky": attempts that fail first, by id}`."""
    writer = _Writer(draw, failing=failing)
    steps, _ = writer.block(0, [], looping=False)
    return {"steps": steps, "refusing": writer.refusing, "flaky": writer.flaky, "returns": writer.returns}


INPUT = {"yes": True, "no": False, "items": ["x", "y", "z"]}
