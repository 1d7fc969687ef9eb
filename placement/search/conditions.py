"""Conditions on single providers: an amount of a resource class, required or forbidden traits or aggregates, the tree.

A *requirement* has all conditions that one provider has to satisfy. Requirements and conditions are evaluated in two
ways, ``matches`` and ``accepts`` (see ``ProviderCondition``). The other members of a condition are what ``ops/explain``
needs of every kind. By type it asks only for the provider closest to an amount (``ResourceCondition``), aggregates that
the root may have instead (``AggregateCondition``), and similar names (``TraitCondition``).
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from placement.cache.providers import DISABLED_TRAIT, SHARING_TRAIT, Provider

if TYPE_CHECKING:
    # The solver imports this module, and import-linter rejects every chain of imports from the solver to numpy.
    from placement.cache.dictionary_columns import NameSetColumn
    from placement.cache.inventory_columns import Flags
    from placement.cache.partition import Partition

#: The providers for which an operation on a column takes one step: about as long as a step of the solver.
PROVIDERS_PER_STEP = 128
#: Required or forbidden, these traits tell what a provider is doing, not what it is: the compute service sets and
#: removes them while the host stays the same.
STATE_TRAITS = frozenset({DISABLED_TRAIT})


class Fault(enum.StrEnum):
    """What is wrong with a provider that violates a condition. An amount has the last three, from worst to best."""

    VIOLATED = 'violated'
    #: It has no inventory of the class.
    ABSENT = 'absent'
    #: It could not allocate the amount even if nothing was used: the total capacity or the units do not allow it.
    TOO_SMALL = 'too_small'
    #: It could allocate the amount, but too much is used.
    FULL = 'full'


class ProviderCondition:
    """A rule about a single provider. What all conditions of a kind have in common is an attribute of its class.

    What an explanation (``ops/explain``) makes of these attributes:

    ====================  ==============================================================================
    ``forbidden``         It says that providers have, or are in, what they must not.
    ``is_state``          Trees that fail only this are what was asked for, but full or disabled.
    ``is_place``          Trees that fail only this come last: the user does not want them.
    ``selects_trees``     Sentences name the tree as a whole, and not the classes of the unsuffixed group.
    ``only_in_own_tree``  Sharing providers of other trees fail it, whatever ``matches`` says of them.
    ``hides_pools``       It treats a sharing provider of another tree that fails this as if there were none.
    ====================  ==============================================================================
    """

    #: The name of the query parameter.
    parameter = ''
    #: Whether its parameter belongs to no group, so that it is one rule for the root and all groups.
    of_whole_request = False
    #: Whether the query has a ``!`` before ``subject``.
    forbidden = False
    #: Whether it selects providers by where or which they are, such as a tree, and not by what they have.
    is_place = False
    #: Whether the providers of a tree satisfy it all or not at all.
    selects_trees = False
    #: What is wrong with a provider that violates it.
    fault = Fault.VIOLATED

    @property
    def subject(self) -> str:
        """The text of the query for the condition, without ``!``.

        Conditions of a group with the same parameter and fault differ in it.
        """
        raise NotImplementedError

    @property
    def names(self) -> tuple[str, ...]:
        """The traits or aggregates in ``subject``, if it is about such."""
        return ()

    @property
    def is_state(self) -> bool:
        """Whether it is about a state that the query does not ask for, such as full or disabled."""
        return False

    @property
    def only_in_own_tree(self) -> bool:
        """Whether no sharing provider satisfies it in trees other than its own."""
        return False

    @property
    def hides_pools(self) -> bool:
        """Whether a sharing provider of another tree that fails this does not count, as nobody would change it."""
        return self.only_in_own_tree

    def accepts(self, provider: Provider, root: Provider | None) -> bool:
        """Return whether one provider satisfies it.

        A search asks about each sharing provider that could serve other trees, and plans about the providers of trees
        that are not stored. What neither ``provider`` nor ``root`` tells, such as what is above it, is looked up in the
        snapshot when the condition is made, as is ``TreeCondition.root_id``.

        :param root: the root of the provider's tree; None if a sharing provider serves another tree.
        """
        raise NotImplementedError

    def matches(self, partition: Partition) -> Flags:
        """Return which providers of a partition satisfy it in their own trees. A search asks about all trees."""
        raise NotImplementedError

    def steps(self, partition: Partition) -> int:
        """Return the steps that a search counts for ``matches``: those of an operation on one column."""
        return 1 + partition.size // PROVIDERS_PER_STEP

    def split(self) -> Sequence[ProviderCondition]:
        """Divide the condition into those that a provider can violate one by one."""
        return (self,)


@dataclass(frozen=True)
class ResourceCondition(ProviderCondition):
    """The provider can allocate ``amount`` (1 or more) of a resource class.

    One with another ``fault`` requires only that the provider has neither this fault nor a worse one.
    """

    resource_class: str
    amount: int
    fault: Fault = Fault.FULL

    parameter = 'resources'

    @property
    def subject(self) -> str:
        return f'{self.resource_class}:{self.amount}'

    @property
    def is_state(self) -> bool:
        return self.fault is Fault.FULL

    def accepts(self, provider: Provider, _root: Provider | None) -> bool:
        inventory = provider.inventories.get(self.resource_class)
        if inventory is None or self.fault is Fault.ABSENT:
            return inventory is not None
        inventory = inventory.with_used(0) if self.fault is Fault.TOO_SMALL else inventory
        return inventory.fits(self.amount)

    def matches(self, partition: Partition) -> Flags:
        flags = ~partition.all_providers()
        columns = partition.inventory_columns.get(self.resource_class)
        if columns is not None:
            columns = columns.unused if self.fault is Fault.TOO_SMALL else columns
            absent = self.fault is Fault.ABSENT
            flags[columns.positions if absent else columns.positions_with_capacity(self.amount)] = True
        return flags

    def split(self) -> Sequence[ResourceCondition]:
        """Return one condition for each fault. A provider that violates one also violates the next ones."""
        return [replace(self, fault=fault) for fault in (Fault.ABSENT, Fault.TOO_SMALL, Fault.FULL)]


@dataclass(frozen=True)
class NameSetCondition(ProviderCondition):
    """The provider has at least one name of each set; if ``forbidden``, none of the names of the only set."""

    sets: tuple[frozenset[str], ...]
    forbidden: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for names in self.sets for name in sorted(names))

    def steps(self, partition: Partition) -> int:
        return super().steps(partition) + partition.distinct_sets

    def split(self) -> Sequence[NameSetCondition]:
        """Divide the condition by sets, or by forbidden names."""
        sets = [frozenset({name}) for name in sorted(self.sets[0])] if self.forbidden else self.sets
        return tuple(replace(self, sets=(names,)) for names in sets)

    @functools.cached_property
    def _sets_with(self) -> Mapping[str, int]:
        """For each name, one bit for each set that contains it."""
        sets_with: dict[str, int] = {}
        for number, any_of in enumerate(self.sets):
            for name in any_of:
                sets_with[name] = sets_with.get(name, 0) | 1 << number
        return sets_with

    def satisfied_sets(self, names: Collection[str]) -> int:
        """Return one bit for each set that contains any of ``names``. This takes one look-up for each of them."""
        sets_with = self._sets_with
        satisfied = 0
        for name in sets_with.keys() & names:
            satisfied |= sets_with[name]
        return satisfied

    def accepts_names(self, names: Collection[str]) -> bool:
        """Return whether a provider with these names satisfies the condition."""
        if len(self.sets) == 1:
            return self.sets[0].isdisjoint(names) is self.forbidden
        return self.satisfied_sets(names) == (1 << len(self.sets)) - 1

    def matches_column(self, column: NameSetColumn) -> Flags:
        """Return which items of a column of names satisfy the condition."""
        if len(self.sets) > 1:
            return column.where(self.accepts_names)
        # This takes a look-up for each name, and not a call for each distinct set.
        flags: Flags = (column.values_with(self.sets[0]) != self.forbidden)[column.codes]
        return flags


@dataclass(frozen=True)
class TraitCondition(NameSetCondition):
    """A condition on the traits of the provider."""

    parameter = 'required'

    @property
    def is_state(self) -> bool:
        return all(names <= STATE_TRAITS for names in self.sets)

    @property
    def only_in_own_tree(self) -> bool:
        # Without this trait, a provider serves no other trees.
        return self.forbidden and self.names == (SHARING_TRAIT,)

    @property
    def subject(self) -> str:
        return ' '.join(f'{"in:" if len(names) > 1 else ""}{",".join(sorted(names))}' for names in self.sets)

    def accepts(self, provider: Provider, _root: Provider | None) -> bool:
        return self.accepts_names(provider.traits)

    def matches(self, partition: Partition) -> Flags:
        return self.matches_column(partition.traits)


@dataclass(frozen=True)
class RootTraitCondition(TraitCondition):
    """A condition on the traits of a root that ``root_required`` makes."""

    of_whole_request = True
    parameter = 'root_required'


@dataclass(frozen=True)
class AggregateCondition(NameSetCondition):
    """A condition on the aggregates that the provider is in.

    With ``or_root``, the root of the tree may satisfy the whole condition instead of the provider.
    """

    or_root: bool = False

    is_place = True
    parameter = 'member_of'

    @property
    def subject(self) -> str:
        return ' '.join(','.join(sorted(names)) for names in self.sets)

    def accepts(self, provider: Provider, root: Provider | None) -> bool:
        return self.accepts_names(provider.aggregates) or (
            self.or_root and root is not None and self.accepts_names(root.aggregates)
        )

    def matches(self, partition: Partition) -> Flags:
        flags = self.matches_column(partition.aggregates)
        return flags | partition.of_root(flags) if self.or_root else flags


@dataclass(frozen=True)
class TreeCondition(ProviderCondition):
    """The provider is in the tree of ``root_id``, which is None if there is no such tree.

    Unless the provider ``may_be_shared``, this must also be the tree of the search unit: with ``in_tree`` the
    unsuffixed group uses no sharing providers of other trees. ``uuid`` is the value of ``in_tree``.
    """

    root_id: int | None
    may_be_shared: bool
    uuid: str

    is_place = True
    selects_trees = True
    parameter = 'in_tree'

    @property
    def subject(self) -> str:
        return self.uuid

    @property
    def only_in_own_tree(self) -> bool:
        return not self.may_be_shared

    @property
    def hides_pools(self) -> bool:
        # If there is no such tree, the uuid has to change, and any pool may do.
        return self.root_id is not None

    def accepts(self, provider: Provider, root: Provider | None) -> bool:
        return provider.root_id == self.root_id and (self.may_be_shared or root is not None)

    def matches(self, partition: Partition) -> Flags:
        return partition.in_tree(self.root_id)


@dataclass(frozen=True)
class Requirement:
    """All conditions that one provider has to satisfy.

    ``suffix`` is that of its group. Requirements that differ only in it are equal. ``use_same_provider`` is
    false for one class of the unsuffixed group, otherwise true.
    """

    suffix: str = field(compare=False)
    use_same_provider: bool
    conditions: tuple[ProviderCondition, ...]

    @functools.cached_property
    def resources(self) -> tuple[tuple[str, int], ...]:
        """Pairs of class name and amount; none for a group without resources."""
        return tuple(
            (condition.resource_class, condition.amount)
            for condition in self.conditions
            if isinstance(condition, ResourceCondition)
        )

    def accepts(self, provider: Provider, root: Provider | None) -> bool:
        """Return whether all conditions accept ``provider``.

        :param root: as for a condition.
        """
        return all(condition.accepts(provider, root) for condition in self.conditions)

    def matches(self, partition: Partition, evaluated: dict[ProviderCondition, Flags] | None = None) -> Flags:
        """Return which providers satisfy all conditions in their own trees.

        :param evaluated: the results of conditions on this partition; those that are new are added.
        """
        evaluated = {} if evaluated is None else evaluated
        flags = partition.all_providers()
        for condition in self.conditions:
            # Conditions on names take a call for each distinct set, so skip them if no provider is left.
            if not flags.any():
                break
            if condition not in evaluated:
                evaluated[condition] = condition.matches(partition)
            flags &= evaluated[condition]
        return flags
