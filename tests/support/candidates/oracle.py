"""A brute-force model of the candidate search, written from the definitions of api-ref/candidate-search.md alone.

It shares no code with ``placement.candidates``: it tries every combination and keeps those that the text allows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

SHARES = 'MISC_SHARES_VIA_AGGREGATE'

#: One provider for an amount of one class.
Choice = tuple[str, str, int]

#: (provider name, class, amount) triples; one candidate.
Body = frozenset[tuple[str, str, int]]


@dataclass
class RP:
    """A provider of a test world; aggregates are short names."""

    name: str
    parent: str | None = None
    inventory: dict[str, dict[str, Any]] = field(default_factory=dict)
    traits: set[str] = field(default_factory=set)
    aggregates: set[str] = field(default_factory=set)


@dataclass
class Group:
    """A request group; ``number`` is '' for the unnumbered one."""

    number: str
    resources: dict[str, int]
    required: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    member_of: list[set[str]] = field(default_factory=list)


@dataclass
class Query:
    groups: list[Group]
    policy: str | None = None
    limit: int | None = None
    minor: int = 29


def record(
    total: int,
    reserved: int = 0,
    min_unit: int = 1,
    max_unit: int = 2147483647,
    step_size: int = 1,
    allocation_ratio: float = 1.0,
    used: int = 0,
) -> dict[str, Any]:
    """An inventory record with the defaults of api-ref/inventories.md#an-inventory."""
    return {
        'total': total,
        'reserved': reserved,
        'min_unit': min_unit,
        'max_unit': max_unit,
        'step_size': step_size,
        'allocation_ratio': allocation_ratio,
        'used': used,
    }


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


def flat(count: int) -> list[RP]:
    """Hosts that are all alike, in one aggregate."""
    return [
        rp(f'flat{number}', traits=['HW_CPU_X86_AVX2'], aggregates='all', VCPU=8, MEMORY_MB=8192)
        for number in range(count)
    ]


def assert_candidates(found: Sequence[Body], expected: Set[Body]) -> None:
    """Each expected candidate was found, once, and nothing else."""
    assert set(found) == expected, f'wrong: {set(found) - expected}, missing: {expected - set(found)}'
    assert len(found) == len(expected), 'some were found twice'


class Oracle:
    """Answers queries about one world by trying everything."""

    def __init__(self, world: list[RP]) -> None:
        self.rps = {rp.name: rp for rp in world}

    def root(self, name: str) -> str:
        parent = self.rps[name].parent
        return name if parent is None else self.root(parent)

    def tree(self, root: str) -> list[str]:
        return [name for name in self.rps if self.root(name) == root]

    def anchors(self, sharing: str) -> set[str]:
        aggregates = self.rps[sharing].aggregates
        return {self.root(name) for name, rp in self.rps.items() if rp.aggregates & aggregates}

    def capacity(self, name: str, rc: str) -> float:
        inv = self.rps[name].inventory[rc]
        return (inv['total'] - inv['reserved']) * inv['allocation_ratio']

    def room(self, name: str, rc: str, n: int) -> bool:
        inv = self.rps[name].inventory.get(rc)
        return (
            inv is not None
            and inv['used'] + n <= self.capacity(name, rc)
            and n >= inv['min_unit']
            and n <= inv['max_unit']
            and n % inv['step_size'] == 0
        )

    def inside(self, name: str, member_of: list[set[str]]) -> bool:
        return all(wanted & self.rps[name].aggregates for wanted in member_of)

    def reaching(self, root: str) -> list[str]:
        return [name for name, rp in self.rps.items() if SHARES in rp.traits and root in self.anchors(name)]

    def unnumbered_options(self, group: Group, root: str) -> list[tuple[Choice, ...]]:
        pools = []
        for rc, n in group.resources.items():
            pool = {
                name
                for name in self.tree(root)
                if self.room(name, rc, n) and (self.inside(name, group.member_of) or self.inside(root, group.member_of))
            }
            pool |= {s for s in self.reaching(root) if self.room(s, rc, n) and self.inside(s, group.member_of)}
            pools.append([(name, rc, n) for name in sorted(pool)])
        options = []
        for choice in itertools.product(*pools):
            traits = set().union(*(self.rps[name].traits for name, _, _ in choice))
            if group.required <= traits and not group.forbidden & traits:
                options.append(choice)
        return options

    def numbered_options(self, group: Group, root: str) -> list[tuple[Choice, ...]]:
        return [
            tuple((name, rc, n) for rc, n in group.resources.items())
            for name in sorted(set(self.tree(root)) | set(self.reaching(root)))
            if all(self.room(name, rc, n) for rc, n in group.resources.items())
            and group.required <= self.rps[name].traits
            and not group.forbidden & self.rps[name].traits
            and self.inside(name, group.member_of)
        ]

    def fits(self, merged: dict[tuple[str, str], int]) -> bool:
        return all(
            self.rps[name].inventory[rc]['used'] + n <= int(self.capacity(name, rc))
            and n <= self.rps[name].inventory[rc]['max_unit']
            for (name, rc), n in merged.items()
        )

    def candidates(self, query: Query) -> set[Body]:
        """Every candidate, without regard to the limit."""
        result = set()
        for root in {self.root(name) for name in self.rps}:
            options = [
                self.numbered_options(group, root) if group.number else self.unnumbered_options(group, root)
                for group in query.groups
            ]
            for choice in itertools.product(*options):
                numbered = [option[0][0] for group, option in zip(query.groups, choice, strict=True) if group.number]
                if query.policy == 'isolate' and len(set(numbered)) < len(numbered):
                    continue
                merged: dict[tuple[str, str], int] = {}
                for name, rc, n in itertools.chain(*choice):
                    merged[name, rc] = merged.get((name, rc), 0) + n
                if self.fits(merged) and (query.minor >= 29 or self.flat(merged)):
                    result.add(frozenset((name, rc, n) for (name, rc), n in merged.items()))
        return result

    def flat(self, merged: dict[tuple[str, str], int]) -> bool:
        """No two different providers of the same tree."""
        used = {name for name, _ in merged}
        return len({self.root(name) for name in used}) == len(used)

    def summaries(self, query: Query, bodies: set[Body]) -> dict[str, Any]:
        """The summaries that belong to these candidates, keyed by provider name; parents and roots are names too."""
        used = {name for body in bodies for name, _, _ in body}
        if query.minor >= 29:
            used = {name for one in used for name in self.tree(self.root(one))}
        asked = {rc for group in query.groups for rc in group.resources}
        return {name: self._summary(name, asked, query.minor) for name in used}

    def _summary(self, name: str, asked: set[str], minor: int) -> dict[str, Any]:
        rp = self.rps[name]
        shown: dict[str, Any] = {
            'resources': {
                rc: {'capacity': int(self.capacity(name, rc)), 'used': inv['used']}
                for rc, inv in rp.inventory.items()
                if minor >= 27 or rc in asked
            }
        }
        if minor >= 17:
            shown['traits'] = sorted(rp.traits)
        if minor >= 29:
            shown['parent_provider_uuid'] = rp.parent
            shown['root_provider_uuid'] = self.root(name)
        return shown
