"""A brute-force model of the candidate search, written from the definitions of api-ref/candidate-search.md alone.

It shares no code with ``placement.search``: it tries every combination and keeps those that the text allows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

SHARES = 'MISC_SHARES_VIA_AGGREGATE'

#: What a test compares: the allocations of candidates, or also their mappings.
Found = TypeVar('Found')

#: One provider for an amount of one class.
Choice = tuple[str, str, int]

#: (provider name, class, amount) triples: the ``allocations`` of a candidate.
Body = frozenset[tuple[str, str, int]]

#: (suffix, providers) pairs: the ``mappings`` of a candidate.
Mappings = frozenset[tuple[str, frozenset[str]]]


class Entry(NamedTuple):
    """An element of ``allocation_requests``; below 1.34 it has no mappings."""

    body: Body
    mappings: Mappings | None = None


class Option(NamedTuple):
    """What one group may use at an anchor: its providers, and the amounts of them."""

    providers: frozenset[str]
    choices: tuple[Choice, ...]


@dataclass
class RP:
    """A provider of a test topology; aggregates are short names."""

    name: str
    parent: str | None = None
    inventory: dict[str, dict[str, Any]] = field(default_factory=dict)
    traits: set[str] = field(default_factory=set)
    aggregates: set[str] = field(default_factory=set)


@dataclass
class Group:
    """A request group; the suffix of the unsuffixed one is empty.

    :ivar any_of: the sets of ``required=in:...``.
    :ivar not_member_of: the aggregates of ``member_of=!...``.
    :ivar in_tree: the name of a provider, which need not exist.
    """

    suffix: str
    resources: dict[str, int]
    required: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    member_of: list[set[str]] = field(default_factory=list)
    any_of: list[set[str]] = field(default_factory=list)
    not_member_of: set[str] = field(default_factory=set)
    in_tree: str | None = None


@dataclass
class Query:
    groups: list[Group]
    policy: str | None = None
    limit: int | None = None
    minor: int = 29
    root_required: set[str] = field(default_factory=set)
    root_forbidden: set[str] = field(default_factory=set)
    same_subtree: list[set[str]] = field(default_factory=list)


def record(total: int, **fields: float) -> dict[str, Any]:
    """An inventory record with the defaults of api-ref/inventories.md#an-inventory."""
    defaults = {'reserved': 0, 'min_unit': 1, 'max_unit': 2147483647, 'step_size': 1, 'allocation_ratio': 1.0}
    assert fields.keys() <= {*defaults, 'used'}
    return {'total': total, **defaults, 'used': 0, **fields}


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


def assert_candidates(candidates: Sequence[Found], expected: Set[Found]) -> None:
    """Each expected candidate was found, once, and nothing else."""
    assert set(candidates) == expected, f'wrong: {set(candidates) - expected}, missing: {expected - set(candidates)}'
    assert len(candidates) == len(expected), 'some were found twice'


