"""Finds the providers that pass the filters of ``GET /resource_providers`` (api-ref/resource-providers.md)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from oslo_utils import timeutils

from placement.cache.partition import Partition
from placement.cache.snapshot import Snapshot
from placement.candidates.request import CandidateRequest, RequestGroup
from placement.candidates.requirements import Requirement, compile_request


@dataclass(frozen=True)
class ProviderFilters:
    """The filters of a list, all of which a provider has to pass; every provider passes an empty one.

    ``member_of``: each set must have at least one aggregate (uuid) of the provider, and ``forbidden_aggregates`` none.
    ``resources``: class name to amount that the provider itself must be able to allocate. ``required`` and
    ``forbidden``: trait names; of each set of ``required_any`` the provider must have at least one. ``in_tree``: the
    uuid of any provider of the tree.
    """

    name: str | None = None
    uuid: str | None = None
    in_tree: str | None = None
    member_of: tuple[frozenset[str], ...] = ()
    forbidden_aggregates: frozenset[str] = frozenset()
    resources: Mapping[str, int] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    required_any: frozenset[frozenset[str]] = frozenset()

    def requirement(self, snapshot: Snapshot) -> Requirement:
        """Return all filters but ``name`` and ``uuid`` as a requirement: that of a suffixed group."""
        group = RequestGroup(
            suffix='',
            use_same_provider=True,
            resources=self.resources,
            required=self.required,
            forbidden=self.forbidden,
            member_of=self.member_of,
            required_any=self.required_any,
            forbidden_aggregates=self.forbidden_aggregates,
            in_tree=self.in_tree,
        )
        snapshot.names.check(group.resources, group.traits)
        [requirement] = compile_request(CandidateRequest((group,)), snapshot.root_id_of).requirements
        return requirement


def filter_providers(snapshot: Snapshot, filters: ProviderFilters) -> Iterator[tuple[Partition, list[int]]]:
    """Yield each partition that has providers which pass the filters, with their positions in it, ascending.

    :raises ResourceClassNotFound: a class does not exist; raised when the first item is requested, as is the next.
    :raises TraitNotFound: some traits do not exist.
    """
    requirement = filters.requirement(snapshot)
    for partition in snapshot.partitions:
        passing = requirement.matches(partition)
        if filters.uuid or filters.name:
            by_identity = (
                partition.by_uuid.get(filters.uuid) if filters.uuid else partition.by_name.get(filters.name or '')
            )
            positions = [] if by_identity is None else [by_identity]
            positions = [
                at
                for at in positions
                if passing[at] and (not filters.name or partition.providers[at].name == filters.name)
            ]
        else:
            positions = np.flatnonzero(passing).tolist()
        if positions:
            yield partition, positions


def latest_change(listed: Iterable[tuple[Partition, Sequence[int]]]) -> dt.datetime:
    """Return the time of the latest change of the listed providers; now if there are none or no time is recorded.

    :param listed: the result of ``filter_providers``.
    """
    known = (partition.providers[position].modified for partition, positions in listed for position in positions)
    return max(filter(None, known), default=timeutils.utcnow(with_timezone=True))
