"""The explicit form of an input, `{source: ..., path: ..., default: ...}`, as the template that means the same."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from stepwell.definition.positions import Json, Node, plain
from stepwell.definition.suggest import close, noun, shown

if TYPE_CHECKING:
    from stepwell.definition.report import Report

_SOURCES = {
    "workflow_input": "workflow_input", "workflowInput": "workflow_input",
    "previous_step": "previous_step", "previousStep": "previous_step",
    "static": "static", "loop_item": "loop_item", "loopItem": "loop_item",
}  # fmt: skip
_WORDS = {"source": "source", "step": "step", "step_id": "step", "stepId": "step", "path": "path", "value": "value",
          "default": "default"}  # fmt: skip
_NAME = re.compile(r"[^\W\d]\w*")
_INDEX = re.compile(r"[0-9]+")
_BRACKET = re.compile(r"\[(?:([0-9]+)|\"([^\"]*)\"|'([^']*)')\]")
_STEP_NAME = re.compile(r"\w+(?:-\w+)*")
_BRACES = re.compile(r"\\*\{\{")


def canonical_inputs(node: Node, before: list[Node], report: Report) -> Node:
    """`inputs` with every explicit form rewritten; `before` are the steps of the block that are written before."""
    if not isinstance(node.value, dict):
        return node
    return node.holding({name: _input(inner, before, report) for name, inner in node.mapping.items()})


def _input(node: Node, before: list[Node], report: Report) -> Node:
    source = node.mapping.get("source")
    if source is None or not isinstance(source.value, str) or not node.mapping.keys() <= _WORDS.keys():
        return node
    word = _SOURCES.get(source.value)
    if word is None:
        if near := close(source.value, ("workflow_input", "previous_step", "static", "loop_item")):
            report.at(source, "value", f"there is no source {shown(source.value)}", f"did you mean '{near}'?")
        return node
    parts = {_WORDS[key]: inner for key, inner in node.mapping.items()}
    if word == "static":
        return _static(node, parts, report)
    root = _previous(node, parts, before, report) if word == "previous_step" else word
    return node if root is None else _template(node, root, parts, report)


def _static(node: Node, parts: dict[str, Node], report: Report) -> Node:
    if "value" not in parts:
        report.at(node, "required", "`value` is missing: a static input has one", "write value: ...")
        return node.holding(None)
    return _literal(parts["value"])


def _literal(node: Node) -> Node:
    """A value in which no text is a template."""
    value = node.value
    if isinstance(value, dict):
        return node.holding({key: _literal(inner) for key, inner in value.items()})
    if isinstance(value, list):
        return node.holding([_literal(inner) for inner in value])
    if isinstance(value, str) and "{{" in value:
        return node.holding(_BRACES.sub(lambda braces: f"{{{{string({json.dumps(braces[0])})}}}}", value))
    return node


def _previous(node: Node, parts: dict[str, Node], before: list[Node], report: Report) -> str | None:
    step = parts.get("step")
    name = step.value if step is not None else _only_before(before)
    if isinstance(name, str) and _STEP_NAME.fullmatch(name):
        return f"step.{name}"
    if step is not None:
        report.at(step, "id", f"`step` is the id of a step, this is {noun(name)}", "write step: its-id")
    else:
        report.at(node, "required", "`step` is missing: there is no step before this one", "write step: its-id")
    return None


def _only_before(before: list[Node]) -> Json:
    found = before[-1].mapping.get("id") if before else None
    return found.value if found is not None else None


def _template(node: Node, root: str, parts: dict[str, Node], report: Report) -> Node:
    path = parts.get("path")
    segments = _segments(path.value) if path is not None else []
    if segments is None:
        assert path is not None
        report.at(path, "value", f"{shown(path.value)} is not a path", "write path: field.0.name")
        return node.holding(None)
    written = root + "".join(_segment(part) for part in segments)
    if "default" in parts and "." in written:
        default = json.dumps(plain(parts["default"]), ensure_ascii=False)
        written = f"has({written}) ? {written} : {default}"
    return node.holding(f"{{{{ {written} }}}}")


def _segments(path: Json) -> list[str] | None:
    """The keys of a path written as "a.b[0].c", "$.a" or a list; None for anything else."""
    if isinstance(path, list):
        keys = [inner.value for inner in path]
        return [str(key) for key in keys] if all(type(key) in {str, int} for key in keys) else None
    if type(path) is int:
        return [str(path)]
    if not isinstance(path, str):
        return None
    dotted = _BRACKET.sub(lambda found: f".{next(part for part in found.groups() if part is not None)}", path)
    keys = dotted.removeprefix("$").removeprefix(".").split(".")
    return [] if keys == [""] else keys if all(keys) else None


def _segment(key: str) -> str:
    if _NAME.fullmatch(key) or _INDEX.fullmatch(key):
        return f".{key}"
    return f"[{json.dumps(key, ensure_ascii=False)}]"
