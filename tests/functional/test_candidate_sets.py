"""The cost of a candidate among many of equal hosts, in function calls, and how far a search looks ahead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from placement.handlers import allocation_candidate as handler
from placement.search.assignments import find_candidate_sets
from placement.search.budget import SearchBudget
from placement.search.prefilter import Prefilter
from placement.search.selection import AllocationCandidates, select
from tests.support.search.cached import snapshot_of
from tests.support.search.oracle import RP, SHARES, Group, Query, record
from tests.support.search.topologies import request_of

HOSTS = 1000

HOST = {'VCPU': record(64), 'MEMORY_MB': record(4096)}


def flat(used: int = 1) -> list[RP]:
    """Hosts of which every ``used``-th is full."""
    full = {'VCPU': record(64, used=64), 'MEMORY_MB': record(4096)}
    return [RP(f'host{n}', None, full if used > 1 and n % used == 0 else HOST) for n in range(HOSTS)]


def nested() -> list[RP]:
    """Hosts with two nodes."""
    return [
        rp
        for n in range(HOSTS)
        for rp in (RP(f'host{n}'), *(RP(f'host{n} node{node}', f'host{n}', HOST) for node in range(2)))
    ]


def shared() -> list[RP]:
    """Hosts with disks that each hundred of them share."""
    disks = [RP(f'disk{n}', None, {'DISK_GB': record(10000)}, {SHARES}, {f'pool{n}'}) for n in range(HOSTS // 100)]
    return [*disks, *(RP(f'host{n}', None, HOST, aggregates={f'pool{n // 100}'}) for n in range(HOSTS))]


def function_calls(work: Callable[[], Any]) -> int:
    """The number of calls of functions, in Python or C."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ('call', 'c_call')

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize('minor', [29, 36])
@pytest.mark.parametrize(
    ('topology', 'query', 'at_most'),
    [
        (flat(), Query([Group('', {'VCPU': 2, 'MEMORY_MB': 4})]), 0.05),
        (flat(used=2), Query([Group('', {'VCPU': 2, 'MEMORY_MB': 4})]), 0.05),
        (nested(), Query([Group('', {'VCPU': 2, 'MEMORY_MB': 4})]), 0.1),
        (nested(), Query([Group('1', {'VCPU': 2}), Group('2', {'VCPU': 2})], 'isolate'), 0.1),
        (shared(), Query([Group('', {'VCPU': 2, 'DISK_GB': 10})]), 0.2),
    ],
    ids=['flat', 'half full', 'nested', 'isolated', 'shared'],
)
def test_a_candidate_of_a_family_takes_no_function_call(
    topology: list[RP], query: Query, at_most: float, minor: int
) -> None:
    request = request_of(replace(query, minor=minor))
    state = snapshot_of(topology)

    def respond(limit: int) -> int:
        limited, budget = replace(request, limit=limit), SearchBudget()
        prefilter = Prefilter.for_request(state, limited)
        candidate_sets = select(
            find_candidate_sets(prefilter.search_units(), prefilter.compiled, budget), limited, budget
        )
        candidates = AllocationCandidates(state, limited, candidate_sets)
        assert handler._allocation_requests(candidates, as_list=False)
        assert handler._summaries(candidates, (1, minor))
        return sum(map(len, candidate_sets))

    # Fills what the cache keeps: the summaries, and columns that are computed when first needed.
    assert respond(400) == 400
    calls = {limit: function_calls(lambda limit=limit: respond(limit)) for limit in (10, 400)}  # type: ignore[misc]
    assert (calls[400] - calls[10]) / 390 <= at_most
