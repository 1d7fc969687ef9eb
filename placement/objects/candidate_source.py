"""Reads what the candidate search needs: whole provider trees as plain rows, a batch of roots at a time.

A constant number of statements per request and per further batch, whatever the number of providers. Which roots
are worth a look is decided by ``candidate_roots``; what is a candidate only by ``placement.candidates``.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from placement.candidates.request import SHARING_TRAIT, CandidateRequest
from placement.candidates.rows import Anchor, Inventory, Provider
from placement.candidates.search import served_by
from placement.candidates.sharing import SharingIndex
from placement.candidates.sites import AnchorSite
from placement.candidates.steps import compile_request
from placement.db import tables
from placement.objects.candidate_names import Names
from placement.objects.candidate_roots import Roots

_p = tables.resource_providers.alias('p')
_inventories = tables.inventories.c
_classes = tables.resource_classes
_own_traits = tables.resource_provider_traits.c
_traits = tables.traits
_own_aggregates = tables.resource_provider_aggregates.c

#: Roots loaded at a time. The first batch is as small as the limit allows, later ones grow.
_SMALLEST_BATCH = 20
_LARGEST_BATCH = 500


class Source:
    """One request's view of the database.

    :param tx: a connection in a transaction that sees one snapshot.
    :param names: the ids of what the request names.
    :param rng: visit the roots in random order; None means in order of their ids.
    """

    def __init__(
        self, tx: sa.Connection, request: CandidateRequest, names: Names, rng: random.Random | None = None
    ) -> None:
        self._tx = tx
        self._request = request
        self._names = names
        self._rng = rng
        #: The sharing providers that have inventory of any class of the request.
        self.sharing: SharingIndex[int] = SharingIndex({})
        aggregates_of = self._load_sharing()
        self.sharing = SharingIndex(aggregates_of)
        self.roots = Roots(tx, compile_request(request), names, aggregates_of)

    def sites(self) -> Iterator[AnchorSite]:
        """Yield every place that can matter: the trees in batches, then the bridges."""
        for root_ids in self._batches():
            for tree, aggregates in self._load(_p.c.root_provider_id.in_(root_ids), root_ids):
                yield AnchorSite(self.sharing.anchor(tree, aggregates & self.sharing.aggregates))
        yield from map(AnchorSite, self._bridges())

    def trees(self, root_ids: Iterable[int]) -> Iterator[tuple[Provider, ...]]:
        """Yield the trees with these roots, root first."""
        wanted = sorted(root_ids)
        for start in range(0, len(wanted), _LARGEST_BATCH):
            batch = wanted[start : start + _LARGEST_BATCH]
            for tree, _aggregates in self._load(_p.c.root_provider_id.in_(batch), batch):
                yield tree

    def _batches(self) -> Iterator[Sequence[int]]:
        limit = self._request.limit or _LARGEST_BATCH
        size = min(max(limit, _SMALLEST_BATCH), _LARGEST_BATCH)
        if self._rng is not None:
            root_ids = list(self.roots.after(None, None))
            self._rng.shuffle(root_ids)
            for start in range(0, len(root_ids), _LARGEST_BATCH):
                yield root_ids[start : start + _LARGEST_BATCH]
            return
        batch = self.roots.after(None, size)
        while batch:
            yield batch
            full = len(batch) == size
            size = min(size * 2, _LARGEST_BATCH)
            batch = self.roots.after(batch[-1], size) if full else []

    def _bridges(self) -> Iterator[Anchor]:
        """Yield where several aggregates meet, which matters only if sharing providers can serve everything."""
        if len(self.sharing.aggregates) < 2 or not served_by(self._request, self.sharing.providers):
            return
        met: defaultdict[int, set[int]] = defaultdict(set)
        for root_id, aggregate_id in self._tx.execute(self.roots.meeting_points()):
            met[root_id].add(aggregate_id)
        yield from self.sharing.bridges(frozenset(touched & self.sharing.aggregates) for touched in met.values())

    def _load_sharing(self) -> dict[Provider, frozenset[int]]:
        """Return the sharing providers with inventory of any class asked for, and their aggregates."""
        shares = _own_traits.trait_id == self._names.sharing_trait_id
        sharing = sa.select(_own_traits.resource_provider_id).where(shares)
        supply = tables.inventories.alias('supply').c
        asked_for = supply.resource_class_id.in_(sorted(self._names.class_ids.values()))
        # Looked up for each of the few, rather than as a list of all that have the class.
        supplying = sa.select(supply.id).where(supply.resource_provider_id == _p.c.id, asked_for).limit(1)
        has_any = supplying.correlate(_p).scalar_subquery().is_not(None)
        found: dict[Provider, frozenset[int]] = {}
        for (provider,), aggregates in self._load(sa.and_(_p.c.id.in_(sharing), has_any), None):
            found[provider] = aggregates
        return found

    def _load(
        self, which: sa.ColumnElement[bool], root_ids: Sequence[int] | None
    ) -> Iterator[tuple[tuple[Provider, ...], frozenset[int]]]:
        """Yield the providers for which a condition on ``_p`` holds, with the aggregates that they are in.

        With ``root_ids`` they come as whole trees in that order, without one by one.
        """
        rows = self._tx.execute(
            sa.select(_p.c.id, _p.c.uuid, _p.c.root_provider_id, _p.c.parent_provider_id).where(which).order_by(_p.c.id)
        ).all()
        if not rows:
            return
        inventories = self._inventories(which)
        traits = self._trait_names(which)
        aggregates = self._aggregate_ids(which)
        groups: defaultdict[int, list[Provider]] = defaultdict(list)
        for id_, uuid, root_id, parent_id in rows:
            member_of = self._names.aggregate_uuids(aggregates.get(id_, ()))
            provider = Provider(
                id_, uuid, root_id, parent_id, inventories.get(id_, {}), traits.get(id_, frozenset()), member_of
            )
            groups[id_ if root_ids is None else root_id].append(provider)
        for key in root_ids or list(groups):
            members = groups[key]
            members.sort(key=lambda one: one.id != key)
            touched: set[int] = set().union(*(aggregates.get(one.id, ()) for one in members))
            yield tuple(members), frozenset(touched)

    def _inventories(self, which: sa.ColumnElement[bool]) -> Mapping[int, Mapping[str, Inventory]]:
        columns = [_inventories[name] for name in Inventory._fields]
        found: defaultdict[int, dict[str, Inventory]] = defaultdict(dict)
        for id_, name, *record in self._tx.execute(
            sa.select(_inventories.resource_provider_id, _classes.c.name, *columns)
            .join(_p, _p.c.id == _inventories.resource_provider_id)
            .join(_classes, _classes.c.id == _inventories.resource_class_id)
            .where(which)
            .order_by(_inventories.resource_provider_id, _inventories.resource_class_id)
        ).all():
            found[id_][name] = Inventory(*record)
        return found

    def _trait_names(self, which: sa.ColumnElement[bool]) -> Mapping[int, set[str]]:
        found: defaultdict[int, set[str]] = defaultdict(set)
        if not self._request.with_traits:
            # The search wants to know of no other.
            return {id_: {SHARING_TRAIT} for id_ in self.sharing.ids}
        for id_, name in self._tx.execute(
            sa.select(_own_traits.resource_provider_id, _traits.c.name)
            .join(_p, _p.c.id == _own_traits.resource_provider_id)
            .join(_traits, _traits.c.id == _own_traits.trait_id)
            .where(which)
        ).all():
            found[id_].add(name)
        return found

    def _aggregate_ids(self, which: sa.ColumnElement[bool]) -> Mapping[int, set[int]]:
        found: defaultdict[int, set[int]] = defaultdict(set)
        rows: Iterable[Any] = self._tx.execute(
            sa.select(_own_aggregates.resource_provider_id, _own_aggregates.aggregate_id)
            .join(_p, _p.c.id == _own_aggregates.resource_provider_id)
            .where(which)
        )
        for id_, aggregate_id in rows:
            found[id_].add(aggregate_id)
        return found
