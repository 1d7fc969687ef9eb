"""How the page formats numbers, and the positions of boxes in the picture of a tree."""

from __future__ import annotations

import pytest

from placement.page import names, pictures, rendering
from placement.page.rendering import Pages
from placement.reports.capacity import Filling
from placement.reports.provider_trees import InventoryUsage, Node


@pytest.mark.parametrize(
    ('share', 'level', 'heat', 'width'),
    [
        (0.0, 'fine', 'heat-0', 0.0),
        (0.0001, 'fine', 'heat-1', 1.5),
        (0.29, 'fine', 'heat-2', 29.0),
        (0.8, 'high', 'heat-4', 80.0),
        (0.9999, 'high', 'heat-5', 100.0),
        (1.0, 'full', 'heat-full', 100.0),
        (2.5, 'full', 'heat-full', 100.0),
    ],
)
def test_only_full_is_shown_as_full_and_only_empty_as_empty(share: float, level: str, heat: str, width: float) -> None:
    assert (rendering.level(share), rendering.heat(share)) == (level, heat)
    assert rendering.width(share) == width


@pytest.mark.parametrize(
    ('value', 'resource_class', 'shown'),
    [
        (351698944, 'MEMORY_MB', '<span title="351,698,944">335 TiB</span>'),
        (25_000_000, 'NET_BW_EGR_KILOBIT_PER_SEC', '<span title="25,000,000">25 Gbit/s</span>'),
        (1234, 'VCPU', '1,234'),
        (0, 'MEMORY_MB', '0'),
    ],
)
def test_amounts_have_units_and_the_number_as_title(value: int, resource_class: str, shown: str) -> None:
    assert rendering.amount(value, resource_class) == shown


def test_a_usage_has_units_and_the_numbers_as_title() -> None:
    shown = rendering.used_of(Filling(967578624, 351698944), 'MEMORY_MB')
    assert shown == '<span title="351,698,944 of 967,578,624">335 of 923 TiB</span>'


def test_names_of_a_tree_leave_out_the_name_of_the_parent() -> None:
    root = Node(1, 'u1', 'numa-4.example.org', 0, None, 1)
    numa = Node(2, 'u2', 'numa-4.example.org_NUMA0', 0, 1, 1)
    card = Node(3, 'u3', 'numa-4.example.org_NUMA0_pf_enp59s0f0', 0, 2, 1)
    agent = Node(4, 'u4', 'numa-4.example.org:Open vSwitch agent', 0, 1, 1)
    other, same, unnamed = Node(5, 'u5', 'rack', 0, 1, 1), Node(6, 'u6', 'rack', 0, 5, 1), Node(7, 'u7', '', 0, 1, 1)
    deep = Node(8, 'u8', 'numa-4.example.org-nic0', 0, 2, 1)
    alike = Node(9, 'u9', 'numa-4.example.organic', 0, 1, 1)
    root.children, numa.children, other.children = [numa, agent, other, unnamed, alike], [card, deep], [same]
    assert names.of_tree(root) == {
        'u1': 'numa-4.example.org',
        'u2': 'NUMA0',
        'u3': 'pf_enp59s0f0',
        'u4': 'Open vSwitch agent',
        'u5': 'rack',
        'u6': 'rack',
        'u7': 'u7',
        'u8': 'nic0',
        'u9': 'numa-4.example.organic',
    }


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
    root.children[0].inventories = [InventoryUsage('VCPU', 4, 0, 1.0, 4, 2, 2)]
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
