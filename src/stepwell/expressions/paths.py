"""
Closures that walk the caller's own objects by constant keys, without converting or copying anything.

Plain dicts and lists are subscripted directly; only when that fails is the path walked again with care, to say exactly
what is missing. A root's value may be any Mapping, also one that looks in an outer frame: it is only ever subscripted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from .errors import Absent
from .values import Frame, peek, step_into

if TYPE_CHECKING:
    from .nodes import Get, Var

Closure: TypeAlias = Callable[[Mapping[str, Any], Frame], Any]


def root_path(var: Var, steps: tuple[Get, ...]) -> Closure:
    """A path from a root by constant keys: the fast path of the language."""
    root = var.name
    keys = tuple(step.key for step in steps)

    def run(context: Mapping[str, Any], _frame: Frame) -> Any:
        try:
            value = context[root]
            for key in keys:
                kind = type(value)
                value = value[key] if kind is dict or kind is list else peek(value, key)
        except (LookupError, TypeError):
            return _careful_path(context, var, steps)
        return value

    return run


def _careful_path(context: Mapping[str, Any], var: Var, steps: tuple[Get, ...]) -> Any:
    """The same walk with exact errors: what is missing, where, and what there is instead."""
    try:
        value = context[var.name]
    except KeyError:
        raise Absent(context, var.name, var.pos, "context") from None
    for step in steps:
        try:
            value = step_into(value, step.key, step.pos, dotted=step.dotted)
        except Absent as absent:
            if step is steps[0]:
                absent.root = var.name
            raise
    return value


def local_path(base: Closure, steps: tuple[Get, ...]) -> Closure:
    """The same from a value that was computed."""
    keys = tuple(step.key for step in steps)

    def run(context: Mapping[str, Any], frame: Frame) -> Any:
        start = value = base(context, frame)
        try:
            for key in keys:
                kind = type(value)
                value = value[key] if kind is dict or kind is list else peek(value, key)
        except (LookupError, TypeError):
            value = start
            for step in steps:
                value = step_into(value, step.key, step.pos, dotted=step.dotted)
        return value

    return run


def optional_field(base: Closure, node: Get, *, absent: bool = False) -> Closure:
    """`base?.key`: null where the base is null or has no such field; with `absent`, also where there is no base."""
    key, pos, dotted = node.key, node.pos, node.dotted

    def run(context: Mapping[str, Any], frame: Frame) -> Any:
        try:
            value = base(context, frame)
        except Absent:
            if absent:
                return None
            raise
        if value is None:
            return None
        try:
            return step_into(value, key, pos, dotted=dotted)
        except Absent:
            return None

    return run
