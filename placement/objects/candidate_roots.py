"""Which roots are worth a look, in SQL: each condition is necessary for a candidate, together they need not suffice.

For every step of the request some provider of the root's tree must qualify, or a sharing provider that reaches the
root; and the tree itself must be able to serve one of the steps. The condition that fewest rows meet leads: when one
is rare, the roots come from its rows and the others are tested on these alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from placement.candidates.reasons import Reason
from placement.candidates.rows import Provider
from placement.candidates.steps import Plan, Step
from placement.db import statements, tables
from placement.objects.candidate_names import Names

_r = tables.resource_providers.alias('r')
_t = tables.resource_providers.alias('t')
_inventories = tables.inventories
_traits = tables.resource_provider_traits
_aggregates = tables.resource_provider_aggregates

#: A condition that at most so many rows meet leads.
RARE = 1000

#: How many conditions of one request go into the statement. Databases bound the size of expressions, and any subset of
#: necessary conditions is good enough.
_MOST_CONDITIONS = 40

#: Stored units fit 32 bits, so more is never found, and larger numbers must not reach a database.
_LARGEST_UNIT = 2**31 - 1


@dataclass(frozen=True)
class Test:
    """One condition on a provider ``_t``: which ``rule`` it stands for and what that is about.

    ``resource`` is the class and amount if the rule is ``resources``.
    """

    rule: str
    subject: str
    condition: sa.ColumnElement[bool]
    resource: tuple[str, int] | None = None


@dataclass(frozen=True)
class Need:
    """Something without which a root has no candidate.

    It is met by a tree with a provider that passes all of ``tests``, or by a tree in one of ``aggregates``, through
    which a sharing provider can meet it. ``rows`` selects ids of providers, all that could pass among them, from one
    index. ``group`` is the suffix of the request group.
    """

    group: str
    tests: tuple[Test, ...]
    aggregates: frozenset[int]
    rows: sa.Select[Any]

    def with_tests(self, count: int) -> Need:
        """The same need with the first ``count`` tests alone."""
        return replace(self, tests=self.tests[:count])


class Roots:
    """The roots that could anchor a candidate of ``plan``.

    :param sharing: the sharing providers that could take part, with their aggregates.
    """

    def __init__(self, tx: sa.Connection, plan: Plan, names: Names, sharing: Mapping[Provider, frozenset[int]]) -> None:
        self._tx = tx
        self._names = names
        self._sharing = sharing
        self._steps = list(dict.fromkeys(plan.steps))
        #: What a candidate cannot do without, steps first.
        self.needs = list(self._all_needs(plan))[:_MOST_CONDITIONS]
        if not plan.nested_aware:
            self.needs += _together(self.needs)
        self._leading: Need | None = None
        self._counted = False

    def after(self, root_id: int | None, count: int | None) -> Sequence[int]:
        """Return the next ``count`` (None: all) root ids beyond ``root_id``, ascending."""
        query = sa.select(_r.c.id).where(*self._conditions()).order_by(_r.c.id).limit(count)
        if root_id is not None:
            query = query.where(_r.c.id > root_id)
        return self._tx.scalars(query).all()

    def meeting_points(self) -> sa.Select[Any]:
        """Select (root id, aggregate id) of the roots that touch more than one aggregate with sharing providers."""
        shares = _traits.alias('shares')
        theirs = _aggregates.alias('theirs')
        carrying = (
            sa.select(theirs.c.aggregate_id)
            .join(shares, shares.c.resource_provider_id == theirs.c.resource_provider_id)
            .where(shares.c.trait_id == self._names.sharing_trait_id)
        )
        touching = sa.join(_t, _aggregates, _aggregates.c.resource_provider_id == _t.c.id)
        several = (
            sa.select(_t.c.root_provider_id)
            .select_from(touching)
            .where(_aggregates.c.aggregate_id.in_(carrying))
            .group_by(_t.c.root_provider_id)
            .having(sa.func.min(_aggregates.c.aggregate_id) < sa.func.max(_aggregates.c.aggregate_id))
        )
        return (
            sa.select(_t.c.root_provider_id, _aggregates.c.aggregate_id)
            .select_from(touching)
            .where(_aggregates.c.aggregate_id.in_(carrying), _t.c.root_provider_id.in_(several))
            .distinct()
        )

    # What a candidate cannot do without ---------------------------------------------------------------------

    def _all_needs(self, plan: Plan) -> Iterator[Need]:
        for step in self._steps:
            yield self._need_of(step)
        unnumbered = [step for step in self._steps if not step.numbered]
        for name in sorted(plan.collective):
            bringing = (one for step in unnumbered for one in self._serving(step) if name in one.traits)
            yield Need('', (self._has_trait(name),), self._aggregates_of(bringing), self._rows_with_trait(name))

    def _need_of(self, step: Step) -> Need:
        first, _amount = step.resources[0]
        rows = sa.select(_inventories.c.resource_provider_id).where(
            _inventories.c.resource_class_id == self._names.class_ids[first]
        )
        if step.required:
            rows = self._rows_with_trait(min(step.required))
        return Need(step.group, tuple(self._tests(step)), self._aggregates_of(self._serving(step)), rows)

    def _rows_with_trait(self, name: str) -> sa.Select[Any]:
        return sa.select(_traits.c.resource_provider_id).where(_traits.c.trait_id == self._names.trait_ids[name])

    def _serving(self, step: Step) -> Iterator[Provider]:
        return (one for one in self._sharing if step.refusal(one, None) is None)

    def _aggregates_of(self, providers: Iterable[Provider]) -> frozenset[int]:
        return frozenset().union(*(self._sharing[one] for one in providers))

    def _tests(self, step: Step) -> Iterator[Test]:
        for name, amount in step.resources[:_MOST_CONDITIONS]:
            condition = _own(
                _inventories, _inventories.c.resource_class_id == self._names.class_ids[name], room(amount)
            )
            yield Test('resources', f'{name}:{amount}', condition, (name, amount))
        for name in sorted(step.required)[:_MOST_CONDITIONS]:
            yield self._has_trait(name)
        if step.forbidden:
            names = sorted(step.forbidden)
            ids = [self._names.trait_ids[name] for name in names]
            yield Test('forbidden', ','.join(names), sa.not_(_own(_traits, _traits.c.trait_id.in_(ids))))
        if step.member_of:
            subject = ' and '.join(','.join(sorted(any_of)) for any_of in step.member_of)
            yield Test('member_of', subject, self._membership(step))

    def _has_trait(self, name: str) -> Test:
        return Test('required', name, _own(_traits, _traits.c.trait_id == self._names.trait_ids[name]))

    def _membership(self, step: Step) -> sa.ColumnElement[bool]:
        own = sa.and_(*(self._inside(any_of, _t.c.id) for any_of in step.member_of[:_MOST_CONDITIONS]))
        if step.numbered:
            return own
        return sa.or_(own, sa.and_(*(self._inside(any_of, _r.c.id) for any_of in step.member_of[:_MOST_CONDITIONS])))

    def _inside(self, any_of: frozenset[str], provider_id: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
        ids = [self._names.aggregate_ids[uuid] for uuid in sorted(any_of) if uuid in self._names.aggregate_ids]
        inside = _aggregates.alias()
        return sa.exists().where(inside.c.resource_provider_id == provider_id, inside.c.aggregate_id.in_(ids))

    # The statement ------------------------------------------------------------------------------------------

    def _conditions(self) -> Iterator[sa.ColumnElement[bool]]:
        yield from _conditions(self.needs)
        leading = self._lead()
        if leading is not None:
            ids = _leading_rows(leading).subquery()
            yield _r.c.id.in_(sa.select(_t.c.root_provider_id).where(_t.c.id.in_(sa.select(ids.c[0]))))
        steps = self.needs[: len(self._steps)]
        if len(steps) == len(self._steps) and all(need.aggregates for need in steps):
            # Sharing providers can serve everything, but then they are found at their own roots or at bridges.
            yield sa.or_(*map(_met_by_tree, steps))

    def _lead(self) -> Need | None:
        """Find out, once, whether one of the needs is so rare that its rows should lead."""
        if not self._counted:
            self._counted = True
            counts = [_bounded_count(need).label(f'need_{number}') for number, need in enumerate(self.needs)]
            found = self._tx.execute(sa.select(*counts)).one()
            rarest = min(range(len(found)), key=found.__getitem__)
            self._leading = self.needs[rarest] if found[rarest] <= RARE else None
        return self._leading


def room_parts(amount: int) -> dict[Reason, sa.ColumnElement[bool]]:
    """The parts of the room rule (contract B 1.3) for ``amount`` on a row of ``inventories``, by what breaks them."""
    inv = _inventories.c
    below_max = inv.max_unit >= amount if amount <= _LARGEST_UNIT else sa.false()
    amount = min(amount, _LARGEST_UNIT)
    return {
        Reason.ABOVE_MAX_UNIT: below_max,
        Reason.BELOW_MIN_UNIT: inv.min_unit <= amount,
        Reason.WRONG_STEP: sa.literal(amount) % inv.step_size == 0,
        Reason.NO_CAPACITY: fits(amount),
    }


def room(amount: int) -> sa.ColumnElement[bool]:
    """The whole room rule."""
    return sa.and_(*room_parts(amount).values())


def fits(amount: int) -> sa.ColumnElement[bool]:
    """Whether ``amount`` is left of a row of ``inventories``."""
    inv = _inventories.c
    return inv.used + min(amount, _LARGEST_UNIT) <= (inv.total - inv.reserved) * inv.allocation_ratio


def count_roots(needs: Sequence[Need]) -> sa.Select[Any]:
    """Count the roots that meet all of ``needs``."""
    return sa.select(sa.func.count()).select_from(_r).where(*_conditions(needs))


def count_providers(need: Need) -> sa.Select[Any]:
    """Count the providers that pass all tests of ``need``."""
    of_root = sa.select(sa.func.count()).select_from(sa.join(_t, _r, _r.c.id == _t.c.root_provider_id))
    return of_root.where(*(test.condition for test in need.tests))


def _conditions(needs: Iterable[Need]) -> Iterator[sa.ColumnElement[bool]]:
    yield _r.c.root_provider_id == _r.c.id
    for need in needs:
        yield sa.or_(_met_by_tree(need), _reached(need.aggregates)) if need.aggregates else _met_by_tree(need)


def _own(table: sa.Table, *conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Whether the provider ``_t`` has a row in ``table`` for which ``conditions`` hold."""
    return sa.exists().where(table.c.resource_provider_id == _t.c.id, *conditions).correlate(_t, _r)


