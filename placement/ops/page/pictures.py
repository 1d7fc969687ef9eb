"""The layout of a drawing: a provider tree as boxes, with a bar for each resource class. Lengths are in pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement import units
from placement.cache.providers import Provider
from placement.ops.reports.capacity_report import Utilization
from placement.ops.reports.provider_trees import ProviderTree, inventory_utilization

#: Maximum numbers of boxes in a picture, and of bars in a box.
_MAX_BOXES, _MAX_BARS = 40, 8
#: Heights: of the head of a box, of an inventory (its class, and below it a bar beside the numbers), of the bottom of a
#: box, and of the space between boxes.
_HEAD, _BAR, _FOOT, _GAP = 30, 36, 8, 14
#: The width of a box, and how far a child is to the right of its parent if the first child is beside or below it.
_BOX, _INDENT_BESIDE, _INDENT_BELOW = 270, 310, 22
#: The space between the border of a box and its content, and between a bar and the numbers beside it.
_MARGIN = 12
#: The widths of one character in a wide font: in names, in classes (upper case), and in numbers.
_NAME_WIDTH, _CLASS_WIDTH, _FIGURE_WIDTH = 9.4, 8.9, 7.4
#: The characters that may separate a provider's name from the rest of a descendant's name.
_SEPARATORS = ' _-.:/'
#: The number of ancestors whose names are compared with a provider's name, so that deep trees do not take longer.
_MAX_PREFIXES = 4


@dataclass(frozen=True)
class Bar:
    """One inventory in a box. ``y`` is the baseline of the class; the numbers and the bar are below it.

    ``figures`` are the usage and capacity with units.
    """

    y: int
    label: str
    figures: str
    utilization: Utilization


@dataclass(frozen=True)
class Box:
    """One provider. ``left_out`` counts its inventories that are not shown."""

    x: int
    y: int
    height: int
    name: str
    bars: Sequence[Bar]
    left_out: int


@dataclass(frozen=True)
class Picture:
    """A drawing of a tree. ``lines`` are SVG paths from parents to their children.

    ``box`` is the width of a box, ``bar`` the length of a bar. ``left_out`` counts the providers that are not drawn.
    """

    width: int
    height: int
    box: int
    bar: int
    boxes: Sequence[Box]
    lines: Sequence[str]
    left_out: int


def draw(tree: ProviderTree, beside: bool) -> Picture:
    """Lay out the first ``_MAX_BOXES`` providers of a tree, parents before their children.

    :param beside: put the first child of each provider beside it, otherwise below it.
    """
    names, providers = short_names(tree), list(tree.walk())
    boxes: dict[int | None, Box] = {}
    lines = []
    bottom = 0
    for provider in providers[:_MAX_BOXES]:
        parent = None if provider is tree.root else boxes[provider.parent_id]
        x, y = 0, bottom
        if parent is not None:
            x = parent.x + (_INDENT_BESIDE if beside else _INDENT_BELOW)
            if beside and provider is tree.children[provider.parent_id][0]:
                y = parent.y
        bars = _bars(provider, y + _HEAD)
        left_out = len(provider.inventories) - len(bars)
        height = _HEAD + len(bars) * _BAR + bool(left_out) * 20 + _FOOT
        name = _elided(names[provider.uuid], int((_BOX - 2 * _MARGIN) / _NAME_WIDTH))
        boxes[provider.id] = box = Box(x, y, height, name, bars, left_out)
        bottom = max(bottom, y + height + _GAP)
        if parent is not None:
            lines.append(_line(parent, box, beside))
    longest = max((len(bar.figures) for box in boxes.values() for bar in box.bars), default=0)
    return Picture(
        width=max(box.x for box in boxes.values()) + _BOX + 2,
        height=bottom - _GAP + 2,
        box=_BOX,
        bar=max(_BOX - 3 * _MARGIN - int(longest * _FIGURE_WIDTH), 3 * _MARGIN),
        boxes=list(boxes.values()),
        lines=lines,
        left_out=len(providers) - len(boxes),
    )


def short_names(tree: ProviderTree) -> Mapping[str, str]:
    """Return the short name of each provider of a tree, by uuid: ``NUMA0`` for ``host_NUMA0`` below ``host``.

    The short name leaves out the name of the nearest ancestor whose name the provider's name begins with. The root
    keeps its whole name. A provider without a name has its uuid.
    """
    names: dict[str, str] = {}
    names_from: dict[int | None, tuple[str, ...]] = {}
    for provider in tree.walk():
        name = provider.name or ''
        prefixes = () if provider is tree.root else names_from[provider.parent_id]
        names_from[provider.id] = (name, *prefixes)[:_MAX_PREFIXES]
        rests = (name.removeprefix(prefix) for prefix in prefixes if prefix and name.startswith(prefix))
        short = (rest.lstrip(_SEPARATORS) for rest in rests if rest.lstrip(_SEPARATORS) not in ('', rest))
        names[provider.uuid] = next(short, name) or provider.uuid
    return names


def _bars(provider: Provider, y: int) -> list[Bar]:
    """Return the bars of the first ``_MAX_BARS`` inventories, from ``y`` down."""
    bars = []
    for name, inventory in list(provider.inventories.items())[:_MAX_BARS]:
        amounts = inventory_utilization(inventory)
        figures = units.used_of_capacity(name, amounts.used, amounts.capacity)
        label = _elided(name, int((_BOX - 2 * _MARGIN) / _CLASS_WIDTH))
        bars.append(Bar(y + 12, label, figures, amounts))
        y += _BAR
    return bars


def _line(parent: Box, box: Box, beside: bool) -> str:
    """Return the line from a box to the box of a child, as an SVG path."""
    to = box.y + _HEAD // 2
    if beside:
        start, middle = parent.x + _BOX, box.x - (_INDENT_BESIDE - _BOX) // 2
        return f'M{start} {parent.y + _HEAD // 2}H{middle}V{to}H{box.x}'
    return f'M{parent.x + _INDENT_BELOW // 2} {parent.y + parent.height}V{to}H{box.x}'


def _elided(text: str, length: int) -> str:
    """Shorten a text to ``length`` characters in the middle, because names of hosts often differ only at one end."""
    return text if len(text) <= length else f'{text[: length - 9]}…{text[-8:]}'
