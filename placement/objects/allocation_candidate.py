"""Allocation candidates: who could serve a request right now, as plain data ready to be serialised."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placement.candidates.budget import Bound
from placement.candidates.funnel import Funnel
from placement.candidates.request import CandidateRequest
from placement.candidates.rows import Anchor, Provider
from placement.candidates.search import chosen, search
from placement.candidates.sites import Candidate
from placement.objects import candidate_bounds, candidate_funnel, candidate_names
from placement.objects.candidate_source import Source

#: Provider uuid to class name to amount.
AllocationRequest = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class AllocationCandidates:
    """The answer to one request.

    ``allocation_requests`` has one item per candidate. ``providers`` are those whose summaries belong to them (contract
    B 5.7): the ones used, and from 1.29 on everything in their trees. ``uuids`` maps the ids of these to uuids.
    ``bounds`` are those that cut the answer short. ``funnel`` tells why there is no candidate, if that was asked for.
    """

    allocation_requests: Sequence[AllocationRequest]
    providers: Sequence[Provider]
    uuids: Mapping[int, str]
    bounds: frozenset[Bound] = frozenset()
    funnel: Funnel | None = None

    @classmethod
    def get_by_request(
        cls, context: Any, request: CandidateRequest, explain_empty: bool = False
    ) -> AllocationCandidates:
        """Search, in one snapshot of the database.

        :param explain_empty: when nothing is found, find out why.
        :raises ResourceClassNotFound: a class of any group does not exist.
        :raises TraitNotFound: a trait of any group does not exist.
        """
        started = time.monotonic()
        options = context.conf.placement
        rng = random.SystemRandom() if options.randomize_allocation_candidates else None
        with context.db.reader() as tx:
            names = candidate_names.look_up(context.db, tx, request)
            source = Source(tx, request, names, rng)
            budget = candidate_bounds.budget(options)
            kept = chosen(search(source.sites(), request, budget), request, budget, rng)
            answer = _answer(kept, source, request, frozenset(budget.met))
            if explain_empty and not kept:
                account = candidate_funnel.account(tx, request, names, source, candidate_bounds.for_account(options))
                answer = replace(answer, funnel=replace(account, bounds=answer.bounds))
        _count(context.db.metrics, answer, time.monotonic() - started)
        return answer


def _count(metrics: Any, answer: AllocationCandidates, seconds: float) -> None:
    metrics.candidates(len(answer.allocation_requests), seconds)
    for bound in answer.bounds:
        metrics.search_bounded(bound.value)


def _answer(
    kept: Sequence[Candidate], source: Source, request: CandidateRequest, bounds: frozenset[Bound]
) -> AllocationCandidates:
    near: dict[int, Provider] = {}
    used: dict[int, None] = {}
    for candidate in kept:
        used.update((provider, None) for provider, _, _ in candidate.amounts)
    # Many anchors have the same sharing providers, as the same tuple.
    for providers in {id(some): some for one in kept for some in _anchor(one)}.values():
        near.update((one.id, one) for one in providers)
    uuids = {id_: near[id_].uuid for id_ in used}
    requests = [_by_provider(candidate, uuids) for candidate in kept]
    if not request.nested_aware:
        return AllocationCandidates(requests, [near[id_] for id_ in used], uuids, bounds)
    whole = _whole_trees(kept, used, near, source)
    return AllocationCandidates(requests, whole, {one.id: one.uuid for one in whole}, bounds)


def _anchor(candidate: Candidate) -> Anchor:
    return candidate.site.anchor()


def _by_provider(candidate: Candidate, uuids: Mapping[int, str]) -> AllocationRequest:
    body: dict[str, dict[str, int]] = {}
    for provider, name, amount in candidate.amounts:
        body.setdefault(uuids[provider], {})[name] = amount
    return body


def _whole_trees(
    kept: Iterable[Candidate], used: Iterable[int], near: Mapping[int, Provider], source: Source
) -> list[Provider]:
    """Return every provider of every tree that has a used one; those of sharing providers may have to be loaded."""
    wanted = {near[id_].root_id: None for id_ in used}
    trees = {tree[0].id: tree for tree in (_anchor(one).tree for one in kept) if tree}
    for tree in source.trees(root_id for root_id in wanted if root_id not in trees):
        trees[tree[0].id] = tree
    return [provider for root_id in wanted for provider in trees[root_id]]
