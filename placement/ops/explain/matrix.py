"""The matrix of a request: which checks each provider fails, and which checks keep each tree from serving the request.

It is made once, for all providers at the same time, and does not stop at the first failed check::

    provider   tree | failed checks of group 1 | minimal choices of the tree | mask of the tree
    host1       0   | 011                      | 001 (by numa1)              | 001 | those of the other groups
    numa1       0   | 001                      |                             |
    host2       1   | 100                      | 100, or less by a pool      | ...

A *mask* is a set of checks: an integer with bit n for check n. A *part* of the request is a suffixed group, or the
unsuffixed group as a whole with the conditions on roots. A *pool* is a sharing provider; it is a choice of each tree
that has an aggregate in common with it, unless it has no inventory of the class: nobody would add that to it.

The *choices* of a tree for a part are the minimal masks of providers for it. So a tree can serve a part without the
checks in a set S exactly if S contains one of the choices. The mask of a tree has, for each part, the choice with the
fewest checks about what a provider is, then with the fewest about its state.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
from collections import Counter
from collections.abc import Iterable, Set

import numpy as np

from placement.cache.dictionary_columns import DictionaryColumn
from placement.cache.inventory_columns import Flags, Integers
from placement.cache.partition import Partition
from placement.cache.sharing_reach import SharingReach
from placement.cache.snapshot import Snapshot
from placement.ops.explain.checks import HOST_CLASSES, Check, checks_of
from placement.search.budget import Limit, SearchBudget, StepCounter, StepLimitReached
from placement.search.requirements import CompiledRequest, Fault, Requirement

#: The choices of a tree for a part.
Masks = tuple[int, ...]

#: Maximum numbers of choices of a part that are compared, and of different masks of one requirement: those of the
#: closest providers. All others count as failing every check of the requirement.
_MAX_CHOICES, _MAX_MASKS = 64, 1024
#: The number of choices that are combined in one word.
_WORD_BITS = 12


class CheckMatrix:
    """The failed checks of the providers and trees of a snapshot for one request.

    ``partition`` has the trees. If the steps of the budget do not suffice for all, the last ones are left out.

    :raises StepLimitReached: they do not suffice for any.
    """

    def __init__(self, snapshot: Snapshot, compiled: CompiledRequest, budget: SearchBudget) -> None:
        self._budget = budget
        of_roots = [check for condition in compiled.root.conditions for check in checks_of(condition, ())]
        together = list(checks_of(compiled.collective, ('',)))
        #: The checks of each requirement. All providers of the unsuffixed group have the traits ``together``.
        self.checks_of = {
            requirement: [check for condition in requirement.conditions for check in checks_of(condition, suffixes)]
            for requirement, suffixes in compiled.distinct.items()
        }
        #: The check of each bit, in the order of the request.
        self.checks = list(dict.fromkeys(itertools.chain(of_roots, *self.checks_of.values(), together)))
        self._bit_of = {check: 1 << number for number, check in enumerate(self.checks)}
        for requirement, checks in self.checks_of.items():
            checks.extend([] if requirement.use_same_provider else together)
        #: The checks about states, those that require aggregates, and the traits that the providers of the unsuffixed
        #: group have together.
        self.state = self.mask(check for check in self.checks if check.condition.is_state)
        self.membership = self.mask(check for check in self.checks if check.is_membership)
        self.together = self.mask(together)
        self._absent = self.mask(check for check in self.checks if check.fault is Fault.ABSENT)
        # The bit of a worse fault of an amount is followed by that of the next better one.
        self._implying = self._absent | self._absent << 1
        self._serving: dict[tuple[int, int], Flags] = {}
        self.partition = self._combined(snapshot)
        self._starts = self.partition.starts[:-1]
        self.pools = SharingReach(self.partition)
        # Groups with equal conditions share the flags.
        failing = functools.cache(lambda condition: ~condition.matches(self.partition))
        #: For each check, which providers fail it. One that has a worse fault fails the better ones, too.
        self._failing: dict[Check, Flags] = {check: failing(check.condition) for check in self.checks}
        self._roots = self._packed({check: self._failing[check][self._starts] for check in of_roots})
        #: For each requirement the masks of all providers in their own trees, and those of the pools in other trees.
        #: If there are several columns, a provider may choose between them.
        self._columns = {requirement: self._columns_of(requirement) for requirement in compiled.distinct}
        unsuffixed = [requirement for requirement in compiled.distinct if not requirement.use_same_provider]
        #: The requirements of each part, and the choices of each tree for it.
        self.parts = [(unsuffixed, self._choices_together(unsuffixed))]
        self.parts += [([group], self._choices(group)) for group in compiled.distinct if group.use_same_provider]
        bits = [itertools.chain(*choices.values) for _, choices in self.parts]
        self._bits_of_parts = [functools.reduce(operator.or_, masks) for masks in bits]

    def _combined(self, snapshot: Snapshot) -> Partition:
        """Return the partitions for which the steps suffice as one. Those with pools come first."""
        partitions = []
        names = sum(len(check.rule.subject.split(',')) for check in self.checks)
        for partition in sorted(snapshot.partitions, key=lambda partition: not partition.has_sharing_trait.any()):
            steps = len(self.checks) * (4 + (partition.size + partition.distinct_sets) // 64) + names
            if self._budget.steps_taken + steps > self._budget.max_steps:
                self._budget.reached.add(Limit.REQUEST_STEPS)
                break
            self._budget.steps_taken += steps
            partitions.append(partition)
        if not partitions:
            raise StepLimitReached
        return Partition.concatenated(partitions)

    # Masks ---------------------------------------------------------------------------------------------------

    def mask(self, checks: Iterable[Check]) -> int:
        """Return the set of some checks."""
        return functools.reduce(operator.or_, [self._bit_of[check] for check in checks], 0)

    def worst(self, mask: int) -> int:
        """Return the mask with only the worst fault of each amount."""
        return mask & ~((mask & self._implying) << 1)

    def checks_in(self, mask: int) -> tuple[Check, ...]:
        """Return the checks of a mask, with only the worst fault of each amount."""
        return tuple(self.checks[number] for number in bit_numbers(self.worst(mask)))

    def cost(self, mask: int) -> tuple[int, ...]:
        """Return the order of masks, the closest first. It grows with each check that is added."""
        worst = self.worst(mask)
        # Among equal ones, a provider that has inventory of the class is closer than another one.
        absent = (worst & self._absent).bit_count()
        return (worst & ~self.state).bit_count(), worst.bit_count(), absent, mask.bit_count(), mask

    def minimal(self, masks: Iterable[int]) -> Masks:
        """Return the masks that contain none of the others, the closest first, at most ``_MAX_CHOICES``."""
        ordered = sorted(set(masks), key=self.cost)
        minimal = ordered[:1]
        # After the last step only the closest mask counts.
        with contextlib.suppress(StepLimitReached):
            StepCounter(self._budget).count_setup(len(ordered) if len(ordered) > 1 else 0)
            for mask in ordered[1:]:
                if len(minimal) < _MAX_CHOICES and not any(other & mask == other for other in minimal):
                    minimal.append(mask)
        return tuple(minimal)

    def _both(self, mask: int, other: int) -> int:
        """Return what two providers of the unsuffixed group fail together: a trait is missing if both lack it."""
        return (mask | other) & ~self.together | mask & other & self.together

    # Providers -----------------------------------------------------------------------------------------------

    def _columns_of(self, requirement: Requirement) -> tuple[list[DictionaryColumn[int]], DictionaryColumn[int]]:
        failing = {check: self._failing[check] for check in self.checks_of[requirement]}
        direct = [self._packed(failing)]
        if not requirement.use_same_provider and any(check.is_membership for check in failing):
            # The root may satisfy ``member_of`` instead of the provider, but only the whole of it.
            of_roots = self.partition.of_roots
            by_root = {check: of_roots(flags) if check.is_membership else flags for check, flags in failing.items()}
            direct.append(self._packed(by_root))
        positions = self.pools.positions
        shared = {check: flags[positions] | check.never_by_sharing for check, flags in failing.items()}
        return direct, self._packed(shared)

    def _packed(self, failing: dict[Check, Flags]) -> DictionaryColumn[int]:
        """Return the masks of items.

        :param failing: which items fail each check; without any, no root does.
        """
        size = len(next(iter(failing.values()), self._starts))
        column: DictionaryColumn[int] = DictionaryColumn([0], np.zeros(size, np.intp))
        for check, flags in reversed(failing.items()):
            column = column.joined(DictionaryColumn([0, self._bit_of[check]], flags.astype(np.intp)), operator.or_)
        return column

    # Trees ---------------------------------------------------------------------------------------------------

    def _choices(self, requirement: Requirement) -> DictionaryColumn[Masks]:
        """Return the choices of each tree for one requirement."""
        direct, shared = self._columns[requirement]
        useful = {mask for mask in shared.values if not mask & self._absent}
        masks = useful.union(*(column.values for column in direct))
        closest = sorted(masks, key=self.cost)[:_MAX_MASKS]
        if len(closest) < len(masks):
            self._budget.reached.add(Limit.REQUEST_STEPS)
        every = (self.mask(self.checks_of[requirement]),)
        # For each tree one bit for each of the closest masks that a provider has.
        present: DictionaryColumn[int] = DictionaryColumn([0], np.zeros(len(self._starts), np.intp))
        for first in range(0, len(closest), _WORD_BITS):
            bit_of = {mask: 1 << number for number, mask in enumerate(closest[first : first + _WORD_BITS])}
            of_pools = [bit_of.get(mask, 0) if mask in useful else 0 for mask in shared.values]
            words = self.pools.combined(np.array(of_pools, np.intp)[shared.codes])
            for column in direct:
                bits = np.array([bit_of.get(mask, 0) for mask in column.values], np.intp)
                words |= np.bitwise_or.reduceat(bits[column.codes], self._starts)
            shifted = range(0, 1 << first + len(bit_of), 1 << first)
            present = present.joined(DictionaryColumn(shifted, words), operator.or_)
        return present.mapped(lambda bits: self.minimal([closest[number] for number in bit_numbers(bits)] or every))

    def _choices_together(self, requirements: Iterable[Requirement]) -> DictionaryColumn[Masks]:
        """Return the choices of each tree for the root and some requirements of the unsuffixed group.

        They share checks, so the closest provider of each is not enough.
        """
        choices: DictionaryColumn[Masks] = self._roots.mapped(lambda mask: (mask | self.together,))
        for requirement in requirements:
            choices = choices.joined(
                self._choices(requirement),
                lambda masks, rest: self.minimal(self._both(mask, other) for mask in masks for other in rest),
            )
        return choices

    @functools.cached_property
    def trees(self) -> DictionaryColumn[int]:
        """The mask of each tree."""
        columns = [choices.mapped(operator.itemgetter(0)) for _, choices in self.parts]
        # Pairs of pairs have fewest distinct masks on the way.
        while len(columns) > 1:
            pairs = zip(columns[::2], columns[1::2], strict=False)
            columns = [first.joined(second, operator.or_) for first, second in pairs] + columns[len(columns) & ~1 :]
        return columns[0]

    def excluded(self) -> list[int]:
        """Return for each check how many trees pass all checks before it, but not this one as well."""
        lowest = np.full(len(self._starts), len(self.checks))
        for _, choices in self.parts:
            numbers = [max(mask & -mask or 1 << len(self.checks) for mask in masks) for masks in choices.values]
            lowest = np.minimum(lowest, np.array([number.bit_length() - 1 for number in numbers])[choices.codes])
        counts: list[int] = np.bincount(lowest[self.partition.has_root], minlength=len(self.checks)).tolist()
        return counts

    def without(self, waived: int, except_for: Requirement | None = None) -> Flags:
        """Return which trees can serve each part of the request if the checks in ``waived`` do not count.

        :param except_for: leave out the part with this requirement.
        """
        flags = self.partition.has_root
        for number, (requirements, choices) in enumerate(self.parts):
            key = number, waived & self._bits_of_parts[number]
            if key not in self._serving:
                self._serving[key] = choices.where(lambda masks: any(not mask & ~waived for mask in masks))
            if except_for not in requirements:
                flags = flags & self._serving[key]
        return flags

    def served_by(self, requirement: Requirement, mask: int) -> Flags:
        """Return which trees can serve each part only if a provider with this mask was a choice for a requirement."""
        flags = self.without(0, except_for=requirement) & ~self.without(0)
        if requirement.use_same_provider or not flags.any():
            return flags & (mask == 0)
        remaining = self._choices_together(other for other in self.parts[0][0] if other != requirement)
        return flags & remaining.where(lambda masks: any(not self._both(mask, other) for other in masks))

    def failed_checks(self) -> list[Check]:
        """Return the checks about what a provider is that the masks of trees have, the most frequent first."""
        counts: Counter[Check] = Counter()
        for _, choices in self.parts:
            masks = choices.mapped(lambda masks: masks[0] & ~self.state)
            for mask, count in masks.counts().items():
                counts.update(dict.fromkeys(self.checks_in(mask), count))
        return [check for check, _ in counts.most_common()]

    def smallest(self, mask: int) -> int:
        """Remove checks from the mask of a tree until without each smaller set no tree can serve each part."""
        for number in bit_numbers(mask):
            if self.without(mask & ~(1 << number)).any():
                mask &= ~(1 << number)
        return mask

    def passed_nowhere(self, check: Check) -> bool:
        """Return whether no provider passes a check, or no root; false for an amount that all are too small for."""
        flags = self._failing[check] if check.rule.suffixes else self._failing[check][self._starts]
        return check.fault is not Fault.TOO_SMALL and bool(flags.all())

    def failing_only(self, check: Check, waived: int, trees: Flags) -> tuple[Integers, Integers]:
        """Return the positions of the providers of the flagged trees, and of the pools that reach these, that fail a
        check and nothing outside of ``waived``."""
        bit, allowed = self.mask([check]), waived | self.together

        def fails_only(mask: int) -> bool:
            return bool(mask & bit) and not mask & ~allowed

        direct, shared = ~self.partition.all_providers(), np.zeros(len(self.pools.positions), np.bool_)
        for requirement, checks in self.checks_of.items():
            # A check of roots is in none of them.
            if check in checks:
                of_trees, of_pools = self._columns[requirement]
                direct = np.any([direct, *(column.where(fails_only) for column in of_trees)], axis=0)
                shared |= of_pools.where(fails_only)
        in_pools = self.pools.positions[shared & self.pools.reaching(trees)]
        return np.flatnonzero(direct & trees[self.partition.tree_numbers]), in_pools

    def pool_candidates(self, requirement: Requirement, aggregates: Set[str]) -> dict[int, int]:
        """Return the masks of the providers that could serve a requirement of other trees, by position.

        Those with the trait for sharing may lack aggregates. The others lack only the trait; they are in one of
        ``aggregates``, and no hosts.
        """
        if any(check.never_by_sharing for check in self.checks_of[requirement]):
            return {}
        [masks, *_], _ = self._columns[requirement]
        shares, columns = self.partition.has_sharing_trait, self.partition.inventory_columns
        unshared = self.partition.aggregates.where(lambda names: not names.isdisjoint(aggregates)) & ~shares
        for name in HOST_CLASSES & columns.keys():
            unshared[columns[name].positions] = False
        close = shares & masks.where(lambda mask: not mask & ~(self.membership | self.together))
        close |= unshared & masks.where(lambda mask: not mask & ~self.together)
        return {position: masks.values[masks.codes[position]] for position in np.flatnonzero(close).tolist()}


def bit_numbers(mask: int) -> list[int]:
    """Return the numbers of the bits of a mask, ascending."""
    return [number for number in range(mask.bit_length()) if mask >> number & 1]