def _met_by_tree(need: Need) -> sa.ColumnElement[bool]:
    tests = (test.condition for test in need.tests)
    return sa.exists().where(_t.c.root_provider_id == _r.c.id, *tests).correlate(_r)


def _members(aggregates: frozenset[int]) -> sa.Select[Any]:
    return sa.select(_aggregates.c.resource_provider_id).where(_aggregates.c.aggregate_id.in_(sorted(aggregates)))


def _reached(aggregates: frozenset[int]) -> sa.ColumnElement[bool]:
    return (
        sa.exists()
        .where(_t.c.root_provider_id == _r.c.id, _aggregates.c.resource_provider_id == _t.c.id)
        .where(_aggregates.c.aggregate_id.in_(sorted(aggregates)))
        .correlate(_r)
    )


def _together(needs: Sequence[Need]) -> list[Need]:
    """What no sharing provider can bring must come from one provider of the tree, below 1.29 (contract B 5.4)."""
    own = [need for need in needs if not need.aggregates]
    if len(own) < 2:
        return []
    conditions = [test.condition for need in own for test in need.tests[:_MOST_CONDITIONS]]
    everything = Test('same provider', 'for all of this (below 1.29)', statements.all_of(conditions))
    return [Need('', (everything,), frozenset(), own[0].rows)]


def _leading_rows(need: Need) -> sa.Select[Any] | sa.CompoundSelect[Any]:
    """Select the ids of the providers without one of which a root cannot meet ``need``."""
    return sa.union_all(need.rows, _members(need.aggregates)) if need.aggregates else need.rows


def _bounded_count(need: Need) -> sa.ColumnElement[int]:
    """Count the rows that would lead, at most a little more than ``RARE``."""
    bounded = _leading_rows(need).limit(RARE + 1).subquery()
    return sa.select(sa.func.count()).select_from(bounded).scalar_subquery()
