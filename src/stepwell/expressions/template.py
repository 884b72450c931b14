"""
Texts with `{{ }}`: which braces are references, and how a text is rendered.

`{{` opens a reference only if a root or a known function follows; everything else is text, byte for byte. What is
inserted is never looked at again. A secret stays a name here: it stands alone between its braces, rendering shows
its reference, and only `pieces()` says where its value belongs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from .compile import build, passes_through
from .errors import Absent, ExpressionError, Fault
from .functions import FUNCTIONS
from .limits import FUEL, REFERENCES, TEMPLATE_CHARS
from .nodes import Get, Var
from .notes import Note, notes_of
from .parser import parse
from .patterns import PatternRoom
from .program import too_deep
from .refs import Ref, references
from .results import as_text, passed, settled
from .values import JSON_TYPES, kind_of
from .vocabulary import ROOTS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from .nodes import Node
    from .paths import Closure

Json: TypeAlias = Any

_CALLABLE = frozenset(FUNCTIONS) | {"has", "default"}


class SecretName(str):
    """The name of a secret where its value belongs."""

    __slots__ = ()


class _Placeholder:
    """The part of a text where a secret belongs: it renders as the reference that was written."""

    __slots__ = ("name", "shown")

    def __init__(self, name: SecretName) -> None:
        self.name = name
        self.shown = f"{{{{secret.{name}}}}}"

    def __call__(self, _context: Mapping[str, Json], _frame: list[Any]) -> str:
        return self.shown


class Template:
    """A text with references, ready to be rendered. Made by `compile_template`."""

    __slots__ = ("_frame", "_parts", "_secrets", "_settles", "_spans", "names", "nodes", "source")

    def __init__(self, source: str, scanned: _Scan, names: Collection[str]) -> None:
        self.source = source
        self.names = frozenset(names)
        self.nodes: tuple[Node, ...] = tuple(scanned.nodes)
        self._spans = tuple(scanned.spans)
        self._frame = (FUEL, *([None] * scanned.slots))
        self._parts: tuple[str | Closure, ...] = tuple(scanned.whole() or scanned.parts)
        self._secrets = {index: part.name for index, part in enumerate(self._parts) if isinstance(part, _Placeholder)}
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
        """
        The text with its references replaced, or for a whole-value template the value itself.

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
                    return settled(value) if self._settles else value if type(value) in JSON_TYPES else passed(value)
            return _joined(parts, context, frame)
        except (Fault, Absent) as problem:
            raise problem.within(self.source) from None
        except RecursionError:
            raise too_deep(self.source) from None

    @property
    def has_secrets(self) -> bool:
        return bool(self._secrets)

    def pieces(self, context: Mapping[str, Json]) -> tuple[str | SecretName, ...]:
        """What `render` joins into a text, with the names of secrets where their values belong. Raises as it does."""
        frame: list[Any] = list(self._frame)
        try:
            return tuple(
                self._secrets[index] if index in self._secrets else _joined((part,), context, frame)
                for index, part in enumerate(self._parts)
            )
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
        return notes_of(self.source, self._spans, self.names)


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
            piece = as_text(piece, frame)
        room -= len(piece)
        if room < 0:
            raise Fault("limit", f"the text grows over {TEMPLATE_CHARS} characters")
        pieces.append(piece)
    return "".join(pieces)


class _Scan:
    """One pass over a text: literal pieces and closures in order, and where the references stand."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        self.text = text
        self.names = frozenset(names)
        self.parts: list[str | Closure] = []
        self.nodes: list[Node] = []
        self.spans: list[tuple[int, int]] = []
        self.slots = 0
        self.room = PatternRoom()

    def run(self) -> None:
        text = self.text
        if len(text) > TEMPLATE_CHARS:
            raise Fault("limit", f"the text is longer than {TEMPLATE_CHARS} characters", TEMPLATE_CHARS)
        search = _opening(self.names).search
        done = position = 0
        while (site := search(text, position)) is not None:
            at = site.start()
            braces, slashes = _before(text, at, done)
            if slashes % 2 == 0 or braces >= 2:
                self._literal(done, at, 0 if braces else slashes // 2)
                done = position = self._reference(at)
            elif braces:
                position = at + 2
            else:
                self._literal(done, at, slashes // 2 + 1, "{{")
                done = position = at + 2
        self._literal(done, len(text))

    def whole(self) -> list[str | Closure]:
        """The single closure of a whole-value template, or nothing."""
        closures = [part for part in self.parts if not isinstance(part, str)]
        literals = [part for part in self.parts if isinstance(part, str)]
        return list(closures) if len(closures) == 1 and not any(part.strip() for part in literals) else []

    def _literal(self, start: int, end: int, dropped: int = 0, tail: str = "") -> None:
        """Take a stretch without references as text, less the last `dropped` backslashes."""
        text = self.text[start : end - dropped].replace("\\{{", "{{") + tail
        if text or not self.parts:
            self.parts.append(text)

    def _reference(self, at: int) -> int:
        if len(self.nodes) >= REFERENCES:
            raise Fault("limit", f"a text of more than {REFERENCES} references", at)
        node, slots, end = parse(self.text, at + 2, names=self.names, live=True)
        self.nodes.append(node)
        self.spans.append((at, end))
        secret = _secret(node) if "secret" in self.text[at:end] else None
        self.parts.append(build(node, self.room) if secret is None else _Placeholder(secret))
        self.slots = max(self.slots, slots)
        return end


def _secret(node: Node) -> SecretName | None:
    """The secret that a reference is; None if it has nothing to do with any. Raises Fault for another use of one."""
    if isinstance(node, Get) and isinstance(node.base, Var) and node.base.name == "secret" and not node.base.slot:
        if isinstance(node.key, str) and not node.optional:
            return SecretName(node.key)
    elif all(ref.root != "secret" for ref in references(node)):
        return None
    raise Fault("scope", "a secret stands alone between its braces, and nothing is computed with it", node.pos,
                "write {{secret.NAME}}; text may stand before and after it")  # fmt: skip


@lru_cache(maxsize=64)
def _opening(names: frozenset[str]) -> re.Pattern[str]:
    """Finds the `{{` that open a reference; one expression, so that other braces cost nothing."""
    roots = "|".join(map(re.escape, (*ROOTS, *sorted(names))))
    functions = "|".join(map(re.escape, sorted(_CALLABLE)))
    return re.compile(rf"\{{\{{(?!\{{)[\s(!\-]*+(?:(?:{roots})\b|(?:{functions})\s*\()")


def _before(text: str, at: int, floor: int) -> tuple[int, int]:
    """How many braces stand directly before an offset, and how many backslashes before those."""
    start = at
    while start > floor and text[start - 1] == "{":
        start -= 1
    end = start
    while start > floor and text[start - 1] == "\\":
        start -= 1
    return at - end, end - start
