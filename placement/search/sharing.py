"""The sharing providers that could serve a request, and the groups of them that reach trees of other providers.

The rules are in api-ref/candidate-search.md#sharing-providers-and-anchors.
"""

from __future__ import annotations

import functools
import operator
from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from placement.cache.providers import Provider
from placement.search.budget import StepCounter
from placement.search.requirements import CompiledRequest
from placement.search.search_units import Providers


class SharingGroup(NamedTuple):
    """Sharing providers of other trees that reach a tree, in order of id.

    ``bits`` has the ``CompiledRequest.bits`` of each, ``all_bits`` those that any of them has. Groups with equal
    ``number`` have equal assignments.
    """

    providers: Providers
    bits: tuple[int, ...]
    all_bits: int
    number: int


#: The group of a tree that no sharing provider reaches, if there are none.
NO_SHARING = SharingGroup((), (), 0, 0)


class SharingIndex:
    """Finds the sharing providers that reach a tree, by the aggregates of the tree.

    :param sharing: all sharing providers that are in an aggregate.
    :param counter: counts the steps of making groups.
    """

    def __init__(self, sharing: Iterable[Provider], compiled: CompiledRequest, counter: StepCounter) -> None:
        self._compiled = compiled
        self._counter = counter
        classes = compiled.request.classes
        # A sharing provider without the requested resources may serve a group without resources.
        any_class = not all(group.resources for group in compiled.request.groups)
        useful = [provider for provider in sharing if any_class or not classes.isdisjoint(provider.inventories)]
        #: The sharing providers that could serve a group, in order of id.
        self.providers: Providers = tuple(sorted(useful, key=operator.attrgetter('id')))
        self._members: defaultdict[str, list[Provider]] = defaultdict(list)
        for provider in self.providers:
            for aggregate in provider.aggregates:
                self._members[aggregate].append(provider)
        #: The aggregates with at least one of these providers.
        self.aggregates = frozenset(self._members)
        self._bits: dict[Provider, int] = {}
        self._groups: dict[frozenset[str], SharingGroup] = {}
        self._numbers: dict[Hashable, int] = {}

    def reaching(self, aggregates: frozenset[str]) -> SharingGroup:
        """Return the group of the providers that are in at least one of ``aggregates``."""
        aggregates &= self.aggregates
        group = self._groups.get(aggregates)
        if group is None:
            members = {provider.id: provider for name in aggregates for provider in self._members[name]}
            group = self._groups[aggregates] = self.group(tuple(members[id_] for id_ in sorted(members)))
        return group

    def group(self, providers: Providers) -> SharingGroup:
        """Return the group of ``providers``, which are in order of id.

        Its number stands for the same data that ``prefilter`` compares of the providers of trees (``_key_columns``).
        Below 1.29 it also depends on which of the providers are in the same tree.
        """
        request, limits = self._compiled.request, self._compiled.requested_sums.items()
        self._counter.count_setup(len(providers) * (1 + len(limits)))
        bits = tuple(map(self.bits_of, providers))
        key: list[Hashable] = [bits]
        for name, limit in limits:
            inventories = [provider.inventories.get(name) for provider in providers]
            key += [min(inventory.max_increase, limit) if inventory else 0 for inventory in inventories]
        if not request.nested_aware:
            numbers: dict[int, int] = {}
            key += [numbers.setdefault(provider.root_id, len(numbers)) for provider in providers]
        if request.same_subtree:
            self._counter.count_setup(sum(len(provider.ancestors) for provider in providers))
            indexes = {provider.id: index for index, provider in enumerate(providers)}
            key += [
                tuple(sorted([indexes[id_] for id_ in provider.ancestors if id_ in indexes])) for provider in providers
            ]
        number = self._numbers.setdefault(tuple(key), len(self._numbers))
        return SharingGroup(providers, bits, functools.reduce(operator.or_, bits, 0), number)

    def bits_of(self, provider: Provider) -> int:
        """Return the bits of a sharing provider in other trees; 0 if it satisfies no requirement."""
        bits = self._bits.get(provider)
        if bits is None:
            self._counter.count_setup(sum(len(requirement.conditions) for requirement in self._compiled.distinct))
            bits = self._bits[provider] = self._compiled.bits(provider, None)
        return bits
