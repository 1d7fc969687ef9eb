"""The layout of a drawing: a provider tree as boxes with a bar for each resource class. All lengths are in pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from placement import units
from placement.page import names
from placement.reports.capacity import Filling
from placement.reports.provider_trees import InventoryUsage, Node

#: Maximum numbers of boxes of a picture, and of bars of a box.
_MOST_BOXES, _MOST_BARS = 40, 8
#: Heights: the head of a box, an inventory (its class, and below that a bar beside its numbers), the bottom of a box,
#: the space between boxes.
_HEAD, _BAR, _FOOT, _GAP = 30, 36, 8, 14
#: The space between the border of a box and what is in it, and between a bar and the numbers beside it.
_MARGIN = 12
#: The widths of a character, in a wide font: of names, of classes (in capitals), and of the numbers.
_NAME_WIDTH, _CLASS_WIDTH, _FIGURE_WIDTH = 9.4, 8.9, 7.4


@dataclass(frozen=True)
class Style:
    """The layout of children: ``indent`` is their distance to the right of the parent, ``box`` the width of a box.

    With ``beside`` the first child is at the height of its parent, otherwise below it.
    """

    indent: int
    box: int
    beside: bool


SIDEWAYS = Style(indent=310, box=270, beside=True)
INDENTED = Style(indent=22, box=270, beside=False)


@dataclass(frozen=True)
class Bar:
    """One inventory in a box. ``y`` is the baseline of the class, ``figures_y`` that of the numbers below it.

    ``figures`` are the usage and capacity with units.
    """

    y: int
    figures_y: int
    label: str
    figures: str
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
    """A drawing of a tree. ``bar`` is the length of a bar, ``left_out`` how many of its providers are not in it."""

    width: int
    height: int
    box: int
    bar: int = 0
    boxes: Sequence[Box] = field(default_factory=list)
    lines: Sequence[str] = field(default_factory=list)
    left_out: int = 0


def tree(root: Node, style: Style) -> Picture:
    """Lay out the first ``_MOST_BOXES`` providers of a tree, parents before their children."""
    boxes: list[Box] = []
    by_id: dict[int, Box] = {}
    short = names.of_tree(root)
    bottom = 0
    nodes = list(root.walk())
    for node in nodes[:_MOST_BOXES]:
        parent = by_id.get(node.parent_id) if node.parent_id is not None and node is not root else None
        first = parent is not None and parent.node.children[0] is node
        depth = parent.depth + 1 if parent else 0
        y = parent.y if parent and first and style.beside else bottom
        shown = node.inventories[:_MOST_BARS]
        bars = [_bar(inventory, style, y + _HEAD + at * _BAR) for at, inventory in enumerate(shown)]
        more = len(node.inventories) - len(shown)
        height = _HEAD + len(shown) * _BAR + bool(more) * 20 + _FOOT
        name = _elided(short[node.uuid], int((style.box - 2 * _MARGIN) / _NAME_WIDTH))
        box = Box(node, depth, depth * style.indent, y, height, name, bars, more)
        boxes.append(box)
        by_id[node.id] = box
        bottom = max(bottom, y + box.height + _GAP)
    longest = max((len(bar.figures) for box in boxes for bar in box.bars), default=0)
    return Picture(
        max(box.x for box in boxes) + style.box + 2,
        bottom - _GAP + 2,
        style.box,
        max(style.box - 3 * _MARGIN - int(longest * _FIGURE_WIDTH), 3 * _MARGIN),
        boxes,
        list(_lines(boxes, by_id, style)),
        len(nodes) - len(boxes),
    )


def _bar(inventory: InventoryUsage, style: Style, y: int) -> Bar:
    filling = Filling(inventory.capacity, inventory.used)
    figures = units.used_of_capacity(inventory.resource_class, inventory.used, inventory.capacity)
    label = _elided(inventory.resource_class, int((style.box - 2 * _MARGIN) / _CLASS_WIDTH))
    return Bar(y + 12, y + 28, label, figures, filling)


def _elided(text: str, longest: int) -> str:
    """Replace the middle of a text that is longer than ``longest`` characters: hosts often differ at one end only."""
    return text if len(text) <= longest else f'{text[: longest - 9]}…{text[-8:]}'


def _lines(boxes: Sequence[Box], by_id: dict[int, Box], style: Style) -> Iterator[str]:
    """Yield the lines from parents to their children, as SVG paths."""
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
