"""Texts with `{{ }}`: which braces are references, and how a text is rendered.

`{{` opens a reference only if a root or a known function follows; everything else is text, byte for byte. What is
inserted is never looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from .compile import Closure, build, passes_through
from .errors import Absent, ExpressionError, Fault
from .functions import FUNCTIONS
from .limits import FUEL, REFERENCES, TEMPLATE_CHARS
from .nodes import Node
from .notes import Note, notes_of
from .parser import ROOTS, parse
from .program import too_deep
from .refs import Ref, references
from .values import as_text, kind_of, settled

Json: TypeAlias = Any

_SITE = re.compile(r"\{{2,}")
_OPENING = re.compile(r"[\s(!\-]*([^\W\d]\w*)(\s*\()?")
_CALLABLE = frozenset(FUNCTIONS) | {"has", "default"}


class Template:
    """A text with references, ready to be rendered. Made by `compile_template`."""

    __slots__ = ("_foreign", "_frame", "_parts", "_settles", "names", "nodes", "source")

    def __init__(self, source: str, scanned: _Scan, names: Collection[str]) -> None:
        self.source = source
        self.names = frozenset(names)
        self.nodes: tuple[Node, ...] = tuple(scanned.nodes)
        self._foreign = tuple(scanned.foreign)
        self._frame = (FUEL, *([None] * scanned.slots))
        self._parts: tuple[str | Closure, ...] = tuple(scanned.whole() or scanned.parts)
        self._settles = self.is_whole and not passes_through(self.nodes[0])

    def __repr__(self) -> str:
        return f"Template({self.source!r})"

    def __reduce__(self) -> tuple[Any, tuple[str, frozenset[str]]]:
        return _compiled, (self.source, self.names)

    @property
    def is_constant(self) -> bool:
        """Whether there is no reference in it."""
        return not self.nodes

    @property
    def is_whole(self) -> bool:
        """Whether it is one reference with white space only around it, and so keeps the value's type."""
        return len(self._parts) == 1 and len(self.nodes) == 1

    def render(self, context: Mapping[str, Json]) -> Json:
        """The text with its references replaced, or for a whole-value template the value itself.

        Raises ExpressionError (missing, type, eval, limit).
        """
        parts = self._parts
        frame: list[Any] = list(self._frame)
        try:
            if len(parts) == 1:
                part = parts[0]
                if isinstance(part, str):
                    return part
                value = part(context, frame)
                if len(self.nodes) == 1:
                    return settled(value) if self._settles else value
            return _joined(parts, context, frame)
        except (Fault, Absent) as problem:
            raise problem.within(self.source) from None
        except RecursionError:
            raise too_deep(self.source) from None

    def refs(self) -> tuple[Ref, ...]:
        """Every path the text can read, each once."""
        found: dict[tuple[Any, ...], Ref] = {}
        for node in self.nodes:
            for ref in references(node):
                found.setdefault((ref.root, ref.segs, ref.guarded), ref)
        return tuple(found.values())

    def notes(self) -> tuple[Note, ...]:
        """What looks like a reference but is kept as text. The caller judges whether that is an error."""
        return notes_of(self.source, self._foreign, self.names)


def compile_template(text: str, *, names: Collection[str] = frozenset()) -> Template:
    """Compile a text. Raises ExpressionError (syntax, step, limit) when a reference in it is wrong."""
    if not isinstance(text, str):
        raise ExpressionError("type", f"a template is a string, got {kind_of(text)}")
    try:
        scanned = _Scan(text, names)
        scanned.run()
        return Template(text, scanned, names)
    except Fault as fault:
        raise fault.within(text) from None
    except RecursionError:
        raise too_deep(text) from None


def _compiled(source: str, names: frozenset[str]) -> Template:
    return compile_template(source, names=names)


def _joined(parts: tuple[str | Closure, ...], context: Mapping[str, Json], frame: list[Any]) -> str:
    room = TEMPLATE_CHARS
    pieces = []
    for part in parts:
        piece = part if isinstance(part, str) else part(context, frame)
        if type(piece) is not str:
            piece = as_text(piece)
        room -= len(piece)
        if room < 0:
            raise Fault("limit", f"the text grows over {TEMPLATE_CHARS} characters")
        pieces.append(piece)
    return "".join(pieces)


class _Scan:
    """One pass over a text: literal pieces and closures in order, and the places of braces that are text."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        self.text = text
        self.names = names
        self.parts: list[str | Closure] = []
        self.nodes: list[Node] = []
        self.foreign: list[int] = []
        self.slots = 0
        self._literal: list[str] = []

    def run(self) -> None:
        text = self.text
        if len(text) > TEMPLATE_CHARS:
            raise Fault("limit", f"the text is longer than {TEMPLATE_CHARS} characters", TEMPLATE_CHARS)
        done = position = 0
        while (site := _SITE.search(text, position)) is not None:
            slashes = _slashes(text, site.start(), done)
            self._literal.append(text[done : site.start() - slashes] + "\\" * (slashes // 2))
            if slashes % 2:
                self._literal.append("{{")
                done = position = site.start() + 2
                continue
            live = self._opens_reference(site.end())
            run = site.end() - site.start() - (2 if live else 0)
            self._literal.append("{" * run)
            if run >= 2:
                self.foreign.append(site.start())
            done = position = self._reference(site.end()) if live else site.end()
        self._literal.append(text[done:])
        self._flush()

    def whole(self) -> list[str | Closure]:
        """The single closure of a whole-value template, or nothing."""
        closures = [part for part in self.parts if not isinstance(part, str)]
        literals = [part for part in self.parts if isinstance(part, str)]
        return list(closures) if len(closures) == 1 and not any(part.strip() for part in literals) else []

    def _opens_reference(self, position: int) -> bool:
        found = _OPENING.match(self.text, position)
        if found is None:
            return False
        name = found[1]
        return name in ROOTS or name in self.names or (found[2] is not None and name in _CALLABLE)

    def _reference(self, position: int) -> int:
        if len(self.nodes) >= REFERENCES:
            raise Fault("limit", f"a text of more than {REFERENCES} references", position)
        node, slots, end = parse(self.text, position, names=self.names, live=True)
        self._flush()
        self.nodes.append(node)
        self.parts.append(build(node))
        self.slots = max(self.slots, slots)
        return end

    def _flush(self) -> None:
        text = "".join(self._literal)
        self._literal.clear()
        if text or not (self.parts or self.nodes):
            self.parts.append(text)


def _slashes(text: str, end: int, floor: int) -> int:
    start = end
    while start > floor and text[start - 1] == "\\":
        start -= 1
    return end - start
