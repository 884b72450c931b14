"""Nested arguments whose texts are templates at any depth; what is constant is shared, not rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from .errors import ExpressionError
from .limits import RESULT_VALUES, TREE_NESTING
from .template import SecretName, Template, compile_template
from .values import kind_of

if TYPE_CHECKING:
    from .refs import Ref

Json: TypeAlias = Any
Path: TypeAlias = tuple[str | int, ...]
_Render: TypeAlias = Callable[[Mapping[str, Json]], Json]


class TemplateTree:
    """A JSON value with templates in it. Made by `compile_tree`."""

    __slots__ = ("_render", "_templates", "_value")

    def __init__(self, value: Json, render: _Render | None, templates: tuple[tuple[Path, Template], ...]) -> None:
        self._value = value
        self._render = render
        self._templates = templates

    @property
    def is_constant(self) -> bool:
        """Whether no text in it has a reference."""
        return self._render is None

    def render(self, context: Mapping[str, Json]) -> Json:
        """
        The value with every text rendered; keys are as they were written, constant parts are the same objects.

        Raises ExpressionError of the first text that fails.
        """
        return self._value if self._render is None else self._render(context)

    def templates(self) -> tuple[tuple[Path, Template], ...]:
        """Every text that has references or braces in it, with its path."""
        return self._templates

    @property
    def has_secrets(self) -> bool:
        """Whether the value of a secret belongs anywhere in it."""
        return any(template.has_secrets for _, template in self._templates)

    def secrets(self, context: Mapping[str, Json]) -> tuple[tuple[Path, tuple[str | SecretName, ...]], ...]:
        """Where texts lie in which the values of secrets belong, and what those texts are joined from."""
        return tuple((path, template.pieces(context)) for path, template in self._templates if template.has_secrets)

    def refs(self) -> tuple[tuple[Path, Ref], ...]:
        """Every reference, with the path of the argument it stands in."""
        return tuple((path, ref) for path, template in self._templates for ref in template.refs())


def compile_tree(value: Json, *, names: Collection[str] = frozenset()) -> TemplateTree:
    """
    Compile arguments, which nest at most 32 deep.

    Raises ExpressionError: of a text that is wrong, or limit when the value is too deep or too large.
    """
    builder = _Builder(frozenset(names))
    constant, render = builder.build(value, (), 0)
    return TemplateTree(constant, render, tuple(builder.templates))


class _Builder:
    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.templates: list[tuple[Path, Template]] = []
        self.room = RESULT_VALUES

    def build(self, value: Json, path: Path, depth: int) -> tuple[Json, _Render | None]:
        """The constant form of a value and None, or None and what renders it."""
        self.room -= 1
        if self.room < 0:
            raise ExpressionError("limit", f"the arguments have more than {RESULT_VALUES} values")
        kind = kind_of(value)
        if kind == "string":
            return self._text(value, path)
        if kind not in ("array", "object"):
            return value, None
        if depth >= TREE_NESTING:
            raise ExpressionError("limit", f"the arguments nest deeper than {TREE_NESTING}")
        items = list(value) if kind == "array" else list(value.values())
        keys = list(range(len(items))) if kind == "array" else list(value)
        built = [self.build(item, (*path, key), depth + 1) for key, item in zip(keys, items, strict=True)]
        return _assembled(value, keys, items, built)

    def _text(self, text: str, path: Path) -> tuple[Json, _Render | None]:
        if "{{" not in text:
            return text, None
        template = compile_template(text, names=self.names)
        self.templates.append((path, template))
        if not template.is_constant:
            return None, template.render
        literal = template.render({})
        return (text if literal == text else literal), None


def _assembled(
    value: Json, keys: list[Any], items: list[Json], built: list[tuple[Json, _Render | None]]
) -> tuple[Json, _Render | None]:
    is_array = kind_of(value) == "array"
    if all(render is None for _, render in built):
        if all(constant is item for (constant, _), item in zip(built, items, strict=True)):
            return value, None
        constants = [constant for constant, _ in built]
        return (constants if is_array else dict(zip(keys, constants, strict=True))), None
    if is_array:
        return None, lambda context: list(_rendered(built, context))
    return None, lambda context: dict(zip(keys, _rendered(built, context), strict=True))


def _rendered(built: list[tuple[Json, _Render | None]], context: Mapping[str, Json]) -> Iterator[Json]:
    for constant, render in built:
        yield constant if render is None else render(context)
