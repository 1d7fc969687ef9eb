"""Random clouds of a few hosts with consumers, and the placements that an exhaustive search finds in them."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from placement.capacity import InventoryRecord
from placement.db.api import Database
from tests.support import applications
from tests.support.clouds import Amounts, Cloud, Provider, create_cloud
from tests.support.fixtures import prepare

DISABLED, SHARES = 'COMPUTE_STATUS_DISABLED', 'MISC_SHARES_VIA_AGGREGATE'
KINDS = ('flat', 'shared', 'nested')


@contextlib.contextmanager
def stored(cloud: Cloud) -> Iterator[Database]:
    """A SQLite database of its own with a cloud."""
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, 'placement.sqlite')
        prepare(file)
        with applications.database(file) as db:
            create_cloud(db, cloud)
            yield db


def hosts_of(cloud: Cloud) -> list[str]:
    """The names of the hosts."""
    return [provider.name for provider in cloud.providers if provider.name.startswith('host') and not provider.parent]


def random_cloud(kind: str, seed: int, hosts: int = 4) -> Cloud:
    """A cloud whose consumers were placed by the capacity rule, so that an audit finds nothing."""
    rng = random.Random(f'{kind} {seed}')
    cloud = Cloud()
    racks = ('rack-0', 'rack-1')
    for number in range(rng.randint(2, hosts)):
        name = f'host-{number}'
        traits = [*rng.sample(['CUSTOM_RED', 'CUSTOM_BLUE'], rng.choice([0, 0, 1])), *[DISABLED] * (rng.random() < 0.1)]
        compute = {'VCPU': _inventory(rng, 8), 'MEMORY_MB': _inventory(rng, 12)}
        aggregates = tuple(rng.sample(racks, rng.choice([1, 1, 2])))
        if kind == 'nested':
            cloud.providers.append(Provider(name, {'DISK_GB': _inventory(rng, 10)}, tuple(traits), aggregates))
            for cell in range(rng.choice([1, 2, 2])):
                numa = {'VCPU': _inventory(rng, 5), 'MEMORY_MB': _inventory(rng, 7)}
                cloud.providers.append(Provider(f'{name}-numa{cell}', numa, parent=name))
        else:
            disk = {'DISK_GB': _inventory(rng, 10)} if kind == 'flat' or rng.random() < 0.1 else {}
            cloud.providers.append(Provider(name, {**compute, **disk}, tuple(traits), aggregates))
    if kind == 'shared':
        for number in range(rng.choice([1, 2])):
            reach = racks if rng.random() < 0.4 else (racks[number],)
            cloud.providers.append(Provider(f'pool-{number}', {'DISK_GB': _inventory(rng, 20)}, (SHARES,), reach))
    model = Model(cloud)
    for number in range(rng.randint(1, 3 * hosts)):
        amounts = {'VCPU': rng.randint(1, 4), 'MEMORY_MB': rng.randint(1, 5), 'DISK_GB': rng.randint(1, 4)}
        sizes: list[Amounts] = [{name: amounts[name]} for name in amounts if rng.random() < 0.9]
        if kind != 'nested' or rng.random() < 0.5:
            together = {name: n for size in sizes for name, n in size.items() if name != 'DISK_GB' or kind == 'flat'}
            sizes = [together, *[size for size in sizes if 'DISK_GB' in size and kind != 'flat']]
        sizes = [size for size in sizes if size]
        if sizes and (places := list(model.placements(sizes))):
            by_provider = rng.choice(places)
            cloud.allocations[f'consumer-{number}'] = dict(by_provider)
            model.add(by_provider)
    return cloud


def _inventory(rng: random.Random, largest: int) -> dict[str, Any]:
    return {
        'total': rng.randint(max(largest // 2, 1), largest),
        'reserved': rng.choice([0, 0, 0, 1]),
        'min_unit': rng.choice([1, 1, 1, 2]),
        'max_unit': rng.choice([largest, largest, largest, 3]),
        'step_size': rng.choice([1, 1, 1, 2]),
        'allocation_ratio': rng.choice([1.0, 1.0, 1.5]),
    }


@dataclass(frozen=True)
class Load:
    """What a consumer has on one tree: amounts by provider; the pools that it keeps; its other trees."""

    consumer: str
    tree: str
    roles: tuple[tuple[tuple[str, int], ...], ...]
    pools: frozenset[str]
    elsewhere: frozenset[str]


class Model:
    """The capacity rule and the rules of ``doc/plan.md``, provider by provider."""

    def __init__(self, cloud: Cloud, **options: bool) -> None:
        self.options = options
        self.providers = {provider.name: provider for provider in cloud.providers}
        self.trees: defaultdict[str, list[str]] = defaultdict(list)
        self.root: dict[str, str] = {}
        for provider in cloud.providers:
            self.root[provider.name] = self.root[provider.parent] if provider.parent else provider.name
            self.trees[self.root[provider.name]].append(provider.name)
        self.free: dict[tuple[str, str], int] = {}
        self.records: dict[tuple[str, str], InventoryRecord] = {}
        for provider in cloud.providers:
            for name, values in provider.inventories.items():
                self.records[provider.name, name] = record = InventoryRecord(**values)
                self.free[provider.name, name] = record.capacity
        for by_provider in cloud.allocations.values():
            self.add(by_provider)

    def add(self, by_provider: Mapping[str, Amounts], sign: int = 1) -> None:
        for provider, amounts in by_provider.items():
            for name, amount in amounts.items():
                self.free[provider, name] -= sign * amount

    def is_pool(self, provider: str) -> bool:
        return SHARES in self.providers[provider].traits

    def aggregates(self, tree: str) -> set[str]:
        return {name for member in self.trees[tree] for name in self.providers[member].aggregates}

    def traits(self, tree: str) -> set[str]:
        return {name for member in self.trees[tree] for name in self.providers[member].traits}

    def can_take(self, provider: str, amounts: Amounts) -> bool:
        """Whether a provider can allocate all of these amounts."""
        for name, amount in amounts.items():
            record = self.records.get((provider, name))
            if record is None or not record._replace(used=record.capacity - self.free[provider, name]).fits(amount):
                return False
        return True

    def placements(self, sizes: Sequence[Amounts]) -> Iterator[dict[str, dict[str, int]]]:
        """Yield where a new consumer fits, each size on one provider of a tree or on a pool in reach of the tree."""
        for tree in self.trees:
            reach = self.aggregates(tree)
            usable = [
                name
                for name, provider in self.providers.items()
                if (self.root[name] == tree) != (self.is_pool(name) and bool(reach & set(provider.aggregates)))
            ]
            if self.is_pool(tree) or DISABLED in self.providers[tree].traits:
                continue
            for providers in itertools.product(usable, repeat=len(sizes)):
                allocations: defaultdict[str, dict[str, int]] = defaultdict(dict)
                for provider, size in zip(providers, sizes, strict=True):
                    for name, amount in size.items():
                        allocations[provider][name] = allocations[provider].get(name, 0) + amount
                if all(self.can_take(provider, amounts) for provider, amounts in allocations.items()):
                    yield dict(allocations)

    def loads(self, cloud: Cloud, trees: Set[str]) -> list[Load]:
        """What consumers have on some trees."""
        loads = []
        for consumer, by_provider in cloud.allocations.items():
            trees_of_consumer = {self.root[provider] for provider in by_provider if not self.is_pool(provider)}
            pools = frozenset(provider for provider in by_provider if self.is_pool(provider))
            for tree in sorted(trees_of_consumer & trees):
                roles = [tuple(sorted(n.items())) for p, n in by_provider.items() if self.root[p] == tree]
                loads.append(Load(consumer, tree, tuple(sorted(roles)), pools, frozenset(trees_of_consumer - {tree})))
        return sorted(loads, key=lambda load: (load.roles, load.tree, sorted(load.pools), load.consumer))

    def fits(self, loads: Sequence[Load], excluded: Set[str]) -> bool:
        """Whether there is a placement of all loads on other trees."""
        impossible: set[object] = set()

        def place(index: int) -> bool:
            key = index, *self.free.values()
            if index == len(loads) or key in impossible:
                return index == len(loads)
            for allocations in self._places(loads[index], excluded):
                self.add(allocations)
                placed = place(index + 1)
                self.add(allocations, -1)
                if placed:
                    return True
            impossible.add(key)
            return False

        return place(0)

    def _places(self, load: Load, excluded: Set[str]) -> Iterator[dict[str, dict[str, int]]]:
        for tree in self.trees:
            if tree in excluded or tree in load.elsewhere or not self._accepts(load, tree):
                continue
            members = [member for member in self.trees[tree] if not self.is_pool(member)]
            choices = (
                itertools.permutations(members, len(load.roles))
                if self.options.get('isolate')
                else itertools.product(members, repeat=len(load.roles))
            )
            for providers in choices:
                allocations: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
                units = True
                for provider, role in zip(providers, load.roles, strict=True):
                    units &= all(self._allows(provider, *pair) for pair in role)
                    for name, amount in role:
                        allocations[provider][name] += amount
                # What comes together on one provider is one allocation, so ``max_unit`` limits the sum.
                sums = [(key, n) for p, by in allocations.items() for name, n in by.items() for key in [(p, name)]]
                if units and all(n <= min(self.free[key], self.records[key].max_unit) for key, n in sums):
                    yield {provider: dict(amounts) for provider, amounts in allocations.items()}

    def _allows(self, provider: str, name: str, amount: int) -> bool:
        record = self.records.get((provider, name))
        return record is not None and record._replace(used=0, allocation_ratio=1e6).fits(amount)

    def _accepts(self, load: Load, tree: str) -> bool:
        if self.is_pool(tree) or DISABLED in self.providers[tree].traits:
            return False
        reach = self.aggregates(tree)
        custom = {name for name in self.traits(load.tree) if name.startswith('CUSTOM_')}
        return (
            all(reach & set(self.providers[pool].aggregates) for pool in load.pools)
            and (not self.options.get('keep_traits') or custom <= self.traits(tree))
            and (not self.options.get('keep_aggregates') or self.aggregates(load.tree) <= reach)
        )
