"""
The one place that knows the words of the two source designs: it rewrites nodes in canonical words.

The law of the file: only what a spelling can mean is translated, never what people wrote as data (arguments, schemas,
values); every node keeps the place where it was written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepwell.definition.mappings import canonical_inputs
from stepwell.definition.suggest import noun

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepwell.definition.positions import Json, Node
    from stepwell.definition.report import Report
    from stepwell.definition.step import Kinds

_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_WORKFLOW_WORDS = {
    "workflow_id": "workflow", "id": "workflow", "global_timeout": "timeout", "default_error_strategy": "on_error",
    "error_strategy": "on_error", "input_schema": "input", "retry_policy": "retry", "default_retry_policy": "retry",
    "default_retry": "retry", "default_timeout": "step_timeout",
}  # fmt: skip
_DEFAULTS_WORDS = {"error_strategy": "on_error", "retry_policy": "retry"}
_STEP_WORDS = {
    "step_id": "id", "step_type": "type", "then_steps": "then", "else_steps": "else", "input_mapping": "inputs",
    "retry_policy": "retry", "error_strategy": "on_error", "recipe_id": "recipe", "tool_name": "tool",
    "workflow_id": "workflow",
}  # fmt: skip
_RETRY_WORDS = {"backoff_multiplier": "multiplier", "retryable_errors": "on", "max_retry_attempts": "max_attempts"}
_TYPES = {"human_approval": "approval", "subworkflow": "sub_workflow"}
_DURATIONS = ("timeout", "initial_delay", "max_delay", "max_elapsed", "expires_in", "remind_every", "global_timeout")
_BLOCK_WORDS = ("steps", "then", "else")
_SECOND_RETRY: dict[str, Json] = {
    "max_attempts": 4, "initial_delay": 1, "on": ["timeout", "rate_limit", "connection_error"]
}  # fmt: skip


def canonical(root: Node, kinds: Kinds, report: Report) -> Node:
    """A workflow in canonical words. Problems of the spellings themselves go to the report."""
    return _Translation(kinds, report).workflow(root)


def canonical_recipe(root: Node) -> Node:
    """A recipe in canonical words."""
    if not isinstance(root.value, dict):
        return root
    words = {"recipe_id": "recipe", "id": "recipe", "input_schema": "input"}
    found: dict[str, Node] = {}
    for written, inner in root.mapping.items():
        word = snake(written)
        word = words.get(word, word)
        found[written if word in found or (word != written and word in root.mapping) else word] = inner
    if version := found.get("version"):
        found["version"] = _version(version)
    return root.holding(found)


def snake(word: str) -> str:
    """A camelCase word with underscores; other words stay as they are."""
    return _HUMP.sub(lambda hump: f"_{hump[1].lower()}", word) if word[:1].islower() else word


class _Translation:
    def __init__(self, kinds: Kinds, report: Report) -> None:
        self.kinds = kinds
        self.report = report
        self.second = False

    def workflow(self, root: Node) -> Node:
        if not isinstance(root.value, dict):
            return root
        found = self._renamed(root, _WORKFLOW_WORDS)
        steps = found.get("steps")
        self.second = "workflow_id" in _written(root) or (steps is not None and _names_step_ids(steps))
        if version := found.get("version"):
            found["version"] = _version(version)
        defaults = self._defaults(found, root)
        if defaults is not None:
            found["defaults"] = defaults
        if self.second and "version" not in found:
            found["version"] = root.holding("1.0")
        if steps is not None:
            found["steps"] = self._steps(steps)
        if (on_failure := found.get("on_failure")) and "steps" in on_failure.mapping:
            inner = on_failure.mapping
            found["on_failure"] = on_failure.holding(inner | {"steps": self._steps(inner["steps"])})
        return root.holding(found)

    def _defaults(self, found: dict[str, Node], root: Node) -> Node | None:
        """`defaults`, with what the source designs write beside it, and the second design's own defaults."""
        written = found.get("defaults")
        if written is not None and not isinstance(written.value, dict):
            return written
        inner = self._renamed(written, _DEFAULTS_WORDS) if written else {}
        for outside, inside in (("on_error", "on_error"), ("retry", "retry"), ("step_timeout", "timeout")):
            node = found.pop(outside, None)
            if node is not None and inside in inner:
                self.report.at(node, "conflict", f"`defaults.{inside}` is given as well", "keep one of them", key=True)
            elif node is not None:
                inner[inside] = node
        if "retry" in inner:
            inner["retry"] = self._retry(inner["retry"])
        if "on_error" in inner:
            inner["on_error"] = self._rules(inner["on_error"])
        if self.second:
            inner.setdefault("timeout", root.holding(30))
            inner.setdefault("retry", _node(_SECOND_RETRY, root))
            inner.setdefault("on_error", root.holding("suspend"))
        return (written or root).holding(inner) if inner or written else None

    def _renamed(self, node: Node, words: dict[str, str]) -> dict[str, Node]:
        """The entries of a mapping under canonical words; two spellings of one word are a problem."""
        found: dict[str, Node] = {}
        for written, inner in node.mapping.items():
            word, value = self._word(written, inner, words)
            if word in found:
                message = f"`{written}` says the same as `{word}`, which is given as well"
                self.report.at(inner, "conflict", message, "keep one of them", key=True)
                continue
            found[word] = value
        return found

    def _word(self, written: str, node: Node, words: dict[str, str]) -> tuple[str, Node]:
        word = snake(written)
        if word.endswith("_ms") and word[:-3] in _DURATIONS:
            return words.get(word[:-3], word[:-3]), self._milliseconds(written, node)
        return words.get(word, word), node

    def _milliseconds(self, word: str, node: Node) -> Node:
        value = node.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return node.holding(value // 1000 if isinstance(value, int) and value % 1000 == 0 else value / 1000)
        self.report.at(node, "type", f"`{word}` is a number of milliseconds, this is {noun(value)}", f"{word}: 30000")
        return node.holding(1)

    def _steps(self, node: Node) -> Node:
        """A list of steps; what is no object is reported and left out, so that the rest can be checked."""
        if not any(isinstance(element.value, dict) for element in node.items):
            return node
        steps: list[Node] = []
        for element in node.items:
            if isinstance(element.value, dict):
                steps.append(self._step(element, steps))
            else:
                hint = "write - id: its-id and type: its-type"
                message = f"a step is an object with id and type, this is {noun(element.value)}"
                self.report.at(element, "type", message, hint)
        return node.holding(steps)

    def _step(self, node: Node, before: list[Node]) -> Node:
        found = self._renamed(node, _STEP_WORDS)
        self._type(found)
        word = found["type"].value if "type" in found else ""
        fields = self._fields(word)
        self._unwrap(found, fields)
        if word == "condition" and "condition" in found and not {"when", "cases"} & found.keys():
            found["when"] = found.pop("condition")
        if word == "approval" and "timeout" in found:
            self._move(found, "timeout", "expires_in")
        if word == "approval" and (forbidden := found.get("forbid_self")) and isinstance(forbidden.value, bool):
            self._move(found, "forbid_self", "allow_requester", forbidden.holding(not forbidden.value))
        if "arguments" in fields and "inputs" not in fields and "inputs" in found:
            self._move(found, "inputs", "arguments", canonical_inputs(found["inputs"], before, self.report))
        elif "inputs" in found:
            found["inputs"] = canonical_inputs(found["inputs"], before, self.report)
        self._policies(found)
        self._blocks(found)
        if self.second:
            found.setdefault("depends_on", node.holding([]))
        return node.holding(found)

    def _type(self, found: dict[str, Node]) -> None:
        node = found.get("type")
        if node is None or not isinstance(node.value, str):
            return
        word = snake(node.value)
        word = _TYPES.get(word, word)
        if word != node.value and self.kinds.get(node.value) is None and self.kinds.get(word) is not None:
            found["type"] = node.holding(word)

    def _fields(self, word: Json) -> frozenset[str]:
        kind = self.kinds.get(word) if isinstance(word, str) else None
        if kind is None:
            return frozenset()
        return frozenset(field.alias or name for name, field in kind.model_fields.items())

    def _unwrap(self, found: dict[str, Node], fields: frozenset[str]) -> None:
        """`config: {...}`: its entries belong to the step itself."""
        config = found.get("config")
        if config is None or "config" in fields or not isinstance(config.value, dict):
            return
        del found["config"]
        for word, inner in self._renamed(config, _STEP_WORDS).items():
            if word in found and word == "condition" and "when" not in found:
                found["when"] = inner
            elif word in found:
                message = f"`{word}` is given as well, outside `config`"
                self.report.at(inner, "conflict", message, "keep one of them", key=True)
            else:
                found[word] = inner

    def _move(self, found: dict[str, Node], old: str, new: str, value: Node | None = None) -> None:
        node = found.pop(old)
        if new in found:
            message = f"`{old}` says the same as `{new}`, which is given as well"
            self.report.at(node, "conflict", message, "keep one of them", key=True)
        else:
            found[new] = value or node

    def _policies(self, found: dict[str, Node]) -> None:
        if "retry" in found:
            found["retry"] = self._retry(found["retry"])
        if (fallback := found.pop("fallback_step", None)) is not None:
            self._fallback(found, fallback)
        if (compensation := found.pop("compensation_step", None)) is not None:
            step = compensation.holding({"step": compensation})
            if "compensate" in found:
                self.report.at(compensation, "conflict", "`compensate` is given as well", "keep one of them", key=True)
            else:
                found["compensate"] = step
        if (rules := found.get("on_error")) is not None:
            found["on_error"] = self._rules(rules)
        for word in ("compensate", "verify"):
            if word in found:
                found[word] = self._holding_steps(found[word], {})

    def _fallback(self, found: dict[str, Node], step: Node) -> None:
        rule = found.get("on_error")
        if rule is None or rule.value == "fallback":
            place = rule or step
            found["on_error"] = place.holding({"strategy": place.holding("fallback"), "step": step})
        elif rule.mapping and "step" not in rule.mapping:
            found["on_error"] = rule.holding(rule.mapping | {"step": step})
        else:
            hint = "write error_strategy: fallback"
            word = rule.value if isinstance(rule.value, str) else "a rule"
            self.report.at(step, "conflict", f"`fallback_step` means nothing beside on_error: {word}", hint)

    def _rules(self, node: Node) -> Node:
        if isinstance(node.value, list):
            return node.holding([self._rules(rule) for rule in node.items])
        return self._holding_steps(node, {"error_strategy": "strategy"})

    def _holding_steps(self, node: Node, words: dict[str, str]) -> Node:
        """A part of a step that may hold steps of its own."""
        if not isinstance(node.value, dict):
            return node
        found = self._renamed(node, words)
        return node.holding(found | {"steps": self._steps(found["steps"])} if "steps" in found else found)

    def _retry(self, node: Node) -> Node:
        if not isinstance(node.value, dict):
            return node
        found = self._renamed(node, _RETRY_WORDS)
        retries = found.get("max_retries")
        if retries is not None and type(retries.value) is int and "max_attempts" not in found:
            found["max_attempts"] = found.pop("max_retries").holding(retries.value + 1)
        if self.second:
            for word, value in _SECOND_RETRY.items():
                found.setdefault(word, _node(value, node))
        return node.holding(found)

    def _blocks(self, found: dict[str, Node]) -> None:
        for word in _BLOCK_WORDS:
            if word in found:
                found[word] = self._steps(found[word])
        if "branches" in found:
            found["branches"] = self._each(found["branches"], self._steps)
        if "cases" in found:
            found["cases"] = self._each(found["cases"], self._case)

    def _case(self, node: Node) -> Node:
        if not isinstance(node.value, dict):
            return node
        found = self._renamed(node, {"then": "steps", "condition": "when"})
        return node.holding(found | {"steps": self._steps(found["steps"])} if "steps" in found else found)

    @staticmethod
    def _each(node: Node, change: Callable[[Node], Node]) -> Node:
        if isinstance(node.value, dict):
            return node.holding({key: change(inner) for key, inner in node.mapping.items()})
        return node.holding([change(inner) for inner in node.items]) if isinstance(node.value, list) else node


def _written(root: Node) -> set[str]:
    return {snake(word) for word in root.mapping}


def _names_step_ids(steps: Node) -> bool:
    return any("step_id" in _written(step) for step in steps.items)


def _version(node: Node) -> Node:
    """A version is a label: `1.10` stays "1.10"."""
    if isinstance(node.value, int | float) and not isinstance(node.value, bool) and node.span is not None:
        return node.holding(node.span.written)
    return node


def _node(value: Json, place: Node) -> Node:
    """Plain data as nodes, all at one place."""
    if isinstance(value, dict):
        return place.holding({key: _node(inner, place) for key, inner in value.items()})
    if isinstance(value, list):
        return place.holding([_node(inner, place) for inner in value])
    return place.holding(value)
