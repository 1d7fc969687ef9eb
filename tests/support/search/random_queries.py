"""Random query strings of GET /allocation_candidates, for the topologies of ``topologies``.

The strings are what a client sends: parameters in any order, some of them repeated, and now and then a wrong one.
"""

from __future__ import annotations

import functools
import random
from typing import NamedTuple
from urllib.parse import urlencode

from hypothesis import reject
from hypothesis import strategies as st

from tests.support.search import query_strings as oracle_parser
from tests.support.search.oracle import SHARES, Query
from tests.support.search.query_strings import RejectedError, uuid_of
from tests.support.search.topologies import AGGREGATES, CLASSES, TRAITS

#: Minor versions to draw from: each that changed the search, and those of most interest more often.
MINORS = (*(10, 12, 16, 17, 21, 22, 24, 25, 26, 27, 28, 29, 29), *range(30, 36), *[36] * 4, 37, 38, *[39] * 4)

Pairs = list[tuple[str, str]]

#: The names of aggregates and providers by their uuids.
_NAMES = {uuid_of(name): name for name in [*AGGREGATES, 'nowhere', 'nobody', *(f'p{number}' for number in range(9))]}
_NORTH = uuid_of('north')

#: What is wrong at some microversion, or in most queries.
_MISTAKES = [
    (parameter, value)
    for parameter, values in {
        'member_of': [f'{_NORTH},{_NORTH}', f'!{_NORTH},{_NORTH}', f'in:!{_NORTH}', '!in:', f'!!{_NORTH}'],
        'member_of1': [f'!{_NORTH}'],
        'required': [
            *('in:CUSTOM_RED,HW_CPU_X86_AVX2', 'in:CUSTOM_RED,', 'in:CUSTOM_RED,!HW_CPU_X86_AVX2', ''),
            *('CUSTOM_RED,!CUSTOM_RED', ' in:CUSTOM_RED', '!in:CUSTOM_RED'),
        ],
        'required1': ['CUSTOM_UNKNOWN'],
        'required2': ['!CUSTOM_RED'],
        'resources': ['', 'VCPU:0'],
        'resources1': ['CUSTOM_UNKNOWN:1'],
        **dict.fromkeys(['resources_A', 'resources_é', 'resources01', f'resources{"1" * 65}'], ('VCPU:1',)),
        'in_tree': ['x', '', f' {uuid_of("p0").upper()} '],
        'in_tree1': [uuid_of('p0')],
        'root_required': ['CUSTOM_RED,!CUSTOM_RED', 'in:CUSTOM_RED', 'CUSTOM_UNKNOWN', ''],
        'same_subtree': ['', '_A,,_B', '_X', '1'],
        **dict.fromkeys(['limit', 'group_policy', 'root_required1', 'same_subtree_A', 'unknown'], ('0',)),
    }.items()
    for value in values
]


class QueryString(NamedTuple):
    """A query string as it is sent, at microversion 1.``minor``."""

    minor: int
    text: str


@functools.cache
def query_strings(minor: int) -> st.SearchStrategy[QueryString]:
    """Query strings of a minor version; one of ten is rejected.

    Each is drawn as a whole, since drawing its parts takes most of the time; short ones come first, for shrinking.
    """
    rng = random.Random(minor)
    texts = sorted([urlencode(_query(rng, minor)) for _ in range(64 * 64)], key=lambda text: (len(text), text))
    # Hypothesis draws evenly from a small range, but prefers the first numbers of a large one.
    index = st.integers(0, 63)
    return st.builds(lambda row, column: QueryString(minor, texts[64 * row + column]), index, index)


def parse(query: QueryString) -> Query:
    """Read a query string for the oracle.

    :raises RejectedError: if the answer is 400.
    """
    return oracle_parser.parse(query.text, query.minor, classes=CLASSES, traits=[*TRAITS, SHARES], names=_NAMES)


@st.composite
def queries(draw: st.DrawFn, minors: tuple[int, ...] = MINORS) -> Query:
    """A query that is accepted, at a microversion out of ``minors``."""
    try:
        return parse(draw(st.sampled_from(minors).flatmap(query_strings)))
    except RejectedError:
        reject()


