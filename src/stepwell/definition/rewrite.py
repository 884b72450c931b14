"""
Rewriting a definition in canonical words, changing only the characters that a spelling takes.

The law of the file: the text that results means the same as before, or none results; comments, order, blank lines and
quotes stay where nothing changes, and a text in canonical words is left as it is.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from stepwell.definition import emitting
from stepwell.definition.emitting import Edit, applied, shifted
from stepwell.definition.written import Entry, Layout, Written

if TYPE_CHECKING:
    from stepwell.definition.positions import Node

_AFTER = {"depends_on": ("type", "id"), "version": ("workflow", "recipe")}
"""Behind which key a key goes that only the spelling implied."""
_BEFORE = {"defaults": "steps"}
_WIDEST = 100
"""Columns beyond which a new mapping is written by indentation."""


def rewritten(text: str, canonical: Node, *, is_json: bool, expand: bool = False) -> str:
    """
    The text of a definition in canonical words; `canonical` are its composed nodes, translated.

    With `expand`, anchors and aliases are written out. Raises ValueError where the layout cannot be kept.
    """
    layout = Layout(text, is_json=is_json)
    edits = _Rewriting(layout, expand=expand).value(canonical, layout.root, None)
    return applied(text, 0, len(text), edits)


class _Rewriting:
    def __init__(self, layout: Layout, *, expand: bool) -> None:
        self.layout = layout
        self.text = layout.text
        self.expand = expand
        self.moved: set[int] = set()
        self.by_key: dict[tuple[int, int], tuple[Entry, Written]] = {}
        self.by_place: dict[tuple[tuple[int, int], str], tuple[Written, Entry | None]] = {}
        self._index(layout.root)

    def _index(self, root: Written) -> None:
        waiting: list[tuple[Written, Entry | None]] = [(root, None)]
        while waiting:
            value, entry = waiting.pop()
            self.by_place[self.place(value.start), value.shape] = value, entry
            for inner in value.entries:
                self.by_key[self.place(inner.start)] = inner, value
                waiting.append((inner.value, inner))
            waiting += [(item, None) for item in value.items]

    def place(self, index: int) -> tuple[int, int]:
        return self.layout.source.place(index)

    # values

    def value(self, node: Node, written: Written, entry: Entry | None) -> list[Edit]:
        """The edits that make a written value the one that a node holds."""
        shape = emitting.shape_of(node.value)
        if written.shape == "alias":
            return self._replaced(node, written, entry) if self.expand else []
        anchor = self._without_anchor(written)
        if shape != written.shape:
            return self._replaced(node, written, entry)
        if shape == "map":
            return [*anchor, *self._mapping(node, written)]
        if shape == "list":
            if len(node.items) != len(written.items):
                return self._replaced(node, written, entry)
            pairs = zip(node.items, written.items, strict=True)
            return [*anchor, *(edit for inner, item in pairs for edit in self.value(inner, item, None))]
        return anchor if node.span is not None else self._replaced(node, written, entry)

    def _without_anchor(self, written: Written) -> list[Edit]:
        if not self.expand or not written.anchor:
            return []
        end = written.start + len(written.anchor) + 1
        while self.text[end : end + 1] == " ":
            end += 1
        return [Edit(written.start, end, "")]

    def _replaced(self, node: Node, written: Written, entry: Entry | None) -> list[Edit]:
        """Another value in the place of the written one; comments inside it go above its key."""
        anchor = f"&{written.anchor} " if written.anchor and not self.expand else ""
        block = entry is not None and not written.flow
        start = self.text.index(":", entry.key_end) + 1 if entry is not None and block else written.start
        above = entry.start if entry is not None else written.start
        indent = self.layout.newline + " " * self.layout.column(above)
        comments = self.layout.comments_in(start, written.end) if written.shape in {"map", "list"} else []
        edits = [Edit(above, above, f"{comment}{indent}") for comment in comments]
        new = self._anew(node, written, entry)
        space = " " if block and not new.startswith(("\n", "\r")) else ""
        return [*edits, Edit(start, written.end, f"{space}{anchor}{new}")]

    def _anew(self, node: Node, written: Written, entry: Entry | None) -> str:
        """The text of a value that takes the place of another: what is written inside that one, or made anew."""
        found, inside = self.by_place.get(((node.line, node.column), emitting.shape_of(node.value)), (None, None))
        if found is None or not written.start < found.start < written.end:
            return self._emitted(node, written.style)
        edits = self.value(node, found, inside)
        if found.flow:
            return applied(self.text, found.start, found.end, edits)
        if entry is None or inside is None or written.flow:
            return self._emitted(node, written.style)
        column = self.layout.column(entry.start)
        if found.shape == "scalar":
            part = applied(self.text, found.start, found.end, edits)
            return shifted(part, column - self.layout.column(inside.start))
        start = self.layout.line_start(found.start)
        part = applied(self.text, start, found.end, edits)
        return self.layout.newline + shifted(part, column + 2 - self.layout.column(found.start), first=True)

    def _emitted(self, node: Node, style: str = "") -> str:
        return emitting.value_text(node, style, is_json=self.layout.is_json)

    # mappings

    def entry(self, word: str, node: Node, entry: Entry) -> list[Edit]:
        """The edits of a key and its value."""
        edits: list[Edit] = []
        if node.key != word:
            style = self.text[entry.start]
            edits.append(Edit(entry.start, entry.key_end, emitting.key_text(word, style)))
        return [*edits, *self.value(node, entry.value, entry)]

    def _mapping(self, node: Node, written: Written) -> list[Edit]:
        own = {self.place(entry.start): entry for entry in written.entries}
        kept: dict[int, tuple[str, Node]] = {}
        added: list[tuple[str, Node]] = []
        for word, inner in node.mapping.items():
            entry = own.get((inner.key_line, inner.key_column))
            if entry is None or id(entry) in kept:
                added.append((word, inner))
            else:
                kept[id(entry)] = word, inner
        if not added and len(kept) == len(written.entries):
            return [edit for entry in written.entries for edit in self.entry(*kept[id(entry)], entry)]
        placed = _Places(self, written, kept)
        for word, inner in added:
            placed.add(word, inner)
        return [self._flow(written, kept, placed) if written.flow else self._block(written, kept, placed)]

    def _flow(self, written: Written, kept: dict[int, tuple[str, Node]], placed: _Places) -> Edit:
        """A mapping in brackets, its entries put together again."""
        text, entries = self.text, written.entries
        opening = text.index("{", written.start) + 1
        if not entries:
            inner = ", ".join(self.new_entry(written, *pair, flow=True) for pair in placed.all())
            return Edit(opening, written.end - 1, inner)
        head, tail = text[opening : entries[0].start], text[entries[-1].end : written.end - 1]
        gaps = [text[one.end : two.start] for one, two in pairwise(entries)]
        plain = next((gap for gap in gaps if "#" not in gap), ", " if "\n" not in head else f",{head}")
        column = self.layout.column(entries[0].start)
        parts: list[str] = []
        for entry, gap in zip(entries, ["", *gaps], strict=True):
            texts = [self.new_entry(written, *pair, flow=True, column=column) for pair in placed.before(entry)]
            if id(entry) in kept:
                edits = self.entry(*kept[id(entry)], entry)
                texts.append(applied(text, entry.start, entry.end, edits))
            texts += [
                self.new_entry(written, *pair, flow=True, column=column)
                for pair in (*placed.inside(entry), *placed.after(entry))
            ]
            if id(entry) not in kept:
                texts = self._with_comments(entry, gap, texts)
            for at, part in enumerate(texts):
                parts += [(plain if at else gap) if parts else "", part]
        return Edit(opening, written.end - 1, head + "".join(parts) + tail)

    def _with_comments(self, entry: Entry, gap: str, texts: list[str]) -> list[str]:
        """What became of an entry, below the comments that stood in it."""
        comments = self._left_over(entry)
        if not texts and (comments or "#" in gap):
            raise ValueError("nothing is left where a comment stands")
        indent = self.layout.newline + " " * self.layout.column(entry.start)
        return [*("".join(f"{comment}{indent}" for comment in comments) + text for text in texts[:1]), *texts[1:]]

    def _block(self, written: Written, kept: dict[int, tuple[str, Node]], placed: _Places) -> Edit:
        """A mapping by indentation, its entries put together again; what stands between them stays."""
        layout, entries = self.layout, written.entries
        column = layout.column(entries[0].start)
        lines: list[str] = []
        loose: list[tuple[int, Entry]] = []
        for at, entry in enumerate(entries):
            if at:
                gap = self.text[layout.next_line(entries[at - 1].end) : layout.line_start(entry.start)]
                lines += [line.removesuffix("\r")[column:] if not line[:column].strip() else line.strip()
                          for line in gap.split("\n")[:-1]]  # fmt: skip
            lines += [self.new_entry(written, *pair, column=column) for pair in placed.before(entry)]
            if id(entry) in kept:
                edits = self.entry(*kept[id(entry)], entry)
                lines.append(applied(self.text, entry.start, layout.line_end(entry.end), edits))
            else:
                loose.append((len(lines), entry))
                lines += self._unwrapped(entry, written, placed, column)
            lines += [self.new_entry(written, *pair, column=column) for pair in placed.after(entry)]
        for at, entry in reversed(loose):
            lines[at:at] = self._left_over(entry)
        indent = layout.newline + " " * column
        new = lines[0] + "".join(indent + line if line else layout.newline for line in lines[1:])
        return Edit(entries[0].start, layout.line_end(entries[-1].end), new)

    def _left_over(self, entry: Entry) -> list[str]:
        """The comments of an entry that is gone, unless they went with what became of it."""
        layout = self.layout
        end = entry.end if entry.flow else layout.line_end(entry.end)
        spans = layout.comments_between(entry.start, end)
        return [self.text[start:stop] for start, stop in spans if start not in self.moved]

    def _unwrapped(self, entry: Entry, written: Written, placed: _Places, column: int) -> list[str]:
        """The entries of a mapping that is dissolved into the one it lies in."""
        inside = placed.inside(entry)
        value, layout = entry.value, self.layout
        if not inside:
            return []
        if value.flow or not layout.begins_line(value.entries[0].start):
            return [self.new_entry(written, *pair, column=column) for pair in inside]
        edits: list[Edit] = []
        words = {(node.key_line, node.key_column): (word, node) for word, node in inside}
        start, end = layout.next_line(entry.key_end), layout.line_end(value.end)
        for inner in value.entries:
            found = words.get(self.place(inner.start))
            if found:
                edits += self.entry(*found, inner)
            else:
                edits.append(Edit(layout.line_start(inner.start), layout.next_line(inner.end), ""))
                if inner is value.entries[-1]:
                    end = layout.next_line(inner.end)
        part = applied(self.text, start, end, edits)
        self.moved |= {first for first, _ in layout.comments_between(start, end)}
        depth = layout.column(value.entries[0].start)
        return [shifted(part, column - depth, first=True).rstrip("\r\n")[column:]]

    def new_entry(self, into: Written, word: str, node: Node, *, column: int = 0, flow: bool = False) -> str:
        """The text of an entry that is new here: moved from where it is written, or made anew."""
        found, holder = self.by_key.get((node.key_line, node.key_column), (None, None))
        layout = self.layout
        if found is not None and holder is not None and self._moves(found, into, flow=flow):
            edits = self.entry(word, node, found)
            end = found.end if flow or holder.flow else layout.line_end(found.end)
            if not flow:
                self.moved |= {first for first, _ in layout.comments_between(found.start, end)}
            part = applied(self.text, found.start, end, edits)
            return shifted(part, column - layout.column(found.start))
        key = emitting.key_text(word, '"' if layout.is_json else "")
        line = f"{key}: {self._emitted(node)}"
        adopts = any((inner.key_line, inner.key_column) in self.by_key for inner in node.mapping.values())
        if flow or not node.mapping or not (adopts or len(line) + column > _WIDEST):
            return line
        indent = layout.newline + " " * (column + 2)
        entries = [self.new_entry(into, inside, inner, column=column + 2) for inside, inner in node.mapping.items()]
        return f"{key}:{indent}{indent.join(entries)}"

    def _moves(self, found: Entry, into: Written, *, flow: bool) -> bool:
        """Whether an entry's own text is moved into a mapping: not one that encloses it, nor lines into brackets."""
        return not found.start <= into.start < found.end and (found.value.flow or not flow)


