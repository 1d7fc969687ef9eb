"""How the page formats numbers, and how it shortens the names of a tree."""

from __future__ import annotations

import pytest

from placement.cache.providers import Provider
from placement.ops.page import rendering, tree_views
from placement.ops.reports.provider_trees import ProviderTree


@pytest.mark.parametrize(
    ('share', 'level', 'heat', 'width'),
    [
        (0.0, 'fine', 'heat-0', 0.0),
        (0.0001, 'fine', 'heat-1', 1.5),
        (0.8, 'high', 'heat-4', 80.0),
        (0.9999, 'high', 'heat-5', 100.0),
        (1.0, 'full', 'heat-full', 100.0),
        (2.5, 'full', 'heat-full', 100.0),
    ],
)
def test_only_full_is_shown_as_full_and_only_empty_as_empty(share: float, level: str, heat: str, width: float) -> None:
    assert (rendering.level(share), rendering.heat(share)) == (level, heat)
    assert rendering.width(share) == width


def test_amounts_have_units_and_the_numbers_as_title() -> None:
    shown = rendering.used_of(351698944, 967578624, 'MEMORY_MB')
    assert shown == '<span title="351,698,944 of 967,578,624">335 of 923 TiB</span>'
    assert rendering.amount(1234, 'VCPU') == '1,234'


def _tree(*providers: tuple[str | None, int | None]) -> ProviderTree:
    """A tree of providers with the ids 1, 2 ... and the uuids u1, u2 ...; each is given by its name and its parent."""
    return ProviderTree(
        [Provider(id_, f'u{id_}', 1, parent_id, {}, name=name) for id_, (name, parent_id) in enumerate(providers, 1)]
    )


def test_names_of_a_tree_leave_out_the_name_of_the_parent() -> None:
    #: The id of the parent, the name, and the short name.
    providers = [
        (None, 'numa-4.example.org', 'numa-4.example.org'),
        (1, 'numa-4.example.org_NUMA0', 'NUMA0'),
        (2, 'numa-4.example.org_NUMA0_pf_enp59s0f0', 'pf_enp59s0f0'),
        (1, 'numa-4.example.org:Open vSwitch agent', 'Open vSwitch agent'),
        (1, 'rack', 'rack'),
        (5, 'rack', 'rack'),
        (1, None, 'u7'),
        (2, 'numa-4.example.org-nic0', 'nic0'),
        (1, 'numa-4.example.organic', 'numa-4.example.organic'),
    ]
    tree = _tree(*((name, parent) for parent, name, _ in providers))
    assert tree_views.short_names(tree) == {f'u{id_}': short for id_, (_, _, short) in enumerate(providers, 1)}


def test_children_are_in_order_of_their_names() -> None:
    tree = _tree(('root', None), ('b', 1), ('a', 1), ('c', 2))
    assert [provider.name for provider in tree.walk()] == ['root', 'a', 'b', 'c']
