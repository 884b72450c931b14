"""
Boxes in layers: each below all that it follows, lines only in the gaps between layers and in lanes of their own.

After Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures" (1981): longest
path layering, lanes for lines that pass a layer, the order in a layer by barycentres. All lines of one box share a
lane, so that the number of lanes in a layer is at most that of boxes above it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepwell.definition.graph import sorted_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepwell.definition.drawing.picture import Edge

LANE = 10.0
GAP_X = 28.0
GAP_Y = 38.0
MOST_LANES = 20_000
_SWEEPS = 4


class TooLarge(Exception):
    """A picture with more lines than anybody could follow."""


@dataclass(slots=True, eq=False)
class Cell:
    """A box (`index`) in its layer, or a lane for the lines of one box (`index` None)."""

    width: float
    height: float
    layer: int
    index: int | None = None
    left: float = 0.0
    top: float = 0.0
    above: list[Cell] = field(default_factory=list)
    below: list[Cell] = field(default_factory=list)

    @property
    def middle(self) -> float:
        return self.left + self.width / 2


@dataclass(slots=True)
class Line:
    """A line from the bottom of a box through lanes to the top of another: its points, from top to bottom."""

    edge: Edge
    points: list[tuple[float, float]]


@dataclass(slots=True)
class Layered:
    """Boxes with their places, lines, and how much room they take."""

    places: list[tuple[float, float]]
    lines: list[Line]
    width: float
    height: float


def layered(sizes: Sequence[tuple[float, float]], edges: Sequence[Edge]) -> Layered:
    """Lay out boxes of the given sizes. Raises TooLarge."""
    depth = _depths(len(sizes), edges)
    cells = [Cell(width, height, depth[at], at) for at, (width, height) in enumerate(sizes)]
    layers: list[list[Cell]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for cell in cells:
        layers[cell.layer].append(cell)
    chains = _joined(cells, layers, edges)
    _ordered(layers)
    tops = _placed(layers)
    left = min((cell.left for layer in layers for cell in layer), default=0.0)
    for layer in layers:
        for cell in layer:
            cell.left -= left
    width = max((cell.left + cell.width for layer in layers for cell in layer), default=0.0)
    height = tops[-1] + max((cell.height for cell in layers[-1]), default=0.0) if layers else 0.0
    lines = [Line(edge, _points(chain, layers, tops)) for edge, chain in chains]
    return Layered([(cell.left, cell.top) for cell in cells], lines, width, height)


def _depths(count: int, edges: Sequence[Edge]) -> list[int]:
    deps: list[list[int]] = [[] for _ in range(count)]
    dependents: list[list[int]] = [[] for _ in range(count)]
    for edge in edges:
        deps[edge.end].append(edge.start)
        dependents[edge.start].append(edge.end)
    depth = [0] * count
    for index in sorted_order(deps, dependents):
        depth[index] = max((depth[dep] + 1 for dep in deps[index]), default=0)
    return depth


def _joined(cells: list[Cell], layers: list[list[Cell]], edges: Sequence[Edge]) -> list[tuple[Edge, list[Cell]]]:
    """Each edge with the cells that its line passes; lanes are made where there is none yet."""
    lanes: dict[tuple[int, int], Cell] = {}
    chains: list[tuple[Edge, list[Cell]]] = []
    for edge in edges:
        start, end = cells[edge.start], cells[edge.end]
        if end.layer <= start.layer:
            continue
        chain = [start]
        for layer in range(start.layer + 1, end.layer):
            lane = lanes.get((edge.start, layer))
            if lane is None:
                lane = lanes[edge.start, layer] = Cell(LANE, 0.0, layer)
                layers[layer].append(lane)
                _join(chain[-1], lane)
                if len(lanes) > MOST_LANES:
                    raise TooLarge("this workflow has too many dependencies over a distance for a picture")
            chain.append(lane)
        _join(chain[-1], end)
        chains.append((edge, [*chain, end]))
    return chains


def _join(upper: Cell, lower: Cell) -> None:
    upper.below.append(lower)
    lower.above.append(upper)


def _ordered(layers: list[list[Cell]]) -> None:
    """Fewer crossings: each cell near the mean place of its neighbours, down and up in turn."""
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        ranks = {id(cell): float(rank) for layer in layers for rank, cell in enumerate(layer)}
        for layer in layers if down else reversed(layers):
            wanted: list[tuple[float, int, Cell]] = []
            for rank, cell in enumerate(layer):
                near = cell.above if down else cell.below
                mean = sum(ranks[id(one)] for one in near) / len(near) if near else float(rank)
                wanted.append((mean, rank, cell))
            layer[:] = [cell for _, _, cell in sorted(wanted, key=_by_mean)]
            for rank, cell in enumerate(layer):
                ranks[id(cell)] = float(rank)


def _by_mean(wanted: tuple[float, int, Cell]) -> tuple[float, int]:
    return wanted[:2]


def _placed(layers: list[list[Cell]]) -> list[float]:
    """Gives every cell its place; the top of each layer is returned."""
    tops: list[float] = []
    top = 0.0
    for layer in layers:
        tops.append(top)
        for cell in layer:
            cell.top = top
        top += max(cell.height for cell in layer) + GAP_Y
        _spread(layer, [0.0 for _ in layer])
    for layer in layers[1:]:
        _spread(layer, [_wish(cell, cell.above) for cell in layer])
    for layer in reversed(layers[:-1]):
        _spread(layer, [_wish(cell, cell.below) for cell in layer])
    for layer in layers[1:]:
        _spread(layer, [_wish(cell, cell.above) for cell in layer])
    return tops


def _wish(cell: Cell, near: list[Cell]) -> float:
    return sum(one.middle for one in near) / len(near) if near else cell.middle


def _spread(layer: list[Cell], wishes: list[float]) -> None:
    """As near to the wished middles as the cells' widths allow: the mean of pushing right and pushing left."""
    rights: list[float] = []
    for cell, wish in zip(layer, wishes, strict=True):
        before = rights[-1] + layer[len(rights) - 1].width + GAP_X if rights else float("-inf")
        rights.append(max(wish - cell.width / 2, before))
    lefts = [0.0] * len(layer)
    limit = float("inf")
    for at in reversed(range(len(layer))):
        lefts[at] = min(wishes[at] - layer[at].width / 2, limit - layer[at].width)
        limit = lefts[at] - GAP_X
    for cell, right, left in zip(layer, rights, lefts, strict=True):
        cell.left = (right + left) / 2


def _points(chain: list[Cell], layers: list[list[Cell]], tops: list[float]) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = [(chain[0].middle, chain[0].top + chain[0].height)]
    for cell in chain[:-1]:
        bottom = tops[cell.layer] + max(one.height for one in layers[cell.layer])
        if cell.index is None:
            points.append((cell.middle, tops[cell.layer]))
        points.append((cell.middle, bottom))
    points.append((chain[-1].middle, chain[-1].top))
    return points