class _Places:
    """Where the new entries of a mapping go."""

    def __init__(self, rewriting: _Rewriting, written: Written, kept: dict[int, tuple[str, Node]]) -> None:
        self._rewriting = rewriting
        self._entries = written.entries
        self._kept = kept
        self._gone = {rewriting.place(entry.start): entry for entry in written.entries if id(entry) not in kept}
        self._inside: dict[int, list[tuple[str, Node]]] = {}
        self._before: dict[int, list[tuple[str, Node]]] = {}
        self._after: dict[int, list[tuple[str, Node]]] = {}
        self._alone: list[tuple[str, Node]] = []

    def add(self, word: str, node: Node) -> None:
        place = node.key_line, node.key_column
        for entry in self._gone.values():
            if any(self._rewriting.place(inner.start) == place for inner in entry.value.entries):
                self._inside.setdefault(id(entry), []).append((word, node))
                return
        for inner in node.mapping.values():
            if adopted := self._gone.get((inner.key_line, inner.key_column)):
                self._after.setdefault(id(adopted), []).append((word, node))
                return
        words = {self._kept[id(entry)][0]: entry for entry in self._entries if id(entry) in self._kept}
        if (following := words.get(_BEFORE.get(word, ""))) is not None:
            self._before.setdefault(id(following), []).append((word, node))
            return
        leading = next((words[name] for name in _AFTER.get(word, ()) if name in words), None)
        if leading is None and not self._entries:
            self._alone.append((word, node))
            return
        self._after.setdefault(id(leading or self._entries[-1]), []).append((word, node))

    def inside(self, entry: Entry) -> list[tuple[str, Node]]:
        return self._inside.get(id(entry), [])

    def before(self, entry: Entry) -> list[tuple[str, Node]]:
        return self._before.get(id(entry), [])

    def after(self, entry: Entry) -> list[tuple[str, Node]]:
        return self._after.get(id(entry), [])

    def all(self) -> list[tuple[str, Node]]:
        return self._alone