class Oracle:
    """Answers queries about one topology by trying everything."""

    def __init__(self, topology: list[RP]) -> None:
        self.rps = {rp.name: rp for rp in topology}

    def line(self, name: str) -> list[str]:
        """The provider and those above it; its root is the last one."""
        parent = self.rps[name].parent
        return [name] if parent is None else [name, *self.line(parent)]

    def root(self, name: str) -> str:
        return self.line(name)[-1]

    def tree(self, root: str) -> list[str]:
        return [name for name in self.rps if self.root(name) == root]

    def anchors(self, sharing: str) -> set[str]:
        aggregates = self.rps[sharing].aggregates
        return {self.root(name) for name, rp in self.rps.items() if rp.aggregates & aggregates}

    def capacity(self, name: str, rc: str) -> float:
        inv = self.rps[name].inventory[rc]
        return (inv['total'] - inv['reserved']) * inv['allocation_ratio']

    def can_allocate(self, name: str, rc: str, n: int) -> bool:
        inv = self.rps[name].inventory.get(rc)
        return (
            inv is not None
            and inv['used'] + n <= self.capacity(name, rc)
            and n >= inv['min_unit']
            and n <= inv['max_unit']
            and n % inv['step_size'] == 0
        )

    def inside(self, name: str, member_of: list[set[str]]) -> bool:
        return all(aggregates & self.rps[name].aggregates for aggregates in member_of)

    def outside(self, name: str, group: Group) -> bool:
        """The provider is in none of the forbidden aggregates of the group."""
        return not group.not_member_of & self.rps[name].aggregates

    def in_requested_tree(self, name: str, group: Group) -> bool:
        """The provider is in the tree that the group names, if it names one."""
        if group.in_tree is None:
            return True
        return group.in_tree in self.rps and self.root(group.in_tree) == self.root(name)

    def may_use(self, name: str, group: Group) -> bool:
        """What a group says about single providers, except for amounts, traits and required aggregates, holds."""
        return self.outside(name, group) and self.in_requested_tree(name, group)

    def traits_satisfy(self, traits: set[str], group: Group) -> bool:
        return (
            group.required <= traits
            and not group.forbidden & traits
            and all(alternatives & traits for alternatives in group.any_of)
        )

    def reaching(self, root: str) -> list[str]:
        return [name for name, rp in self.rps.items() if SHARES in rp.traits and root in self.anchors(name)]

    def is_anchor(self, root: str, query: Query) -> bool:
        traits = self.rps[root].traits
        return query.root_required <= traits and not query.root_forbidden & traits

    def unsuffixed_options(self, group: Group, root: str) -> list[Option]:
        if not self.outside(root, group):
            return []
        in_aggregates = self.inside(root, group.member_of)
        pool = {name for name in self.tree(root) if in_aggregates or self.inside(name, group.member_of)}
        if group.in_tree is None:
            pool |= {name for name in self.reaching(root) if self.inside(name, group.member_of)}
        pool = {name for name in pool if self.may_use(name, group)}
        pools = [
            [(name, rc, n) for name in sorted(pool) if self.can_allocate(name, rc, n)]
            for rc, n in group.resources.items()
        ]
        options = []
        for choice in itertools.product(*pools):
            providers = frozenset(name for name, _, _ in choice)
            if self.traits_satisfy(set().union(*(self.rps[name].traits for name in providers)), group):
                options.append(Option(providers, choice))
        return options

    def suffixed_options(self, group: Group, root: str) -> list[Option]:
        """One provider each; that of a group without resources supplies nothing."""
        return [
            Option(frozenset({name}), tuple((name, rc, n) for rc, n in group.resources.items()))
            for name in sorted(set(self.tree(root)) | set(self.reaching(root)))
            if all(self.can_allocate(name, rc, n) for rc, n in group.resources.items())
            and self.traits_satisfy(self.rps[name].traits, group)
            and self.inside(name, group.member_of)
            and self.may_use(name, group)
        ]

    def in_one_subtree(self, providers: Set[str]) -> bool:
        """One of the providers is above all of them, or is all of them."""
        return bool(frozenset.intersection(*[frozenset(self.line(name)) for name in providers]) & providers)

    def fits(self, merged: dict[tuple[str, str], int]) -> bool:
        return all(
            self.rps[name].inventory[rc]['used'] + n <= int(self.capacity(name, rc))
            and n <= self.rps[name].inventory[rc]['max_unit']
            for (name, rc), n in merged.items()
        )

    def candidates(self, query: Query) -> set[Body]:
        """The allocations of every candidate, without regard to the limit."""
        return {entry.body for entry in self.entries(query)}

    def entries(self, query: Query) -> set[Entry]:
        """Every element of ``allocation_requests``, without regard to the limit."""
        roots = {self.root(name) for name in self.rps}
        return {entry for root in roots for entry in self.entries_in_tree(query, root)}

    def entries_in_tree(self, query: Query, root: str) -> Iterator[Entry]:
        """The elements of ``entries`` with providers of one tree, and providers that are shared with it."""
        if not self.is_anchor(root, query):
            return
        options = [
            self.suffixed_options(group, root) if group.suffix else self.unsuffixed_options(group, root)
            for group in query.groups
        ]
        for choice in itertools.product(*options):
            chosen = {group.suffix: option for group, option in zip(query.groups, choice, strict=True)}
            entry = self._entry(query, chosen)
            if entry is not None:
                yield entry

    def _entry(self, query: Query, chosen: dict[str, Option]) -> Entry | None:
        """The candidate of one option for each group, or None if they do not go together."""
        suffixed = [name for suffix, option in chosen.items() if suffix for name in option.providers]
        if query.policy == 'isolate' and len(set(suffixed)) < len(suffixed):
            return None
        for suffixes in query.same_subtree:
            if not self.in_one_subtree(frozenset().union(*(chosen[suffix].providers for suffix in suffixes))):
                return None
        merged: dict[tuple[str, str], int] = {}
        for option in chosen.values():
            for name, rc, n in option.choices:
                merged[name, rc] = merged.get((name, rc), 0) + n
        if not self.fits(merged) or (query.minor < 29 and not self.flat(merged)):
            return None
        body = frozenset((name, rc, n) for (name, rc), n in merged.items())
        mappings = frozenset((suffix, option.providers) for suffix, option in chosen.items())
        return Entry(body, mappings if query.minor >= 34 else None)

    def flat(self, merged: dict[tuple[str, str], int]) -> bool:
        """No two different providers of the same tree."""
        used = {name for name, _ in merged}
        return len({self.root(name) for name in used}) == len(used)

    def summaries(self, query: Query, bodies: set[Body]) -> dict[str, Any]:
        """The summaries that belong to these candidates, keyed by provider name; parents and roots are names too."""
        used = {name for body in bodies for name, _, _ in body}
        if query.minor >= 29:
            used = {name for member in used for name in self.tree(self.root(member))}
        requested = {rc for group in query.groups for rc in group.resources}
        return {name: self._summary(name, requested, query.minor) for name in used}

    def _summary(self, name: str, requested: set[str], minor: int) -> dict[str, Any]:
        rp = self.rps[name]
        shown: dict[str, Any] = {
            'resources': {
                rc: {'capacity': int(self.capacity(name, rc)), 'used': inv['used']}
                for rc, inv in rp.inventory.items()
                if minor >= 27 or rc in requested
            }
        }
        if minor >= 17:
            shown['traits'] = sorted(rp.traits)
        if minor >= 29:
            shown['parent_provider_uuid'] = rp.parent
            shown['root_provider_uuid'] = self.root(name)
        return shown