def _query(rng: random.Random, minor: int) -> Pairs:
    pool = ['1', '2', '30'] if minor < 33 else ['_A', '_B', '1', '01', 'a-B_9']
    suffixes = rng.sample(pool, rng.choice([0, 1, 1, 2, 2, 3])) if minor >= 25 else []
    unsuffixed = not suffixes or rng.random() < 0.5
    bare: set[str] = set()
    pairs = _group(rng, minor) if unsuffixed else []
    group = _group(rng, minor)
    for suffix in suffixes:
        if minor >= 36 and (unsuffixed or suffix != suffixes[0]) and rng.random() < 0.3:
            bare.add(suffix)
            pairs += _with_suffix(_conditions(rng, minor, 0.8), suffix)
            continue
        # Equal groups can be exchanged.
        group = group if rng.random() < 0.2 else _group(rng, minor)
        pairs += _with_suffix(group, suffix)
    pairs += _whole(rng, suffixes, bare, minor)
    if rng.random() < 0.08:
        pairs.append(rng.choice(_MISTAKES))
    rng.shuffle(pairs)
    return pairs


def _with_suffix(pairs: Pairs, suffix: str) -> Pairs:
    return [(f'{parameter}{suffix}', value) for parameter, value in pairs]


def _group(rng: random.Random, minor: int) -> Pairs:
    classes = rng.choice([['VCPU'], ['DISK_GB'], ['VCPU', 'DISK_GB'], ['VCPU', 'MEMORY_MB'], ['MEMORY_MB'], CLASSES])
    value = ','.join(f'{name}:{rng.choice([1, 1, 1, 2, 3])}' for name in classes)
    return [('resources', value)] * (2 if rng.random() < 0.05 else 1) + _conditions(rng, minor, 0.3)


def _conditions(rng: random.Random, minor: int, chance_of_traits: float) -> Pairs:
    """``required``, ``member_of`` and ``in_tree`` of a group; perhaps none of them."""
    pairs: Pairs = []
    if minor >= 17 and rng.random() < chance_of_traits:
        pairs += [('required', _required(rng, minor)) for _ in range(rng.choice([1, 1, 2]))]
    if minor >= 21 and rng.random() < 0.4:
        pairs += [('member_of', _member_of(rng, minor)) for _ in range(rng.choice([1, 1, 2]) if minor >= 24 else 1)]
    if minor >= 31 and rng.random() < 0.2:
        pairs.append(('in_tree', uuid_of(rng.choice(['p0', 'p1', 'p2', 'p3', 'p4', 'p5', 'nobody']))))
    return pairs


def _required(rng: random.Random, minor: int) -> str:
    traits = rng.sample([*TRAITS, SHARES], rng.choice([1, 1, 2, 3]))
    if minor >= 39 and rng.random() < 0.5:
        return 'in:' + ' , '.join(traits)
    return ','.join(f'!{trait}' if minor >= 22 and rng.random() < 0.35 else trait for trait in traits[:2])


def _member_of(rng: random.Random, minor: int) -> str:
    aggregates = [uuid_of(name) for name in rng.sample([*AGGREGATES, 'nowhere'], rng.choice([1, 1, 2]))]
    if rng.random() < 0.1:
        aggregates[0] = aggregates[0].upper().replace('-', '')
    value = ('in:' if len(aggregates) > 1 or rng.random() < 0.2 else '') + ','.join(aggregates)
    return f'!{value}' if minor >= 32 and rng.random() < 0.4 else value


def _whole(rng: random.Random, suffixes: list[str], bare: set[str], minor: int) -> Pairs:
    """The parameters without suffix."""
    pairs: Pairs = []
    if len(suffixes) > 1 or (minor >= 25 and rng.random() < 0.2):
        pairs.append(('group_policy', rng.choice(['none', 'none', 'isolate'])))
    if minor >= 35 and rng.random() < 0.2:
        pairs.append(('root_required', _required(rng, 38)))
    if minor >= 36 and (bare or (suffixes and rng.random() < 0.3)):
        chosen = rng.sample(suffixes, rng.randint(0, len(suffixes)))
        pairs.append(('same_subtree', ','.join([*sorted(bare), *chosen] or suffixes)))
        if rng.random() < 0.25:
            pairs.append(('same_subtree', ' , '.join(rng.sample(suffixes, rng.randint(1, len(suffixes))))))
    if minor >= 16 and rng.random() < 0.2:
        pairs.append(('limit', rng.choice(['1', '2', '5'])))
    return pairs
