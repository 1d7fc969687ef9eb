"""Random topologies and query strings of GET /allocation_candidates with every parameter up to 1.39.

The strings are what a client sends: parameters in any order, some of them repeated, and now and then a wrong one.
"""

from __future__ import annotations

import functools
import random
from typing import NamedTuple
from urllib.parse import urlencode

from hypothesis import strategies as st

from tests.support.search.oracle import RP, SHARES
from tests.support.search.query_strings import uuid_of
from tests.support.search.topologies import RECORDS, SUPPLIES

TRAITS = ['HW_CPU_X86_AVX2', 'STORAGE_DISK_SSD', 'CUSTOM_RED']
AGGREGATES = ['north', 'south', 'east']
CLASSES = ['VCPU', 'MEMORY_MB', 'DISK_GB']

#: Minor versions to draw from: each that changed the search since 1.29, and those of most interest more often.
MINORS = (29, 30, 31, 32, 33, 34, 35, 36, 36, 36, 36, 37, 38, 39, 39, 39, 39)

Pairs = list[tuple[str, str]]

_NORTH = uuid_of('north')

#: What is wrong at some microversion, or in most queries.
_MISTAKES = [
    ('member_of', f'{_NORTH},{_NORTH}'),
    ('member_of', f'!{_NORTH},{_NORTH}'),
    ('member_of', f'in:!{_NORTH}'),
    ('member_of', '!in:'),
    ('member_of', f'!!{_NORTH}'),
    ('member_of1', f'!{_NORTH}'),
    ('required', 'in:CUSTOM_RED,HW_CPU_X86_AVX2'),
    ('required', 'in:CUSTOM_RED,'),
    ('required', 'in:CUSTOM_RED,!HW_CPU_X86_AVX2'),
    ('required', 'CUSTOM_RED,!CUSTOM_RED'),
    ('required', ' in:CUSTOM_RED'),
    ('required', '!in:CUSTOM_RED'),
    ('required', ''),
    ('required1', 'CUSTOM_UNKNOWN'),
    ('required2', '!CUSTOM_RED'),
    ('resources', ''),
    ('resources', 'VCPU:0'),
    ('resources1', 'CUSTOM_UNKNOWN:1'),
    ('resources_A', 'VCPU:1'),
    ('resources_é', 'VCPU:1'),
    ('resources01', 'VCPU:1'),
    (f'resources{"1" * 65}', 'VCPU:1'),
    ('in_tree', 'x'),
    ('in_tree', ''),
    ('in_tree1', uuid_of('p0')),
    ('in_tree', f' {uuid_of("p0").upper()} '),
    ('limit', '0'),
    ('group_policy', 'some'),
    ('root_required', 'CUSTOM_RED,!CUSTOM_RED'),
    ('root_required', 'in:CUSTOM_RED'),
    ('root_required', 'CUSTOM_UNKNOWN'),
    ('root_required', ''),
    ('root_required1', 'CUSTOM_RED'),
    ('same_subtree', ''),
    ('same_subtree', '_A,,_B'),
    ('same_subtree', '_X'),
    ('same_subtree', '1'),
    ('same_subtree_A', '1'),
    ('unknown', '1'),
]


class QueryString(NamedTuple):
    """A query string as it is sent, at microversion 1.``minor``."""

    minor: int
    text: str


@st.composite
def deep_topologies(draw: st.DrawFn, max_providers: int = 9) -> list[RP]:
    """A few trees, some of them deep, with providers without inventory, sharing roots and sharing children."""
    topology: list[RP] = []
    share_of_ten = draw(st.sampled_from([1, 4]))
    for number in range(draw(st.integers(2, max_providers))):
        earlier = [rp.name for rp in topology]
        # The last ones more often, so that trees become deep.
        parent = draw(st.sampled_from([None, *earlier, *earlier[-2:], *earlier[-1:]]))
        traits = {trait for trait in TRAITS if draw(st.integers(0, 9)) < 4}
        shares = draw(st.integers(0, 9)) < share_of_ten
        classes = draw(st.sampled_from([set[str](), *SUPPLIES, *[set(CLASSES)] * 10]))
        topology.append(
            RP(
                name=f'p{number}',
                parent=parent,
                inventory={name: dict(draw(st.sampled_from(RECORDS))) for name in sorted(classes)},
                traits=traits | ({SHARES} if shares else set()),
                aggregates={name for name in AGGREGATES if draw(st.integers(0, 9)) < (6 if shares else 3)},
            )
        )
    return topology


