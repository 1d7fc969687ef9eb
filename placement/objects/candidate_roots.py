"""Which roots are worth a look, in SQL: each condition is necessary for a candidate, together they need not suffice.

For every step of the request some provider of the root's tree must qualify, or a sharing provider that reaches the
root; and the tree itself must be able to serve one of the steps. The condition that fewest rows meet leads: when one
is rare, the roots come from its rows and the others are tested on these alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from placement.candidates.rows import Provider
from placement.candidates.steps import Plan, Step
from placement.db import statements, tables
from placement.objects import room
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
_MOST_CONDITIONS = 30

#: How many selections of one need are counted to see whether they could lead.
_MOST_LEADS = 8

#: A list of more names than this is not repeated.
_LONG_LIST = 100


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

    It is met by a tree with a provider that passes all of ``tests``, or by a tree in one of the aggregates through
    which a sharing provider can meet it: ``shared_through`` is that condition on ``_aggregates``, None if none can.
    Each of ``rows`` selects ids of providers from one index, one at least of each tree that meets the need by itself.
    ``group`` is the suffix of the request group.
    """

    group: str
    tests: tuple[Test, ...]
    shared_through: sa.ColumnElement[bool] | None
    rows: tuple[sa.Select[Any], ...]

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
        self._first_of_group = {step.group: step for step in reversed(self._steps)}
        #: What a candidate cannot do without, steps first.
        self.needs = list(self._all_needs(plan))[:_MOST_CONDITIONS]
        #: What the steps need, if sharing providers can serve them all. Still the tree must serve one of them:
        #: candidates of sharing providers alone are found at their own roots or at bridges.
        self._all_shared = self.needs[: len(self._steps)]
        if len(self._all_shared) < len(self._steps) or any(need.shared_through is None for need in self._all_shared):
            self._all_shared = []
        if not plan.nested_aware:
            self.needs += _together(self.needs)
        self._leading: sa.Select[Any] | sa.CompoundSelect[Any] | None = None
        self._counted = False

    def after(self, root_id: int | None, count: int | None) -> Sequence[int]:
        """Return the next ``count`` (None: all) root ids beyond ``root_id``, ascending."""
        query = sa.select(_r.c.id).where(*self._conditions()).order_by(_r.c.id).limit(count)
        if root_id is not None:
            query = query.where(_r.c.id > root_id)
        return self._tx.scalars(query).all()

    def meeting_points(self) -> sa.Select[Any]:
        """Select (root id, aggregate id) of the roots that touch more than one aggregate with sharing providers."""
        carrying = self._carrying()
        touching = sa.join(_t, _aggregates, _aggregates.c.resource_provider_id == _t.c.id)
        several = (
            sa.select(_t.c.root_provider_id)
            .select_from(touching)
            .where(carrying)
            .group_by(_t.c.root_provider_id)
            .having(sa.func.min(_aggregates.c.aggregate_id) < sa.func.max(_aggregates.c.aggregate_id))
        )
        return (
            sa.select(_t.c.root_provider_id, _aggregates.c.aggregate_id)
            .select_from(touching)
            .where(carrying, _t.c.root_provider_id.in_(several))
            .distinct()
        )

    def _carrying(self) -> sa.ColumnElement[bool]:
        """The condition that a row of ``_aggregates`` is about an aggregate with any sharing provider."""
        shares = _traits.alias('shares')
        theirs = _aggregates.alias('theirs')
        return _aggregates.c.aggregate_id.in_(
            sa.select(theirs.c.aggregate_id)
            .join(shares, shares.c.resource_provider_id == theirs.c.resource_provider_id)
            .where(shares.c.trait_id == self._names.sharing_trait_id)
        )

    # What a candidate cannot do without ---------------------------------------------------------------------

    def _all_needs(self, plan: Plan) -> Iterator[Need]:
        for step in self._steps:
            yield self._need_of(step)
        unnumbered = [step for step in self._steps if not step.numbered]
        for name in sorted(plan.collective):
            bringing = (one for step in unnumbered for one in self._serving(step) if name in one.traits)
            yield Need('', (self._has_trait(name),), self._shared_by(bringing), (self._rows_with_trait(name),))

    def _need_of(self, step: Step) -> Need:
        rows = tuple(itertools.islice(self._rows(step), _MOST_LEADS))
        return Need(step.group, tuple(self._tests(step)), self._shared_by(self._serving(step)), rows)

    def _rows(self, step: Step) -> Iterator[sa.Select[Any]]:
        for any_of in step.member_of:
            ids = self._aggregate_ids(any_of)
            yield sa.select(_aggregates.c.resource_provider_id).where(_aggregates.c.aggregate_id.in_(ids))
        for name in sorted(step.required):
            yield self._rows_with_trait(name)
        for name, _amount in step.resources:
            yield sa.select(_inventories.c.resource_provider_id).where(self._of_class(name))

    def _rows_with_trait(self, name: str) -> sa.Select[Any]:
        return sa.select(_traits.c.resource_provider_id).where(_traits.c.trait_id == self._names.trait_ids[name])

    def _of_class(self, name: str) -> sa.ColumnElement[bool]:
        return _inventories.c.resource_class_id == self._names.class_ids[name]

    def _aggregate_ids(self, uuids: frozenset[str]) -> list[int]:
        return [self._names.aggregate_ids[uuid] for uuid in sorted(uuids) if uuid in self._names.aggregate_ids]

    def _serving(self, step: Step) -> Iterator[Provider]:
        return (one for one in self._sharing if step.refusal(one, None) is None)

    def _shared_by(self, providers: Iterable[Provider]) -> sa.ColumnElement[bool] | None:
        """The condition that a row of ``_aggregates`` is about an aggregate of any of these sharing providers."""
        ids: frozenset[int] = frozenset().union(*(self._sharing[one] for one in providers))
        if len(ids) > _LONG_LIST:
            return self._carrying()
        return _aggregates.c.aggregate_id.in_(sorted(ids)) if ids else None

    def _tests(self, step: Step) -> Iterator[Test]:
        for name, amount in step.resources[:_MOST_CONDITIONS]:
            condition = _own(_inventories, self._of_class(name), room.rule(amount))
            yield Test('resources', f'{name}:{amount}', condition, (name, amount))
        for name in sorted(step.required)[:_MOST_CONDITIONS]:
            yield self._has_trait(name)
        if self._is_worth_stating(step, len(step.forbidden)):
            names = sorted(step.forbidden)
            ids = [self._names.trait_ids[name] for name in names]
            yield Test('forbidden', ','.join(names), sa.not_(_own(_traits, _traits.c.trait_id.in_(ids))))
        if self._is_worth_stating(step, sum(map(len, step.member_of))):
            subject = ' and '.join(','.join(sorted(any_of)) for any_of in step.member_of)
            yield Test('member_of', subject, self._membership(step))

    def _is_worth_stating(self, step: Step, length: int) -> bool:
        """Whether to name a list in the statement. A long one is named once per group: parameters are bounded."""
        return 0 < length <= _LONG_LIST or (length > 0 and step is self._first_of_group[step.group])

    def _has_trait(self, name: str) -> Test:
        return Test('required', name, _own(_traits, _traits.c.trait_id == self._names.trait_ids[name]))

    def _membership(self, step: Step) -> sa.ColumnElement[bool]:
        own = sa.and_(*(self._inside(any_of, _t.c.id) for any_of in step.member_of[:_MOST_CONDITIONS]))
        if step.numbered:
            return own
        return sa.or_(own, sa.and_(*(self._inside(any_of, _r.c.id) for any_of in step.member_of[:_MOST_CONDITIONS])))

    def _inside(self, any_of: frozenset[str], provider_id: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
        inside = _aggregates.alias()
        in_any = inside.c.aggregate_id.in_(self._aggregate_ids(any_of))
        return sa.exists().where(inside.c.resource_provider_id == provider_id, in_any)

    # The statement ------------------------------------------------------------------------------------------

    def _conditions(self) -> Iterator[sa.ColumnElement[bool]]:
        yield from _conditions(self.needs)
        leading = self._lead()
        if leading is not None:
            ids = leading.subquery()
            yield _r.c.id.in_(sa.select(_t.c.root_provider_id).where(_t.c.id.in_(sa.select(ids.c[0]))))
        if self._all_shared:
            yield sa.or_(*map(_met_by_tree, self._all_shared))

    def _lead(self) -> sa.Select[Any] | sa.CompoundSelect[Any] | None:
        """Find out, once, whether there is a need that so few rows can meet that these should lead."""
        if not self._counted:
            self._counted = True
            leads = [lead for need in self.needs for lead in _leads(need)][:_MOST_CONDITIONS]
            if self._all_shared:
                leads.append(sa.union_all(*(need.rows[0] for need in self._all_shared)))
            counts = [_bounded_count(lead).label(f'lead_{number}') for number, lead in enumerate(leads)]
            found = self._tx.execute(sa.select(*counts)).one()
            rarest = min(range(len(found)), key=found.__getitem__)
            self._leading = leads[rarest] if found[rarest] <= RARE else None
        return self._leading


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
        if need.shared_through is None:
            yield _met_by_tree(need)
        else:
            yield sa.or_(_met_by_tree(need), _reached(need.shared_through))


def _own(table: sa.Table, *conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Whether the provider ``_t`` has a row in ``table`` for which ``conditions`` hold."""
    return sa.exists().where(table.c.resource_provider_id == _t.c.id, *conditions).correlate(_t, _r)


def _met_by_tree(need: Need) -> sa.ColumnElement[bool]:
    return _any(_t.c.root_provider_id == _r.c.id, *(test.condition for test in need.tests))


def _reached(shared_through: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    touching = _aggregates.c.resource_provider_id == _t.c.id
    return _any(_t.c.root_provider_id == _r.c.id, sa.exists().where(touching, shared_through).correlate(_t, _r))


def _any(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Whether a provider ``_t`` satisfies ``conditions``.

    Not an EXISTS, which servers like to turn into a join over whole tables: this is worked out root by root, and stops
    with the LIMIT of the statement.
    """
    found: sa.Select[Any] = sa.select(sa.literal_column('1')).select_from(_t).where(*conditions).limit(1)
    return found.correlate(_r).scalar_subquery().is_not(None)


def _together(needs: Sequence[Need]) -> list[Need]:
    """What no sharing provider can bring must come from one provider of the tree, below 1.29 (contract B 5.4)."""
    own = [need for need in needs if need.shared_through is None]
    if len(own) < 2:
        return []
    conditions = [test.condition for need in own for test in need.tests[:_MOST_CONDITIONS]]
    everything = Test('same provider', 'for all of this (below 1.29)', statements.all_of(conditions))
    return [Need('', (everything,), None, own[0].rows)]


def _leads(need: Need) -> Iterator[sa.Select[Any] | sa.CompoundSelect[Any]]:
    """Selections of provider ids, each with one at least of every tree that meets ``need`` in whatever way."""
    for rows in need.rows:
        if need.shared_through is None:
            yield rows
        else:
            yield sa.union_all(rows, sa.select(_aggregates.c.resource_provider_id).where(need.shared_through))


def _bounded_count(rows: sa.Select[Any] | sa.CompoundSelect[Any]) -> sa.ColumnElement[int]:
    """Count rows, but not much further than ``RARE``."""
    return sa.select(sa.func.count()).select_from(rows.limit(RARE + 1).subquery()).scalar_subquery()
