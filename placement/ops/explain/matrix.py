"""The two matrices of a request: what each provider fails, and what of it keeps each tree from serving the request.

Both are made once, for all providers at the same time, and do not stop at the first failed check. Their masks are
explained at ``RequestChecks``; the docstring of the package has an example of both.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

import numpy as np

from placement.cache.dictionary_columns import DictionaryColumn
from placement.cache.inventory_columns import Flags, Integers
from placement.cache.partition import Partition, or_by_tree
from placement.cache.sharing_reach import SharingReach
from placement.cache.snapshot import Snapshot
from placement.ops.explain.checks import HOST_CLASSES, Check, RequestChecks, Scope, bit_numbers
from placement.search.budget import Limit, SearchBudget, StepCounter, StepLimitReached
from placement.search.conditions import Fault, Requirement

#: The choices of a tree for a part.
Masks = tuple[int, ...]

#: Maximum numbers of choices of a part that are compared, and of different masks of one requirement: those of the
#: closest providers. All others count as failing every check of the requirement.
_MAX_CHOICES, _MAX_MASKS = 64, 1024
#: The non-negative bits of a word.
_WORD_BITS = 63


class ProviderMatrix:
    """What each provider of a snapshot fails.

    A row is a provider of ``partition``, which has the trees for which the steps of the budget suffice. A column is a
    check. A cell is whether the provider fails the check in its own tree, whatever else it fails.

    :raises StepLimitReached: the steps do not suffice for any tree.
    """

    def __init__(self, snapshot: Snapshot, checks: RequestChecks, budget: SearchBudget) -> None:
        self.checks = checks
        self.partition = _combined_partition(snapshot, checks.in_order, budget)
        #: A sharing provider is a *pool*: other trees, which it reaches, can use it.
        self.pools = SharingReach(self.partition)
        # Groups with equal conditions share the flags.
        failing = functools.cache(lambda condition: ~condition.matches(self.partition))
        #: For each check, which providers fail it. One that has a worse fault fails the better ones, too.
        self.failing: dict[Check, Flags] = {check: failing(check.condition) for check in checks.in_order}
        starts = self.partition.starts[:-1]
        #: The masks of the roots.
        self.roots = self._masks({check: self.failing[check][starts] for check in checks.of_root}, len(starts))
        #: For each requirement the masks of all providers in their own trees, and those of the pools in other trees.
        #: If there are several columns, a provider may choose between them.
        self.columns = {requirement: self._columns_of(requirement) for requirement in checks.of_requirement}

    def _columns_of(self, requirement: Requirement) -> tuple[list[DictionaryColumn[int]], DictionaryColumn[int]]:
        failing = {check: self.failing[check] for check in self.checks.of_requirement[requirement]}
        direct = [self._masks(failing, self.partition.size)]
        if not requirement.use_same_provider and any(check.is_membership for check in failing):
            # The root may satisfy ``member_of`` instead of the provider, but only the whole of it.
            of_root = self.partition.of_root
            by_root = {check: of_root(flags) if check.is_membership else flags for check, flags in failing.items()}
            direct.append(self._masks(by_root, self.partition.size))
        positions = self.pools.positions
        shared = {check: flags[positions] | check.condition.only_in_own_tree for check, flags in failing.items()}
        return direct, self._masks(shared, len(positions))

    def _masks(self, failing: dict[Check, Flags], size: int) -> DictionaryColumn[int]:
        """Return the masks of items.

        :param failing: which items fail each check.
        """
        column: DictionaryColumn[int] = DictionaryColumn([0], np.zeros(size, np.intp))
        for check, flags in reversed(failing.items()):
            bits = DictionaryColumn([0, self.checks.bit_of[check]], flags.astype(np.intp))
            column = column.joined(bits, operator.or_)
        return column

    def passed_nowhere(self, check: Check) -> bool:
        """Return whether no provider passes a check, or no root; false for an amount that all are too small for."""
        flags = self.failing[check] if check.rule.suffixes else self.failing[check][self.partition.starts[:-1]]
        return check.fault is not Fault.TOO_SMALL and bool(flags.all())

    def failing_only(self, check: Check, waived: int, trees: Flags) -> tuple[Integers, Integers]:
        """Return the positions of the providers that fail a check and nothing outside of ``waived``.

        There are none for a check that is only about roots.

        :param trees: which trees to look at.
        :returns: the providers of these trees, and the pools that reach them.
        """
        of_check = [self.columns[group] for group, checks in self.checks.of_requirement.items() if check in checks]
        if not of_check:
            return np.zeros(0, np.intp), np.zeros(0, np.intp)
        bit, allowed = self.checks.bit_of[check], waived | self.checks.together

        def fails_only(mask: int) -> bool:
            return bool(mask & bit) and not mask & ~allowed

        direct = np.any([column.where(fails_only) for of_trees, _ in of_check for column in of_trees], axis=0)
        shared = np.any([of_pools.where(fails_only) for _, of_pools in of_check], axis=0)
        in_pools = self.pools.positions[shared & self.pools.reaching(trees)]
        return np.flatnonzero(direct & trees[self.partition.tree_numbers]), in_pools

    def pool_candidates(self, requirement: Requirement, aggregates: Set[str]) -> dict[int, int]:
        """Return the masks of the providers that could serve a requirement of other trees, by position.

        Those with the trait for sharing may lack aggregates. The others lack only the trait; they are in one of
        ``aggregates``, and no hosts.
        """
        if any(check.condition.only_in_own_tree for check in self.checks.of_requirement[requirement]):
            return {}
        [masks, *_], _ = self.columns[requirement]
        shares, columns = self.partition.has_sharing_trait, self.partition.inventory_columns
        unshared = self.partition.aggregates.where(lambda names: not names.isdisjoint(aggregates)) & ~shares
        for name in HOST_CLASSES & columns.keys():
            unshared[columns[name].positions] = False
        close = shares & masks.where(lambda mask: not mask & ~(self.checks.membership | self.checks.together))
        close |= unshared & masks.where(lambda mask: not mask & ~self.checks.together)
        return {position: masks.values[masks.codes[position]] for position in np.flatnonzero(close).tolist()}


class TreeMatrix:
    """What keeps each tree from serving a request.

    A row is a tree of ``partition``. A column is a *part* of the request: a suffixed group, or the unsuffixed group as
    a whole with the conditions on roots. A cell has the *choices* of the tree for the part: the minimal masks of
    providers for it, the closest first::

        tree  | the unsuffixed group | group 1
        host1 | 0010                 | 0000 (by a pool)
        host2 | 0001                 | 1000 (by numa1), 0100 (by a pool)

    So a tree can serve a part without the checks in a set S exactly if S contains one of the choices.
    """

    def __init__(self, providers: ProviderMatrix, budget: SearchBudget) -> None:
        self._budget = budget
        self.providers = providers
        self.checks = providers.checks
        self.partition = providers.partition
        unsuffixed = [requirement for requirement in providers.columns if not requirement.use_same_provider]
        #: The requirements of each part, and its column.
        self.parts = [(unsuffixed, self._choices_together(unsuffixed))]
        self.parts += [([group], self._choices(group)) for group in providers.columns if group.use_same_provider]

    def _choices(self, requirement: Requirement) -> DictionaryColumn[Masks]:
        """Return the choices of each tree for one requirement.

        With the bits 0 to 2 for an amount (absent, too small, full) and bit 3 for a trait, ``closest`` could have the
        masks 0b0000, 0b0100, 0b1000 and 0b1111. Then two trees have::

            masks of the providers | present (bit n for item n of closest) | choices
            0b0000, 0b1111         | 0b1001                                | 0b0000
            0b0100, 0b1000         | 0b0110                                | 0b0100, 0b1000
        """
        direct, shared = self.providers.columns[requirement]
        useful = {mask for mask in shared.values if not mask & self.checks.hides_pools}
        masks = useful.union(*(column.values for column in direct))
        closest = sorted(masks, key=self.checks.cost)[:_MAX_MASKS]
        if len(closest) < len(masks):
            self._budget.reached.add(Limit.REQUEST_STEPS)
        every = (self.checks.mask(self.checks.of_requirement[requirement]),)
        # For each tree one bit for each of the closest masks that a provider has.
        present: DictionaryColumn[int] = DictionaryColumn([0], np.zeros(len(self.partition.has_root), np.intp))
        for first in range(0, len(closest), _WORD_BITS):
            bit_of = {mask: 1 << number for number, mask in enumerate(closest[first : first + _WORD_BITS])}
            of_pools = [bit_of.get(mask, 0) if mask in useful else 0 for mask in shared.values]
            words = self.providers.pools.combined(np.array(of_pools, np.intp)[shared.codes])
            for column in direct:
                bits = np.array([bit_of.get(mask, 0) for mask in column.values], np.intp)
                words |= or_by_tree(self.partition, bits[column.codes])
            distinct, codes = np.unique(words, return_inverse=True)
            shifted = [word << first for word in distinct.tolist()]
            present = present.joined(DictionaryColumn(shifted, codes), operator.or_)
        return present.mapped(lambda bits: self.minimal([closest[number] for number in bit_numbers(bits)] or every))

    def _choices_together(self, requirements: Iterable[Requirement]) -> DictionaryColumn[Masks]:
        """Return the choices of each tree for the root and some requirements of the unsuffixed group.

        They share checks, so the closest provider of each is not enough.
        """
        choices: DictionaryColumn[Masks] = self.providers.roots.mapped(lambda mask: (mask | self.checks.together,))
        for requirement in requirements:
            choices = choices.joined(
                self._choices(requirement),
                lambda masks, rest: self.minimal(self.checks.of_both(mask, other) for mask in masks for other in rest),
            )
        return choices

    def minimal(self, masks: Iterable[int]) -> Masks:
        """Return the masks that contain none of the others, the closest first, at most ``_MAX_CHOICES``."""
        ordered = sorted(set(masks), key=self.checks.cost)
        minimal = ordered[:1]
        # After the last step only the closest mask counts.
        with contextlib.suppress(StepLimitReached):
            StepCounter(self._budget).count_setup(len(ordered) if len(ordered) > 1 else 0)
            for mask in ordered[1:]:
                if len(minimal) < _MAX_CHOICES and not any(other & mask == other for other in minimal):
                    minimal.append(mask)
        return tuple(minimal)

    @functools.cached_property
    def trees(self) -> DictionaryColumn[int]:
        """For each tree the closest choice of each part, in one mask."""
        columns = [choices.mapped(operator.itemgetter(0)) for _, choices in self.parts]
        # Pairs of pairs have fewest distinct masks on the way.
        while len(columns) > 1:
            pairs = zip(columns[::2], columns[1::2], strict=False)
            columns = [first.joined(second, operator.or_) for first, second in pairs] + columns[len(columns) & ~1 :]
        return columns[0]

    def excluded(self) -> list[int]:
        """Return for each check how many trees pass all checks before it, but not this one as well."""
        number_of_checks = len(self.checks.in_order)
        lowest = np.full(len(self.partition.has_root), number_of_checks)
        for _, choices in self.parts:
            bits = [max(mask & -mask or 1 << number_of_checks for mask in masks) for masks in choices.values]
            lowest = np.minimum(lowest, np.array([bit.bit_length() - 1 for bit in bits])[choices.codes])
        counts: list[int] = np.bincount(lowest[self.partition.has_root], minlength=number_of_checks).tolist()
        return counts

    def without(self, waived: int, except_for: Requirement | None = None) -> Flags:
        """Return which trees can serve each part of the request if the checks in ``waived`` do not count.

        :param except_for: leave out the part with this requirement.
        """
        flags = self.partition.has_root
        for requirements, choices in self.parts:
            if except_for not in requirements and flags.any():
                flags = flags & choices.where(lambda masks: 0 in [mask & ~waived for mask in masks])
        return flags

    def served_by(self, requirement: Requirement, mask: int) -> Flags:
        """Return which trees can serve each part if a provider with this mask is a choice for a requirement.

        Without it, no tree can.
        """
        flags = self.without(0, except_for=requirement)
        if requirement.use_same_provider or not flags.any():
            return flags & (mask == 0)
        remaining = self._choices_together(other for other in self.parts[0][0] if other != requirement)
        return flags & remaining.where(lambda masks: any(not self.checks.of_both(mask, other) for other in masks))

    @functools.cached_property
    def scopes(self) -> Mapping[Check, Scope]:
        """The scope of sentences about each check.

        Suffixed groups are always named. Checks of the unsuffixed group name the classes whose providers fail them, if
        what is true of these providers may be false of the whole tree. If so for one check, all name their classes,
        because sentences combine them.
        """
        scopes = {check: Scope(groups=tuple(filter(None, check.rule.suffixes))) for check in self.checks.in_order}
        of_classes = [check for check in scopes if check.may_name_classes]
        if any(map(self.differs_from_choice, of_classes)):
            unsuffixed, _ = self.parts[0]
            classes = [name for requirement in unsuffixed for name, _ in requirement.resources]
            columns = self.partition.inventory_columns
            for check in of_classes:
                failing = self.providers.failing[check]
                of_failing = [name for name in classes if name in columns and failing[columns[name].positions].any()]
                scopes[check] = Scope(classes=tuple(of_failing or classes))
        return scopes

    def differs_from_choice(self, check: Check) -> bool:
        """Return whether any tree as a whole passes a check that its closest choice fails, or the reverse."""
        bit, failing, partition = self.checks.bit_of[check], self.providers.failing[check], self.partition
        tree_fails = or_by_tree(partition, failing) if check.rule.forbids else ~or_by_tree(partition, ~failing)
        choice_fails = self.trees.where(lambda mask: bool(mask & bit))
        return bool((tree_fails != choice_fails)[partition.has_root].any())

    def failed_checks(self) -> list[Check]:
        """Return the checks about what a provider is that the masks of trees have, the most frequent first."""
        counts: Counter[Check] = Counter()
        for _, choices in self.parts:
            for masks, count in choices.counts().items():
                counts.update(dict.fromkeys(self.checks.checks_in(masks[0] & ~self.checks.state), count))
                # Another choice may pass a check that the closest one fails, and violate these. They exclude no tree.
                other_choices = functools.reduce(operator.or_, masks[1:], 0) & ~self.checks.state
                violated = (check for check in self.checks.checks_in(other_choices) if check.fault is Fault.VIOLATED)
                counts.update(dict.fromkeys(violated, 0))
        return [check for check, _ in counts.most_common()]

    def smallest(self, mask: int) -> int:
        """Remove checks from the mask of a tree until without each smaller set no tree can serve each part."""
        for number in bit_numbers(mask):
            if self.without(mask & ~(1 << number)).any():
                mask &= ~(1 << number)
        return mask


def _combined_partition(snapshot: Snapshot, checks: Sequence[Check], budget: SearchBudget) -> Partition:
    """Return the partitions for which the steps suffice as one. Those with pools come first."""
    partitions = []
    names = sum(len(check.rule.names) or 1 for check in checks)
    for partition in sorted(snapshot.partitions, key=lambda partition: not partition.has_sharing_trait.any()):
        steps = len(checks) * (4 + (partition.size + partition.distinct_sets) // 64) + names
        if budget.steps_taken + steps > budget.max_steps:
            budget.reached.add(Limit.REQUEST_STEPS)
            break
        budget.steps_taken += steps
        partitions.append(partition)
    if not partitions:
        raise StepLimitReached
    return Partition.concatenated(partitions)
