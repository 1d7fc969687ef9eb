"""Topologies and queries that are hard to search: each would take hours, or gigabytes, without bounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from tests.support.search.oracle import RP, SHARES, Group, Query, record

#: A topology and a query.
Case = tuple[list[RP], Query]


def _devices(count: int, **totals: int) -> list[RP]:
    inventory = {rc: record(total) for rc, total in totals.items()}
    return [RP('root'), *(RP(f'd{number}', 'root', dict(inventory)) for number in range(count))]


def pigeonhole(holes: int) -> Case:
    """One group more than fit, with different amounts, no two of which fit together."""
    groups = [Group(str(n), {'VGPU': 50 * holes + n}) for n in range(1, holes + 2)]
    return _devices(holes, VGPU=100 * holes), Query(groups, 'none', 1)


def hidden_pigeonhole(holes: int) -> Case:
    """As ``pigeonhole``, but noticed only after a group has been placed that fits everywhere."""
    topology, query = pigeonhole(holes)
    topology[1].inventory['VCPU'] = record(1)
    query.groups[0] = Group('1', {'VGPU': 3 * holes})
    query.groups.append(Group('', {'VGPU': 50 * holes}))
    return topology, query


def wide(classes: int, children: int = 2) -> Case:
    """An unnumbered group of many classes, each on several children: ``each ** classes`` candidates."""
    topology = [RP('root')]
    for number in range(classes):
        topology += [RP(f'c{number}-{child}', 'root', {f'CUSTOM_C{number}': record(10)}) for child in range(children)]
    return topology, Query([Group('', {f'CUSTOM_C{number}': 1 for number in range(classes)})])


def satisfiability(variables: int, clauses: int, seed: int) -> Case:
    """A random 3-SAT formula: a class is a variable, its two children are true and false, a trait is a clause."""
    rng = random.Random(seed)
    topology, query = wide(variables)
    for clause in range(clauses):
        for variable in rng.sample(range(variables), 3):
            topology[1 + 2 * variable + rng.randrange(2)].traits.add(f'CUSTOM_T{clause}')
    query.groups[0].required = {f'CUSTOM_T{clause}' for clause in range(clauses)}
    query.limit = 1
    return topology, query


def packing(seed: int, bins: int = 12, groups: int = 40, classes: int = 1) -> Case:
    """Groups of random amounts that together take nearly the whole capacity."""
    rng = random.Random(seed)
    names = [f'CUSTOM_C{number}' for number in range(classes)]
    topology = _devices(bins, **dict.fromkeys(names, 1000))
    max_amount = 2 * 1000 * bins // groups - 25
    suffixed = [Group(str(number), {rc: rng.randint(1, max_amount) for rc in names}) for number in range(1, groups + 1)]
    return topology, Query(suffixed, 'none', 1)


def tied(seed: int, devices: int = 30, groups: int = 25, policy: str = 'none') -> Case:
    """Groups that require traits of few devices, and amounts of two classes."""
    rng = random.Random(seed)
    traits = [f'CUSTOM_T{number}' for number in range(8)]
    topology = _devices(devices, VGPU=100, VCPU=100)
    for provider in topology:
        provider.traits.update(rng.sample(traits, 3))
    suffixed = [
        Group(
            str(number),
            {'VGPU': rng.randint(20, 70), 'VCPU': rng.randint(20, 70)},
            set(rng.sample(traits, 1)),
            set(rng.sample(traits, 1)) if rng.random() < 0.3 else set(),
        )
        for number in range(1, groups + 1)
    ]
    for group in suffixed:
        group.forbidden -= group.required
    return topology, Query(suffixed, policy, 1)


def shared(seed: int, pools: int = 20, groups: int = 24) -> Case:
    """Groups that only sharing providers can serve, all in aggregates of one host."""
    rng = random.Random(seed)
    topology = [RP('host', None, {'VCPU': record(8)}, set(), {'all'})]
    topology += [
        RP(f'pool{n}', None, {'DISK_GB': record(rng.randint(80, 120))}, {SHARES}, {'all'}) for n in range(pools)
    ]
    suffixed = [Group(str(number), {'DISK_GB': rng.randint(30, 75)}) for number in range(1, groups + 1)]
    return topology, Query([Group('', {'VCPU': 1}), *suffixed], 'none', 1)


def clouds(case: Callable[[int], Case], trees: int, easy: Iterable[int] = ()) -> Case:
    """Many trees of one kind and different difficulty; those with a number in ``easy`` have large inventories."""
    topology: list[RP] = []
    query = Query([])
    easy = set(easy)
    for number in range(trees):
        tree, query = case(0)
        other, _ = case(number)
        for provider, like in zip(tree, other, strict=True):
            provider.traits = like.traits
            provider.name = f't{number}-{provider.name}'
            provider.parent = provider.parent and f't{number}-{provider.parent}'
            if number in easy:
                provider.inventory = {rc: {**inventory, 'total': 10**6} for rc, inventory in provider.inventory.items()}
        topology += tree
    return topology, query
