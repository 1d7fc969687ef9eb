"""The worked examples of api-ref/candidate-examples.md, as data: worlds, queries, candidates and summaries.

Notation of that page: ``a{VCPU:1} + b{DISK_GB:2}`` is one candidate, ``;`` separates candidates. In queries
aggregates appear by name; whoever sends them puts uuids in their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.support.candidates.oracle import RP, SHARES, Body, record

RED, BLUE, AVX2 = 'CUSTOM_PHYS_RED', 'CUSTOM_PHYS_BLUE', 'HW_CPU_X86_AVX2'


class Example(NamedTuple):
    """One row of a table: what a query finds at a minor version, and whose summaries come with it."""

    world: str
    query: str
    candidates: str
    summaries: str
    minor: int = 29


def rp(
    name: str,
    parent: str | None = None,
    aggregates: str = '',
    traits: Iterable[str] = (),
    shares: bool = False,
    **inventory: int | dict[str, Any],
) -> RP:
    """A provider; inventory values are totals or ``record`` arguments."""
    return RP(
        name,
        parent,
        {rc: record(**value) if isinstance(value, dict) else record(value) for rc, value in inventory.items()},
        set(traits) | ({SHARES} if shares else set()),
        set(aggregates.split()),
    )


WORLDS = {
    'X1': [
        rp(
            'oak',
            traits=[AVX2],
            VCPU={'total': 6, 'allocation_ratio': 4.0, 'used': 20},
            MEMORY_MB={'total': 9000, 'reserved': 1000, 'min_unit': 128, 'step_size': 128},
            DISK_GB=120,
        ),
        rp(
            'elm',
            traits=[AVX2, 'CUSTOM_GREEN'],
            VCPU={'total': 12, 'allocation_ratio': 1.5},
            MEMORY_MB={'total': 6144, 'max_unit': 2048},
        ),
        rp('fir', VCPU={'total': 4, 'reserved': 1, 'used': 2}, MEMORY_MB=4096),
    ],
    'X2': [
        rp('mill1', aggregates='river', VCPU=8, MEMORY_MB=8192),
        rp('mill2', aggregates='river', VCPU=8, MEMORY_MB=8192, DISK_GB=60),
        rp('mill3', VCPU=8, MEMORY_MB=8192, DISK_GB=300),
        rp('mill4', VCPU=8, MEMORY_MB=8192),
        rp(
            'granary',
            aggregates='river',
            shares=True,
            traits=['STORAGE_DISK_SSD'],
            DISK_GB={'total': 2000, 'reserved': 200, 'used': 300},
        ),
        rp('silo', shares=True, DISK_GB=900),
    ],
    'X3': [
        rp('quay1', aggregates='east salt', VCPU=4),
        rp('quay2', aggregates='east west', VCPU=4),
        rp('vault', aggregates='east', shares=True, traits=['CUSTOM_FAST'], DISK_GB=500),
        rp('cellar', aggregates='west', shares=True, traits=['CUSTOM_SLOW'], DISK_GB=500, IPV4_ADDRESS=20),
        rp('toll', aggregates='salt', shares=True, IPV4_ADDRESS=10),
    ],
    'X4': [
        rp('barge', aggregates='fleet', MEMORY_MB=16384, DISK_GB=200),
        rp('deck0', 'barge', traits=[AVX2], VCPU=4),
        rp('oar0', 'deck0', traits=[RED], SRIOV_NET_VF=4),
        rp('deck1', 'barge', VCPU=4),
        rp('oar1', 'deck1', traits=[BLUE], SRIOV_NET_VF={'total': 2, 'used': 1}),
        rp('mast', 'barge'),
        rp('hold', aggregates='fleet', shares=True, DISK_GB=1000),
        rp('skiff', VCPU=2, MEMORY_MB=2048),
    ],
    'X5': [
        rp('kiln1', aggregates='clay', VCPU=8, MEMORY_MB=4096, DISK_GB=400),
        rp('kiln2', aggregates='clay ash', VCPU=8, MEMORY_MB=4096),
        rp('shelfA', aggregates='clay', shares=True, traits=['CUSTOM_FAST'], DISK_GB=1000),
        rp('shelfB', aggregates='ash', shares=True, DISK_GB={'total': 1000, 'max_unit': 150}),
    ],
    'X6': [
        rp('tower', aggregates='north', MEMORY_MB=8192),
        rp('floorA', 'tower', aggregates='lift', VCPU=8),
        rp('floorB', 'tower', VCPU=8),
        rp('annex', aggregates='north lift', VCPU=8, MEMORY_MB=8192),
        rp('shed', aggregates='lift', VCPU=8, MEMORY_MB=8192, DISK_GB=100),
        rp('well', aggregates='north', shares=True, DISK_GB=500),
        rp('spring', aggregates='lift', shares=True, DISK_GB=500),
    ],
    'X7': [
        rp('press', VCPU={'total': 8, 'max_unit': 5}, MEMORY_MB=4096, VGPU={'total': 4, 'max_unit': 2}),
        rp('loom', VCPU={'total': 6, 'used': 1}, MEMORY_MB=4096, VGPU=4),
    ],
    'X8': [
        rp('inn1', aggregates='road', VCPU=4),
        rp('inn2', aggregates='road', VCPU=4),
        rp('gate', aggregates='road mail', VCPU=1),
        rp('stable', aggregates='road', shares=True, DISK_GB=800),
        rp('post', aggregates='mail', shares=True, IPV4_ADDRESS=50),
    ],
    'X9': [
        rp('stall3', VCPU=16, MEMORY_MB=32768, DISK_GB=400),
        rp('stall3-leases', 'stall3', CUSTOM_LEASE_7F={'total': 3, 'max_unit': 1}),
        rp('stall4', VCPU=16, MEMORY_MB=32768, DISK_GB=400),
    ],
}
_LEASED = [
    rp('stall3', VCPU={'total': 16, 'used': 6}, MEMORY_MB={'total': 32768, 'used': 3072}, DISK_GB=400),
    rp('stall3-leases', 'stall3', CUSTOM_LEASE_7F={'total': 3, 'max_unit': 1, 'used': 3}),
    rp('stall4', VCPU=16, MEMORY_MB=32768, DISK_GB=400),
]
WORLDS['X9 leased'] = _LEASED


def _each(amounts: str, *names: str) -> str:
    return '; '.join(f'{name}{{{amounts}}}' for name in names)


def _x1() -> Iterator[Example]:
    def row(resources: str, extra: str, *hosts: str) -> Example:
        return Example('X1', f'resources={resources}{extra}', _each(resources, *hosts), ' '.join(hosts))

    small = 'VCPU:1,MEMORY_MB:1024'
    yield row(small, '', 'oak', 'elm', 'fir')
    yield row('VCPU:2,MEMORY_MB:1024', '', 'oak', 'elm')
    yield row('VCPU:4,MEMORY_MB:1024', '', 'oak', 'elm')
    yield row('VCPU:5,MEMORY_MB:1024', '', 'elm')
    yield row('VCPU:1,MEMORY_MB:1000', '', 'elm', 'fir')
    yield row('VCPU:1,MEMORY_MB:4096', '', 'oak', 'fir')
    yield row(small, f'&required={AVX2},!CUSTOM_GREEN', 'oak')
    for minor in (10, 12, 17, 27):
        yield row('VCPU:4,MEMORY_MB:1024', '', 'oak', 'elm')._replace(minor=minor)


def _x2() -> Iterator[Example]:
    h = 'VCPU:2,MEMORY_MB:2048'
    disk = 'granary{DISK_GB:50}'
    shared = f'mill1{{{h}}} + {disk}; mill2{{{h}}} + {disk}'
    own = f'mill2{{{h},DISK_GB:50}}; mill3{{{h},DISK_GB:50}}'
    query = f'resources={h},DISK_GB:50'
    yield Example('X2', query, f'{shared}; {own}', 'mill1 mill2 mill3 granary')
    yield Example('X2', query, f'{shared}; {own}', 'mill1 mill2 mill3 granary', 26)
    yield Example('X2', f'{query}&required=STORAGE_DISK_SSD', shared, 'mill1 mill2 granary')
    yield Example('X2', f'{query}&required=!{SHARES}', own, 'mill2 mill3')
    yield Example('X2', f'resources1={h},DISK_GB:50', own, 'mill2 mill3')
    yield Example('X2', 'resources=DISK_GB:400', 'granary{DISK_GB:400}; silo{DISK_GB:400}', 'granary silo')


def _x3() -> Iterator[Example]:
    v, c = 'vault{DISK_GB:100}', 'cellar{DISK_GB:100}'
    one = 'resources=VCPU:1,DISK_GB:100'
    yield Example(
        'X3',
        one,
        f'quay1{{VCPU:1}} + {v}; quay2{{VCPU:1}} + {v}; quay2{{VCPU:1}} + {c}',
        'quay1 quay2 vault cellar',
    )
    yield Example(
        'X3', f'{one}&required=CUSTOM_FAST', f'quay1{{VCPU:1}} + {v}; quay2{{VCPU:1}} + {v}', 'quay1 quay2 vault'
    )
    yield Example('X3', f'{one}&required=!CUSTOM_FAST', f'quay2{{VCPU:1}} + {c}', 'quay2 cellar')
    fast_slow = f'quay2{{VCPU:1}} + {v} + cellar{{IPV4_ADDRESS:2}}'
    three = 'resources=VCPU:1,DISK_GB:100,IPV4_ADDRESS:2'
    yield Example(
        'X3',
        three,
        f'quay1{{VCPU:1}} + {v} + toll{{IPV4_ADDRESS:2}}; {fast_slow};'
        ' quay2{VCPU:1} + cellar{DISK_GB:100,IPV4_ADDRESS:2}',
        'quay1 quay2 vault cellar toll',
    )
    yield Example('X3', f'{three}&required=CUSTOM_FAST,CUSTOM_SLOW', fast_slow, 'quay2 vault cellar')
    yield Example(
        'X3',
        'resources=DISK_GB:100,IPV4_ADDRESS:2',
        f'{v} + toll{{IPV4_ADDRESS:2}}; {v} + cellar{{IPV4_ADDRESS:2}}; cellar{{DISK_GB:100,IPV4_ADDRESS:2}}',
        'vault cellar toll',
    )


def _x4() -> Iterator[Example]:
    tree = 'barge deck0 deck1 oar0 oar1 mast'
    m, v = 'barge{MEMORY_MB:1024}', 'SRIOV_NET_VF'
    two = f'resources=VCPU:2,MEMORY_MB:1024,{v}'
    yield Example(
        'X4',
        f'{two}:1',
        '; '.join(f'{m} + deck{d}{{VCPU:2}} + oar{o}{{{v}:1}}' for d in '01' for o in '01'),
        tree,
    )
    yield Example('X4', f'{two}:2', '; '.join(f'{m} + deck{d}{{VCPU:2}} + oar0{{{v}:2}}' for d in '01'), tree)
    yield Example('X4', f'{two}:1', '', '', 28)
    cell = f'resources=VCPU:2,{v}:1'
    yield Example('X4', f'{cell}&required={AVX2},{BLUE}', f'deck0{{VCPU:2}} + oar1{{{v}:1}}', tree)
    both = f'deck0{{VCPU:2}} + oar1{{{v}:1}}; deck1{{VCPU:2}} + oar1{{{v}:1}}'
    yield Example('X4', f'{cell}&required=!{RED}', both, tree)
    decks = _each('VCPU:2', 'deck0', 'deck1', 'skiff')
    yield Example('X4', f'resources=VCPU:2&required=!{RED}', decks, f'{tree} skiff')
    yield Example('X4', 'resources=VCPU:2', decks, 'deck0 deck1 skiff', 28)
    pair = 'resources=VCPU:2,MEMORY_MB:1024'
    skiff = 'skiff{VCPU:2,MEMORY_MB:1024}'
    yield Example('X4', pair, f'{m} + deck0{{VCPU:2}}; {m} + deck1{{VCPU:2}}; {skiff}', f'{tree} skiff')
    yield Example('X4', pair, skiff, 'skiff', 28)
    disk = 'resources=VCPU:2,DISK_GB:100'
    shared = 'deck0{VCPU:2} + hold{DISK_GB:100}; deck1{VCPU:2} + hold{DISK_GB:100}'
    own = 'deck0{VCPU:2} + barge{DISK_GB:100}; deck1{VCPU:2} + barge{DISK_GB:100}'
    yield Example('X4', disk, f'{own}; {shared}', f'{tree} hold')
    yield Example('X4', disk, shared, 'deck0 deck1 hold', 28)
    red = f'deck0{{VCPU:2}} + oar0{{{v}:1}}; deck1{{VCPU:2}} + oar0{{{v}:1}}'
    yield Example('X4', f'resources=VCPU:2&resources1={v}:1&required1={RED}', red, tree)
    split = f'oar0{{{v}:1}} + oar1{{{v}:1}}'
    groups = f'resources1={v}:1&resources2={v}:1&group_policy='
    yield Example('X4', f'{groups}isolate', split, tree)
    yield Example('X4', f'{groups}none', f'{split}; oar0{{{v}:2}}', tree)
    yield Example('X4', f'{groups}none', f'oar0{{{v}:2}}', 'oar0', 28)
    yield Example('X4', f'{groups}isolate', '', '', 28)
    # The rows that X7 adds.
    for policy in ('', '&group_policy=none'):
        yield Example('X4', f'resources={v}:1&resources1={v}:1{policy}', f'oar0{{{v}:2}}; {split}', tree)


def _x5() -> Iterator[Example]:
    h = 'VCPU:1,MEMORY_MB:512'
    everybody = 'kiln1 kiln2 shelfA shelfB'

    def shared(amounts: str) -> str:
        return (
            f'kiln1{{{amounts}}} + shelfA{{DISK_GB:100}}; kiln2{{{amounts}}} + shelfA{{DISK_GB:100}};'
            f' kiln2{{{amounts}}} + shelfB{{DISK_GB:100}}'
        )

    first = f'resources1={h}&resources2=DISK_GB:100&group_policy='
    four = f'kiln1{{{h},DISK_GB:100}}; {shared(h)}'
    for minor in (25, 29):
        yield Example('X5', f'{first}none', four, everybody, minor)
    yield Example('X5', f'{first}isolate', shared(h), everybody)
    for policy in ('', '&group_policy=isolate'):
        yield Example('X5', f'resources={h}&resources1=DISK_GB:100{policy}', four, everybody)
    plain = f'kiln1{{VCPU:1,DISK_GB:100}}; {shared("VCPU:1")}'
    yield Example('X5', 'resources1=VCPU:1&resources2=DISK_GB:100&group_policy=none', plain, everybody, 25)
    disks = 'resources=VCPU:1&resources1=DISK_GB:100&resources2=DISK_GB:90&group_policy='
    apart = (
        'kiln1{VCPU:1,DISK_GB:100} + shelfA{DISK_GB:90}; kiln1{VCPU:1,DISK_GB:90} + shelfA{DISK_GB:100};'
        ' kiln2{VCPU:1} + shelfA{DISK_GB:100} + shelfB{DISK_GB:90};'
        ' kiln2{VCPU:1} + shelfA{DISK_GB:90} + shelfB{DISK_GB:100}'
    )
    merged = 'kiln1{VCPU:1,DISK_GB:190}; kiln1{VCPU:1} + shelfA{DISK_GB:190}; kiln2{VCPU:1} + shelfA{DISK_GB:190}'
    yield Example('X5', f'{disks}isolate', apart, everybody)
    yield Example('X5', f'{disks}none', f'{apart}; {merged}', everybody)
    yield Example(
        'X5',
        'resources=VCPU:1&resources1=DISK_GB:100&required1=CUSTOM_FAST'
        '&resources2=DISK_GB:90&required2=!CUSTOM_FAST&group_policy=isolate',
        'kiln1{VCPU:1,DISK_GB:90} + shelfA{DISK_GB:100}; kiln2{VCPU:1} + shelfA{DISK_GB:100} + shelfB{DISK_GB:90}',
        everybody,
    )
    split = 'resources1=VCPU:1&resources2=MEMORY_MB:512&group_policy='
    yield Example('X5', f'{split}isolate', '', '')
    yield Example('X5', f'{split}none', _each(h, 'kiln1', 'kiln2'), 'kiln1 kiln2')
    yield Example('X5', 'resources1=DISK_GB:500', 'shelfA{DISK_GB:500}', 'shelfA')


def _x6() -> Iterator[Example]:
    tower = 'tower floorA floorB'

    def row(extra: str, names: str, summaries: str) -> Example:
        return Example('X6', f'resources=VCPU:1{extra}', _each('VCPU:1', *names.split()), summaries)

    yield row('', 'floorA floorB annex shed', f'{tower} annex shed')
    yield row('&member_of=north', 'floorA floorB annex', f'{tower} annex')
    yield row('&member_of=lift', 'floorA annex shed', f'{tower} annex shed')
    yield row('&member_of=in:north,lift', 'floorA floorB annex shed', f'{tower} annex shed')
    yield row('&member_of=north&member_of=lift', 'annex', 'annex')
    yield row('&member_of=nowhere', '', '')
    yield row('&member_of=in:nowhere,lift', 'floorA annex shed', f'{tower} annex shed')
    numbered = 'resources1=VCPU:1&member_of1='
    yield Example('X6', f'{numbered}north', 'annex{VCPU:1}', 'annex')
    yield Example('X6', f'{numbered}lift', _each('VCPU:1', 'floorA', 'annex', 'shed'), f'{tower} annex shed')
    both = 'VCPU:1,MEMORY_MB:512'
    yield Example('X6', f'resources={both}&member_of=lift', _each(both, 'annex', 'shed'), 'annex shed')

    def disk(shed: bool, *pairs: str) -> str:
        found = [f'{host}{{VCPU:1}} + {shared}{{DISK_GB:50}}' for host, shared in map(str.split, pairs)]
        return '; '.join(found + ['shed{VCPU:1,DISK_GB:50}'] * shed)

    query = 'resources=VCPU:1,DISK_GB:50'
    hosts = ('floorA', 'floorB', 'annex')
    eight = disk(True, *(f'{host} {shared}' for host in hosts for shared in ('spring', 'well')), 'shed spring')
    yield Example('X6', query, eight, f'{tower} annex shed well spring')
    yield Example(
        'X6', f'{query}&member_of=north', disk(False, *(f'{host} well' for host in hosts)), f'{tower} annex well'
    )
    lift = disk(True, 'floorA spring', 'annex spring', 'shed spring')
    yield Example('X6', f'{query}&member_of=lift', lift, f'{tower} annex shed spring')
    yield Example('X6', f'{query}&member_of=north&member_of=lift', '', '')
    yield Example('X6', f'{query}&member_of=in:north,lift', eight, f'{tower} annex shed well spring')
    yield Example(
        'X6',
        f'resources={both},DISK_GB:50&member_of=lift',
        f'annex{{{both}}} + spring{{DISK_GB:50}}; shed{{{both},DISK_GB:50}}; shed{{{both}}} + spring{{DISK_GB:50}}',
        'annex shed spring',
    )
    five = disk(True, *(f'{host} spring' for host in (*hosts, 'shed')))
    yield Example('X6', 'resources=VCPU:1&resources1=DISK_GB:50&member_of1=lift', five, f'{tower} annex shed spring')


def _x7() -> Iterator[Example]:
    def row(c: str, first: int, second: int, third: int, candidates: str, names: str) -> Example:
        query = f'resources={c}:{first}&resources1={c}:{second}&resources2={c}:{third}&group_policy=none'
        return Example('X7', query, candidates, names)

    yield row('VCPU', 2, 2, 1, 'press{VCPU:5}; loom{VCPU:5}', 'press loom')
    yield row('VCPU', 2, 2, 2, '', '')
    yield row('VGPU', 1, 1, 1, 'loom{VGPU:3}', 'loom')


def _x8() -> Iterator[Example]:
    together = 'stable{DISK_GB:10} + post{IPV4_ADDRESS:1}'
    yield Example('X8', 'resources=DISK_GB:10,IPV4_ADDRESS:1', together, 'stable post')
    groups = 'resources1=DISK_GB:10&resources2=IPV4_ADDRESS:1&group_policy=isolate'
    yield Example('X8', groups, together, 'stable post')
    yield Example('X8', 'resources1=DISK_GB:10', 'stable{DISK_GB:10}', 'stable')
    three = '; '.join(f'{host}{{VCPU:1}} + stable{{DISK_GB:10}}' for host in ('inn1', 'inn2', 'gate'))
    for query in (
        'resources1=VCPU:1&resources2=DISK_GB:10&group_policy=isolate',
        'resources=DISK_GB:10&resources1=VCPU:1',
    ):
        yield Example('X8', query, three, 'inn1 inn2 gate stable')


def _x9() -> Iterator[Example]:
    query = 'resources=VCPU:2,MEMORY_MB:1024,CUSTOM_LEASE_7F:'
    lease = 'stall3{VCPU:2,MEMORY_MB:1024} + stall3-leases{CUSTOM_LEASE_7F:1}'
    yield Example('X9', f'{query}1', lease, 'stall3 stall3-leases')
    yield Example('X9', f'{query}1', '', '', 28)
    yield Example('X9', f'{query}2', '', '')
    yield Example('X9 leased', f'{query}1', '', '')


EXAMPLES: list[Example] = [example for table in (_x1, _x2, _x3, _x4, _x5, _x6, _x7, _x8, _x9) for example in table()]


def bodies(text: str) -> set[Body]:
    """Read the notation of the page."""
    found = set()
    for candidate in filter(None, map(str.strip, text.split(';'))):
        body = set()
        for name, amounts in re.findall(r'([\w-]+)\{([^}]*)\}', candidate):
            for item in amounts.split(','):
                rc, amount = item.split(':')
                body.add((name, rc, int(amount)))
        found.add(frozenset(body))
    return found
