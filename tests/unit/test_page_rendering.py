"""How the page formats numbers, and the positions of boxes in the picture of a tree."""

from __future__ import annotations

import pytest

from placement.page import pictures, rendering
from placement.page.rendering import Pages
from placement.reports.provider_trees import Node, Stock


@pytest.mark.parametrize(
    ('share', 'words', 'level', 'heat', 'width'),
    [
        (0.0, '0%', 'fine', 'heat-0', 0.0),
        (0.0001, '<1%', 'fine', 'heat-1', 1.5),
        (0.29, '29%', 'fine', 'heat-2', 29.0),
        (0.8, '80%', 'high', 'heat-4', 80.0),
        (0.9999, '99%', 'high', 'heat-5', 100.0),
        (1.0, '100%', 'full', 'heat-full', 100.0),
        (2.5, '250%', 'full', 'heat-full', 100.0),
        (1e9, '9999%', 'full', 'heat-full', 100.0),
    ],
)
def test_only_full_is_shown_as_full_and_only_empty_as_empty(
    share: float, words: str, level: str, heat: str, width: float
) -> None:
    assert (rendering.percent(share), rendering.level(share), rendering.heat(share)) == (words, level, heat)
    assert rendering.width(share) == width


@pytest.mark.parametrize(
    ('seconds', 'words'),
    [
        (0, 'just now'),
        (59.9, '59 s ago'),
        (60, '1 minute ago'),
        (7199, '1 hour ago'),
        (2e5, '2 days ago'),
        (-3, 'just now'),
    ],
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert rendering.ago(seconds) == words


def test_pages_of_a_list() -> None:
    last = Pages(3, 25, 60)
    assert (last.first, last.last, last.count) == (50, 60, 3)
    assert Pages(1, 25, 0).count == 1


def _tree() -> Node:
    root = Node(1, 'u1', 'root', 0, None, 1)
    root.children = [Node(2, 'u2', 'left', 0, 1, 1), Node(3, 'u3', 'right', 0, 1, 1)]
    root.children[0].inventories = [Stock('VCPU', 4, 0, 1.0, 4, 2, 2)]
    root.children[0].children = [Node(4, 'u4', 'x' * 100, 0, 2, 1)]
    return root


@pytest.mark.parametrize('style', [pictures.SIDEWAYS, pictures.INDENTED])
def test_boxes_of_a_picture_are_inside_and_do_not_overlap(style: pictures.Style) -> None:
    picture = pictures.tree(_tree(), style)
    assert len(picture.boxes) == 4
    assert len(picture.lines) == 3
    for number, box in enumerate(picture.boxes):
        assert box.x + style.box < picture.width
        assert box.y + box.height < picture.height
        assert len(box.name) <= 30
        for other in picture.boxes[:number]:
            apart = abs(box.x - other.x) >= style.box
            assert apart or box.y >= other.y + other.height or other.y >= box.y + box.height
    (bar,) = picture.boxes[1].bars
    assert (bar.filling.share, picture.boxes[0].bars) == (0.5, [])


def test_pictures_of_deep_trees_are_cut_off() -> None:
    root = at = Node(1, 'u1', 'n1', 0, None, 1)
    for number in range(2, 5000):
        at.children = [Node(number, f'u{number}', f'n{number}', 0, number - 1, 1)]
        at = at.children[0]
    picture = pictures.tree(root, pictures.INDENTED)
    assert (len(picture.boxes), picture.left_out) == (40, 4959)