@functools.cache
def query_strings(minor: int, count: int = 20000) -> st.SearchStrategy[QueryString]:
    """Query strings for the topologies of ``deep_topologies``; one of ten is rejected.

    Each is drawn as a whole, since drawing its parts takes most of the time; short ones come first, for shrinking.
    """
    rng = random.Random(minor)
    texts = {urlencode(_query(rng, minor)) for _ in range(count)}
    return st.sampled_from([QueryString(minor, text) for text in sorted(texts, key=lambda text: (len(text), text))])


def _query(rng: random.Random, minor: int) -> Pairs:
    pool = ['1', '2', '30'] if minor < 33 else ['_A', '_B', '1', '01', 'a-B_9']
    suffixes = rng.sample(pool, rng.choice([0, 1, 1, 2, 2, 3]))
    unsuffixed = not suffixes or rng.random() < 0.5
    bare = {
        suffix for suffix in suffixes if minor >= 36 and (unsuffixed or suffix != suffixes[0]) and rng.random() < 0.3
    }
    pairs: Pairs = []
    if unsuffixed:
        pairs += _resources(rng, '') + _conditions(rng, '', minor, 0.3)
    for suffix in suffixes:
        if suffix in bare:
            pairs += _conditions(rng, suffix, minor, 0.8)
        else:
            pairs += _resources(rng, suffix) + _conditions(rng, suffix, minor, 0.3)
    pairs += _whole(rng, suffixes, bare, minor)
    if rng.random() < 0.08:
        pairs.append(rng.choice(_MISTAKES))
    rng.shuffle(pairs)
    return pairs


def _resources(rng: random.Random, suffix: str) -> Pairs:
    classes = rng.choice([['VCPU'], ['DISK_GB'], ['VCPU', 'DISK_GB'], ['VCPU', 'MEMORY_MB'], ['MEMORY_MB'], CLASSES])
    value = ','.join(f'{name}:{rng.choice([1, 1, 1, 2, 3])}' for name in classes)
    return [(f'resources{suffix}', value)] * (2 if rng.random() < 0.05 else 1)


def _conditions(rng: random.Random, suffix: str, minor: int, chance_of_traits: float) -> Pairs:
    """``required``, ``member_of`` and ``in_tree`` of a group; perhaps none of them."""
    pairs: Pairs = []
    if rng.random() < chance_of_traits:
        count = rng.choice([1, 1, 2])
        pairs += [(f'required{suffix}', _required(rng, minor)) for _ in range(count)]
    if rng.random() < 0.25:
        count = rng.choice([1, 1, 2])
        pairs += [(f'member_of{suffix}', _member_of(rng, minor)) for _ in range(count)]
    if minor >= 31 and rng.random() < 0.2:
        pairs.append((f'in_tree{suffix}', uuid_of(rng.choice(['p0', 'p1', 'p2', 'p3', 'p4', 'p5', 'nobody']))))
    return pairs


def _required(rng: random.Random, minor: int) -> str:
    traits = rng.sample([*TRAITS, SHARES], rng.choice([1, 1, 2, 3]))
    if minor >= 39 and rng.random() < 0.5:
        return 'in:' + ' , '.join(traits)
    return ','.join(f'!{trait}' if rng.random() < 0.35 else trait for trait in traits[:2])


def _member_of(rng: random.Random, minor: int) -> str:
    aggregates = [uuid_of(name) for name in rng.sample([*AGGREGATES, 'nowhere'], rng.choice([1, 1, 2]))]
    if rng.random() < 0.1:
        aggregates[0] = aggregates[0].upper().replace('-', '')
    value = ('in:' if len(aggregates) > 1 or rng.random() < 0.2 else '') + ','.join(aggregates)
    return f'!{value}' if minor >= 32 and rng.random() < 0.4 else value


def _whole(rng: random.Random, suffixes: list[str], bare: set[str], minor: int) -> Pairs:
    """The parameters without suffix."""
    pairs: Pairs = []
    if len(suffixes) > 1 or rng.random() < 0.2:
        pairs.append(('group_policy', rng.choice(['none', 'none', 'isolate'])))
    if minor >= 35 and rng.random() < 0.2:
        pairs.append(('root_required', _required(rng, 38)))
    if minor >= 36 and (bare or (suffixes and rng.random() < 0.3)):
        chosen = rng.sample(suffixes, rng.randint(0, len(suffixes)))
        pairs.append(('same_subtree', ','.join([*sorted(bare), *chosen] or suffixes)))
        if rng.random() < 0.25:
            pairs.append(('same_subtree', ' , '.join(rng.sample(suffixes, rng.randint(1, len(suffixes))))))
    if rng.random() < 0.2:
        pairs.append(('limit', rng.choice(['1', '2', '5'])))
    return pairs
