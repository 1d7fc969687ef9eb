"""Finds out what each rule of a candidate request leaves over, with the conditions that the search itself uses.

Its statements grow with the request, not with the number of providers.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from placement.candidates.budget import Budget
from placement.candidates.funnel import Funnel, Miss, Stage
from placement.candidates.reasons import Reason, Rejections
from placement.candidates.request import CandidateRequest
from placement.candidates.search import chosen, search
from placement.db import tables
from placement.objects import candidate_bounds, candidate_names, candidate_roots, room
from placement.objects.candidate_names import Names
from placement.objects.candidate_roots import Need
from placement.objects.candidate_source import Source

_providers = tables.resource_providers
_inventories = tables.inventories

#: How many near misses to name.
_MISSES = 3

#: How many rules to account for, and classes to look for near misses of; a query may have thousands.
_MOST_RULES = 50


def explain(context: Any, request: CandidateRequest) -> Funnel:
    """Run a request and tell what became of it, in one snapshot of the database.

    :param context: a ``RequestContext``.
    :returns: the funnel, whether or not anything was found.
    :raises ResourceClassNotFound: a class of any group does not exist.
    :raises TraitNotFound: a trait of any group does not exist.
    """
    budget = candidate_bounds.budget(context.conf.placement)
    with context.db.reader() as tx:
        names = candidate_names.look_up(context.db, tx, request)
        return account(tx, request, names, Source(tx, request, names), budget)


def account(tx: sa.Connection, request: CandidateRequest, names: Names, source: Source, budget: Budget) -> Funnel:
    """Make the funnel of a request whose names are known, within ``budget``."""
    stages = list(itertools.islice(_stages(tx, names, source.roots.needs), _MOST_RULES))
    rejections: Rejections = Counter()
    found = len(chosen(search(source.sites(), request, budget, rejections), request, budget))
    grouping = {} if found else {key: n for key, n in rejections.items() if key[1].between_groups}
    misses = [] if found else _misses(tx, request, names)
    return Funnel(stages, grouping, found, request.limit, misses, frozenset(budget.met))


def _stages(tx: sa.Connection, names: Names, needs: Sequence[Need]) -> Iterator[Stage]:
    trees: int | None = None
    for number, need in enumerate(needs):
        for end, test in enumerate(need.tests, start=1):
            so_far = need.with_tests(end)
            # Nothing is left of nothing.
            if trees != 0:
                trees = tx.scalar(candidate_roots.count_roots([*needs[:number], so_far]))
            yield Stage(
                group=need.group,
                rule=test.rule,
                subject=test.subject,
                providers=tx.scalar(candidate_roots.count_providers(so_far)) or 0,
                trees=trees or 0,
                refused=_refused(tx, names, test.resource) if test.resource else {},
            )


def _refused(tx: sa.Connection, names: Names, resource: tuple[str, int]) -> dict[Reason, int]:
    """Count the inventories of a class that have no room for an amount, by the first rule that they break."""
    name, amount = resource
    parts = room.parts(amount)
    counted = tx.execute(
        sa.select(*(sa.func.count(sa.case((sa.and_(*_first_broken(parts, reason)), 1))) for reason in parts)).where(
            _inventories.c.resource_class_id == names.class_ids[name]
        )
    ).one()
    return {reason: n for reason, n in zip(parts, counted, strict=True) if n}


def _first_broken(parts: dict[Reason, sa.ColumnElement[bool]], broken: Reason) -> Iterator[sa.ColumnElement[bool]]:
    for reason, holds in parts.items():
        if reason is broken:
            yield sa.not_(holds)
            return
        yield holds


def _misses(tx: sa.Connection, request: CandidateRequest, names: Names) -> list[Miss]:
    """Name the providers that lack least of a class, relative to nothing but the amount itself."""
    asked: dict[tuple[str, int], str] = {}
    for group in request.groups:
        for resource in group.resources.items():
            asked.setdefault(resource, group.suffix)
    found = [
        miss
        for (name, amount), suffix in itertools.islice(asked.items(), _MOST_RULES)
        for miss in _misses_of(tx, names, suffix, name, amount)
    ]
    found.sort(key=lambda miss: (miss.wanted - miss.left) / miss.wanted)
    return found[:_MISSES]


def _misses_of(tx: sa.Connection, names: Names, group: str, name: str, amount: int) -> Iterator[Miss]:
    inv = _inventories.c
    left = room.CAPACITY - inv.used
    rows = tx.execute(
        sa.select(_providers.c.name, _providers.c.uuid, left)
        .join(_inventories, inv.resource_provider_id == _providers.c.id)
        .where(inv.resource_class_id == names.class_ids[name], sa.not_(room.fits(amount)))
        .order_by(left.desc(), _providers.c.id)
        .limit(_MISSES)
    )
    for provider, uuid, remaining in rows:
        yield Miss(provider, uuid, group, name, amount, int(remaining))
