"""Random definitions: every construct that the interpreter performs, nested in every other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

Json = Any
INPUT = {"yes": True, "no": False, "items": ["x", "y", "z"]}
PASSED = {name: f"{{{{workflow_input.{name}}}}}" for name in INPUT}
"""The inputs of every sub-workflow: its own texts then read the same fields."""
SHORT = {"initial_delay": 0.0005, "jitter": "none"}


@dataclass(frozen=True)
class Sight:
    """What a text may use at a place, and what a step there may do without making the result a matter of order."""

    depth: int = 0
    visible: tuple[str, ...] = ()
    loops: int = 0
    previous: bool = False
    named: bool = False
    alone: bool = True
    """Whether nothing runs beside it, so that a step may end the run."""
    raced: bool = False
    """Whether it lies in a branch of a race; no step ends the run from there."""

    def inside(self, **changes: Any) -> Sight:
        return replace(self, depth=self.depth + 1, **changes)


class _Writer:
    """Draws one definition."""

    def __init__(self, draw: Any, *, failing: bool, racing: bool) -> None:
        self.draw = draw
        self.failing = failing
        self.racing = racing
        self.count = 0
        self.budget = 14
        self.found: dict[str, Json] = {
            "refusing": [],
            "flaky": {},
            "returns": {},
            "breaks": {},
            "children": {},
            "racing": racing,
            "loose": False,  # whether it is a matter of order how far other steps come before a round is left
        }

    def id(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def rarely(self, one_in: int = 4) -> bool:
        return bool(self.draw(st.integers(0, one_in - 1)) == one_in - 1)

    def arguments(self, sight: Sight) -> Json:
        found: dict[str, Json] = {"n": self.draw(st.integers(0, 3))}
        if sight.visible:
            source = self.draw(st.sampled_from(sight.visible))
            found["from"] = f"{{{{ step.{source} ?? 'none' }}}}"
            if not self.racing and self.rarely():
                found["said"] = f"{{{{ steps.{source}?.status ?? 'none' }}}} {{{{ steps.{source}?.attempts ?? 0 }}}}"
        if sight.loops:
            found["item"] = "{{loop_item}}"
            found["index"] = "{{loop.index}}"
        if sight.loops > 1:
            found["outer"] = "{{loop.parent.index}}{{loop.parent.item}}"
        if sight.previous:
            found["before"] = "{{ loop.previous ?? 'none' }}"
        if sight.named:
            found["name"] = "{{one}}"
        return found

    def step(self, sight: Sight) -> tuple[Json, list[str]]:
        """A step, and the ids that are visible after it."""
        self.budget -= 1
        kinds = ["tool", "tool", "tool", "set", "approval", "wait", "agent"]
        if sight.depth < 3 and self.budget > 0:
            kinds += ["condition", "loop", "parallel", "until", "sub"]
        if sight.alone or (self.racing and not sight.raced):
            kinds += ["end"]
        kind = self.draw(st.sampled_from(kinds))
        if kind == "end" and not self.rarely(2):
            kind = "tool"
        step, seen = getattr(self, f"_{kind}")(sight)
        if self.rarely(6):
            step["condition"] = self.draw(st.sampled_from(["workflow_input.yes", "workflow_input.no"]))
        if self.failing and self.rarely(12):
            step["condition"] = "workflow_input.absent > 1"
            if self.draw(st.booleans()):
                step["on_error"] = {"strategy": "continue", "default": {"gone": "{{error.kind}}"}}
        return step, seen

    def _tool(self, sight: Sight) -> tuple[Json, list[str]]:
        step = {
            "id": self.id("t"),
            "type": "tool_call",
            "tool": "t",
            "arguments": self.arguments(sight),
            "retry": SHORT,
        }
        if self.rarely(16):
            step["arguments"]["big"] = True
        if self.rarely():
            self.found["flaky"][step["id"]] = self.draw(st.integers(1, 2))
        elif self.failing and self.rarely():
            self.found["refusing"].append(step["id"])
            if self.draw(st.booleans()):
                step["on_error"] = {"strategy": "continue", "default": {"gone": True}}
        elif self.rarely(5):
            self._mended(sight, step)
        elif self.failing and sight.alone and self.rarely(8):
            self.found["refusing"].append(step["id"])
            step["on_error"] = "compensate"
        if self.rarely(6):
            step["compensate"] = {"steps": [self._undo(sight, step["id"])]}
        if self.racing and self.rarely():
            step["idempotent"] = False
            if self.rarely(2):
                step["verify"] = self._verify(sight)
        return step, [step["id"]]

    def _agent(self, sight: Sight) -> tuple[Json, list[str]]:
        """A model that uses tools for some turns; how many follows from its id (`worlds.Script`)."""
        said = " ".join(text for text in self.arguments(sight).values() if isinstance(text, str))
        step: Json = {"id": self.id("a"), "type": "llm_call", "prompt": f"what of {said}?", "retry": SHORT}
        step["tools"] = ["t", "once"] if self.racing else ["t"]
        if self.rarely():
            self.found["flaky"][step["id"]] = self.draw(st.integers(1, 2))
        elif self.rarely(8):
            step["max_turns"] = 2
            step["on_error"] = self.draw(st.sampled_from(["suspend", {"strategy": "continue", "default": {}}]))
        elif self.failing and self.rarely():
            self.found["refusing"].append(step["id"])
        elif self.rarely(6):
            self._mended(sight, step)
        return step, [step["id"]]

    def _verify(self, sight: Sight) -> Json:
        look_up: Json = {"id": self.id("v"), "type": "tool_call", "tool": "t", "retry": SHORT}
        look_up["arguments"] = {**self.arguments(sight), "kind": "{{error.kind}}"}
        if self.rarely():
            self.found["refusing"].append(look_up["id"])
        took = self.draw(
            st.sampled_from(["workflow_input.yes", "workflow_input.no", f"has(step.{look_up['id']}.path)"])
        )
        return {"steps": [look_up], "took_effect": took}

    def _undo(self, sight: Sight, undone: str) -> Json:
        undo: Json = {"id": self.id("d"), "type": "tool_call", "tool": "t", "retry": SHORT}
        undo["arguments"] = {**self.arguments(sight), "own": f"{{{{ step.{undone} }}}}", "why": "{{error.kind}}"}
        if self.failing and self.rarely():
            self.found["refusing"].append(undo["id"])
        return undo

    def _mended(self, sight: Sight, step: Json) -> None:
        """A step that fails for good, and what mends it: the run goes on to the same result whatever the order."""
        self.found["refusing"].append(step["id"])
        if self.draw(st.booleans()):
            step["on_error"] = self.draw(st.sampled_from(["suspend", ["suspend"]]))
            return
        steps = []
        for _ in range(self.draw(st.integers(1, 2))):
            kind = self.draw(st.sampled_from(["_tool", "_set", "_approval"]))
            inner, _ = getattr(self, kind)(replace(sight, alone=False))
            inner.pop("idempotent", None)
            inner.pop("verify", None)
            steps.append(inner)
        steps[0].setdefault("condition", "error.kind == 'invalid_request'")
        if steps[-1]["id"] in self.found["refusing"] and "on_error" not in steps[-1]:
            self.found["refusing"].remove(steps[-1]["id"])
        step["on_error"] = [{"errors": ["timeout"], "strategy": "fail"}, {"strategy": "fallback", "steps": steps}]

    def _set(self, sight: Sight) -> tuple[Json, list[str]]:
        step = {"id": self.id("s"), "type": "set", "values": self.arguments(sight)}
        return step, [step["id"]]

    def _approval(self, sight: Sight) -> tuple[Json, list[str]]:
        step = {"id": self.id("g"), "type": "approval", "title": "go?", "show": self.arguments(sight)}
        return step, [step["id"]]

    def _wait(self, sight: Sight) -> tuple[Json, list[str]]:
        step = {"id": self.id("w"), "type": "wait", "for": self.draw(st.sampled_from(["1ms", "1ms", "1ms", "2h"]))}
        return step, [step["id"]]

    def _end(self, sight: Sight) -> tuple[Json, list[str]]:
        step = {"id": self.id("e"), "type": "end", "output": self.arguments(sight), "message": "enough"}
        if self.failing:
            step["status"] = self.draw(st.sampled_from(["completed", "failed"]))
        return step, [step["id"]]

    def _again(self, step: Json) -> Json:
        """Let a container be tried again as a whole, or bound it."""
        if self.rarely():
            step["retry"] = SHORT | {"max_attempts": self.draw(st.integers(2, 3))}
            if self.draw(st.booleans()):
                step["retry"]["on"] = ["invalid_request", "overloaded", "child_failed"]
        if self.rarely():
            step["timeout"] = "0.004" if self.racing and self.draw(st.booleans()) else "60s"
        return step

    def _inner(self, sight: Sight, step: Json) -> tuple[list[Json], list[str]]:
        """A block of a container; where that is tried again, a step in it may break its first round.

        Beside other branches, which waits that withdraws is a matter of order.
        """
        steps, seen = self.block(sight)
        if "retry" in step and (sight.alone or self.failing) and self.rarely(2):
            tools = [one["id"] for one in steps if one["type"] == "tool_call" and self._is_plain(one)]
            if tools:
                self.found["breaks"][tools[0]] = 1
                next(one for one in steps if one["id"] == tools[0])["retry"] = {"max_attempts": 1}
        return steps, seen

    def _is_plain(self, step: Json) -> bool:
        return step["id"] not in self.found["flaky"] and "on_error" not in step

    def _condition(self, sight: Sight) -> tuple[Json, list[str]]:
        step: Json = self._again({"id": self.id("c"), "type": "condition"})
        step["when"] = self.draw(st.sampled_from(["workflow_input.yes", "workflow_input.no", "1 < 2"]))
        step["then"], inner = self._inner(sight.inside(), step)
        if self.draw(st.booleans()):
            step["else"], other = self._inner(sight.inside(), step)
            inner = inner + other
        return step, [step["id"], *inner]

    def _parallel(self, sight: Sight) -> tuple[Json, list[str]]:
        step: Json = self._again({"id": self.id("p"), "type": "parallel", "branches": {}})
        seen = [step["id"]]
        names = ("a", "b", "c")[: self.draw(st.integers(1, 3))]
        if self.failing and self.draw(st.booleans()):
            quorum = {"quorum": self.draw(st.integers(1, len(names)))}
            step["mode"] = self.draw(st.sampled_from(["fail_fast", "first_success", quorum]))
        for name in names:
            inside = sight.inside(alone=False, raced=sight.raced or "mode" in step)
            step["branches"][name], inner = self._inner(inside, step)
            seen += inner
        if self.rarely():
            step["continue_on_error"] = True
        if self.rarely():
            step["concurrency"] = self.draw(st.integers(1, 2))
        return step, seen

    def _loop(self, sight: Sight) -> tuple[Json, list[str]]:
        step: Json = self._again({"id": self.id("l"), "type": "loop", "over": "workflow_input.items"})
        width = step["concurrency"] = self.draw(st.integers(1, 3))
        named = sight.named or self.rarely(2)
        if named and not sight.named:
            step["as"] = "one"
        inner = sight.inside(loops=sight.loops + 1, previous=width == 1, named=named, alone=sight.alone and width == 1)
        step["steps"], _ = self._inner(inner, step)
        if self.failing and self.draw(st.booleans()):
            step["tolerate"] = self.draw(st.sampled_from([1, "50%", "100%"]))
        if self.rarely():
            step["output"] = {"at": "{{loop.index}}", "of": "{{loop.length}}"}
        return step, [step["id"]]

    def _until(self, sight: Sight) -> tuple[Json, list[str]]:
        step: Json = self._again({"id": self.id("u"), "type": "loop", "until": "loop.index >= 1", "max_iterations": 3})
        step["steps"], _ = self._inner(sight.inside(loops=sight.loops + 1, previous=True), step)
        return step, [step["id"]]

    def _sub(self, sight: Sight) -> tuple[Json, list[str]]:
        step: Json = self._again({"id": self.id("w"), "type": "sub_workflow", "inputs": PASSED})
        children = self.found["children"]
        if children and self.rarely(3):
            step["workflow"] = self.draw(st.sampled_from(sorted(children)))
        else:
            step["workflow"] = name = self.id("child")
            steps, _ = self._inner(Sight(depth=sight.depth + 1), step)
            children[name] = {"steps": steps, "parts": self._output(steps)}
        return step, [step["id"]]

    def _output(self, steps: list[Json]) -> Json:
        if self.draw(st.booleans()):
            return {}
        return {"output": {one["id"]: f"{{{{ step.{one['id']} ?? 'none' }}}}" for one in steps}}

    def _goes_back(self, step: Json, before: list[Json], *, graph: bool) -> None:
        """Let a step return to an earlier one of its block on which it depends, for one or two rounds."""
        upstream = step["depends_on"] if graph else [one["id"] for one in before]
        if upstream and step["id"] not in self.found["refusing"]:
            target = self.draw(st.sampled_from(upstream))
            step["on_error"] = {"errors": ["refused"], "strategy": "goto", "goto": target}
            self.found["returns"][step["id"]] = self.draw(st.integers(1, 2))
            self.found["loose"] |= graph

    def block(self, sight: Sight) -> tuple[list[Json], list[str]]:
        steps: list[Json] = []
        seen: list[str] = []
        after: dict[str, list[str]] = {}
        graph = self.rarely()
        for _ in range(self.draw(st.integers(1, 3))):
            before: list[str] = []
            reach = list(seen)
            if graph:
                before = [step["id"] for step in steps if self.draw(st.booleans())]
                reach = [inner for name in before for inner in after[name]]
            here = replace(sight, visible=(*sight.visible, *reach), alone=sight.alone and not graph)
            step, new = self.step(here)
            if graph:
                step["depends_on"] = before
                step["join"] = self.draw(st.sampled_from(["any_completed", "all_completed", "all_settled"]))
                after[step["id"]] = [*dict.fromkeys([*reach, *new])]
            if step["type"] == "tool_call" and steps and "idempotent" not in step and self.rarely():
                self._goes_back(step, steps, graph=graph)
            steps.append(step)
            seen += new
        return steps, seen

    def whole(self) -> Json:
        steps, _ = self.block(Sight())
        parts = self._output(steps)
        if self.failing and self.rarely(3):
            parts["on_failure"] = {"steps": [self.step(Sight(depth=3))[0] for _ in range(self.draw(st.integers(1, 2)))]}
        return {"steps": steps, "parts": parts, **self.found}


@st.composite
def definitions(draw: Any, *, failing: bool = False, racing: bool = False) -> Json:
    """A definition with what its tools do.

    `failing` steps fail for good; `racing` adds what makes the result a matter of order: ends beside other branches,
    short timeouts, calls that may not be repeated.
    """
    return _Writer(draw, failing=failing, racing=racing).whole()
