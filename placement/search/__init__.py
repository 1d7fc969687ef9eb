"""The search: which providers could serve a request (api-ref/candidate-search.md).

``find_candidates`` is its table of contents. In the order of use:

* ``parsing`` reads a query string into a ``request``, and single values for lists of providers.
* ``request`` compiles its groups into requirements on providers, which consist of ``conditions``.
* ``prefilter`` finds the trees that could have a candidate, and the sharing providers that reach them, with operations
  on the columns of the cache. It puts equivalent trees into one search unit. The later stages know the trees only as
  ``search_units``.
* ``solver`` assigns providers to the requirements of a search unit; ``assignments`` calls it once for all equivalent
  units.
* ``selection`` takes the candidates of a response from these assignments. ``budget`` limits all of this.

``filter_providers`` finds the providers of a list. Its filters are the requirements of a request with one group.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from placement.cache.partition import Partition
from placement.cache.snapshot import Snapshot
from placement.search import assignments, selection
from placement.search.budget import SearchBudget
from placement.search.prefilter import Prefilter
from placement.search.request import CandidateRequest, RequestGroup, compile_request, requirements_of
from placement.search.selection import AllocationCandidates


def find_candidates(
    snapshot: Snapshot, request: CandidateRequest, budget: SearchBudget, rng: random.Random | None = None
) -> AllocationCandidates:
    """Find the candidates of a request. Each stage pulls from the previous one only what it needs.

    :param budget: limits the search. Afterwards ``budget.reached`` has the limits that were reached.
    :param rng: selects a random sample of all candidates; None selects the first candidates, in order of root ids.
    :raises ResourceClassNotFound: a class of any group does not exist.
    :raises TraitNotFound: a trait of any group does not exist.
    """
    snapshot.names.raise_unless_known(request.requested_classes, request.trait_names)
    # The requirements that providers have to satisfy. Equal request groups have equal requirements.
    compiled = compile_request(request, snapshot)
    # The trees in which every requirement has a provider, found by columns. Equivalent trees form one search unit.
    units = Prefilter(snapshot, compiled, budget).search_units(rng)
    # The first candidate of each tree, then the second of each, and so on, without duplicates. Equivalent trees are
    # solved once.
    candidates = assignments.find_candidate_sets(units, compiled, budget)
    # The candidates within the limit of the request and the maximum size of a response.
    selected = selection.select(candidates, snapshot, request, budget, rng)
    return AllocationCandidates(snapshot, request, selected, frozenset(budget.reached))


def filter_providers(
    snapshot: Snapshot, group: RequestGroup, name: str | None = None, uuid: str | None = None
) -> Iterator[tuple[Partition, list[int]]]:
    """Yield the partitions in which providers pass all filters, with the ascending positions of these providers.

    The rules are in api-ref/resource-providers.md. The first item raises the errors.

    :param group: the filters that searches also have.
    :param name: the provider's name; None for any.
    :param uuid: the provider's uuid; None for any.
    :raises ResourceClassNotFound: a class does not exist.
    :raises TraitNotFound: some traits do not exist.
    """
    snapshot.names.raise_unless_known(group.resources, group.traits.names)
    [requirement] = requirements_of(group, snapshot)
    for partition in snapshot.partitions:
        flags = requirement.matches(partition)
        if uuid is not None:
            flags = flags & partition.only(partition.by_uuid.get(uuid))
        if name is not None:
            flags = flags & partition.only(partition.by_name.get(name))
        if positions := np.flatnonzero(flags).tolist():
            yield partition, positions
