"""The layout of a drawing: a provider tree as boxes with a bar for each resource class. All lengths are in pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from placement.reports.capacity import Filling
from placement.reports.provider_trees import Node, Stock

#: Most boxes of a picture, and most bars of a box.
_MOST_BOXES, _MOST_BARS = 40, 8
#: Heights: the head of a box, a bar with its text, the bottom of a box, the space between boxes.
_HEAD, _BAR, _FOOT, _GAP = 30, 30, 6, 14
_LONGEST_NAME = 30


@dataclass(frozen=True)
class Style:
    """How children are placed: ``indent`` is their distance to the right of the parent, ``box`` the width of a box.

    With ``beside`` the first child is at the height of its parent, otherwise below it.
    """

    indent: int
    box: int
    beside: bool


SIDEWAYS = Style(indent=300, box=250, beside=True)
INDENTED = Style(indent=22, box=270, beside=False)


@dataclass(frozen=True)
class Bar:
    """One inventory in a box. ``y`` is the baseline of its text."""

    y: int
    stock: Stock
    filling: Filling


@dataclass
class Box:
    """One provider. ``more`` is how many of its inventories are not shown."""

    node: Node
    depth: int
    x: int
    y: int
    height: int
    name: str
    bars: Sequence[Bar]
    more: int


@dataclass
class Picture:
    """A drawing of a tree; ``left_out`` is how many of its providers are not in it."""

    width: int
    height: int
    box: int
    boxes: Sequence[Box] = field(default_factory=list)
    lines: Sequence[str] = field(default_factory=list)
    left_out: int = 0


def tree(root: Node, style: Style) -> Picture:
    """Lay out the first ``_MOST_BOXES`` providers of a tree, parents before their children."""
    boxes: list[Box] = []
    by_id: dict[int, Box] = {}
    bottom = 0
    nodes = list(root.walk())
    for node in nodes[:_MOST_BOXES]:
        parent = by_id.get(node.parent_id) if node.parent_id is not None and node is not root else None
        first = parent is not None and parent.node.children[0] is node
        depth = parent.depth + 1 if parent else 0
        y = parent.y if parent and first and style.beside else bottom
        box = _box(node, depth, depth * style.indent, y)
        boxes.append(box)
        by_id[node.id] = box
        bottom = max(bottom, y + box.height + _GAP)
    width = max(box.x for box in boxes) + style.box
    return Picture(
        width + 2, bottom - _GAP + 2, style.box, boxes, list(_lines(boxes, by_id, style)), len(nodes) - len(boxes)
    )


def _box(node: Node, depth: int, x: int, y: int) -> Box:
    shown = node.inventories[:_MOST_BARS]
    bars = [
        Bar(y + _HEAD + at * _BAR + 12, stock, Filling(stock.capacity, stock.used)) for at, stock in enumerate(shown)
    ]
    more = len(node.inventories) - len(shown)
    height = _HEAD + (len(shown) + bool(more)) * _BAR + _FOOT
    return Box(node, depth, x, y, height, _short(node.name or node.uuid), bars, more)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f'{name[: _LONGEST_NAME - 9]}…{name[-8:]}'


def _lines(boxes: Sequence[Box], by_id: dict[int, Box], style: Style) -> Iterator[str]:
    """The lines from parents to their children, as SVG paths."""
    for box in boxes:
        parent = by_id.get(box.node.parent_id) if box.node.parent_id is not None and box.depth else None
        if parent is None:
            continue
        to = box.y + _HEAD // 2
        if style.beside:
            start, middle = parent.x + style.box, box.x - (style.indent - style.box) // 2
            yield f'M{start} {parent.y + _HEAD // 2}H{middle}V{to}H{box.x}'
        else:
            yield f'M{parent.x + style.indent // 2} {parent.y + parent.height}V{to}H{box.x}'
