"""The number of function calls for a request of each kind, and for a candidate. It does not depend on the machine.

Calls of functions in Python and in C, of the service and of its libraries, on SQLite, without the line in the log. They
are counted in a process of its own, as other tests configure logging. The bounds are what was counted on CPython 3.11,
where each comprehension is a call, with the lowest versions of all libraries, which make the most calls, and 2 percent.
3.12 to 3.14 make fewer calls.
"""

from __future__ import annotations

import collections
import gc
import json
import math
import pathlib
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import webob

from placement.handlers import allocation_candidate as handler
from placement.search.assignments import find_candidate_sets
from placement.search.budget import SearchBudget
from placement.search.selection import AllocationCandidates, select
from placement.web import policy
from tests.support import applications
from tests.support.http_client import claim_body, create_provider
from tests.support.search.cached import prefilter_of, snapshot_of
from tests.support.search.oracle import RP, SHARES, Group, Query, record
from tests.support.search.topologies import request_of

_CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')
_OTHER_PROVIDERS = 40
_BOUNDS = {
    'GET /': 152,
    'GET /resource_providers': 549,
    'GET /traits': 476,
    'GET /resource_classes': 456,
    'GET /resource_providers/{host}': 543,
    'GET /resource_providers/{host}/inventories': 651,
    f'GET /allocation_candidates?resources={",".join(f"{name}:1" for name in _CLASSES)}&limit=1000': 1257,
    'PUT /allocations/{consumer}': 1362,
}


@pytest.fixture(scope='module')
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What ``count_calls`` returns in a process of its own."""
    place = tmp_path_factory.mktemp('calls') / 'placement.sqlite'
    code = f'from tests.functional import test_function_calls as calls; calls.count_calls({str(place)!r})'
    root = pathlib.Path(__file__).parents[2]
    output = subprocess.run([sys.executable, '-c', code], cwd=root, check=True, capture_output=True, text=True).stdout
    counted: dict[str, int] = json.loads(output)
    return counted


@pytest.mark.parametrize(('request_line', 'at_most'), _BOUNDS.items())
def test_the_calls_of_a_request_do_not_grow(calls: dict[str, int], request_line: str, at_most: int) -> None:
    assert 0.7 * at_most < calls[request_line] <= at_most


def count_calls(place: str) -> None:
    """Print the calls of each request, once what is imported, compiled and cached at first is there.

    This process is its own. It looks at the policy files only once, because a request that looks makes more calls.
    """
    policy._LOOK_SECONDS = math.inf
    with applications.application(pathlib.Path(place)) as app:
        host = create_provider(app, **dict.fromkeys(_CLASSES, 100))
        # A list takes no calls for each provider.
        for _ in range(_OTHER_PROVIDERS):
            create_provider(app)
        print(json.dumps({line: [_calls(app, line, host) for _ in range(4)][-1] for line in _BOUNDS}))


def _calls(app: Any, request_line: str, host: str) -> int:
    method, path = request_line.format(host=host, consumer=uuid.uuid4()).split(' ')
    request = webob.Request.blank(path, method=method)
    request.headers.update({'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'})
    if method == 'PUT':
        request.content_type = 'application/json'
        request.json = claim_body({host: dict.fromkeys(_CLASSES, 1)})
    statuses: list[str] = []

    def start_response(status: str, _headers: Any, _error: Any = None) -> None:
        statuses.append(status)

    calls = _count(lambda: b''.join(app(request.environ, start_response)))
    assert statuses[0][:1] == '2'
    return calls


def _count(work: Callable[[], Any]) -> int:
    # What other tests left may have finalizers, whose calls would count when the garbage collector runs.
    gc.disable()
    events: collections.Counter[str] = collections.Counter()
    # From Python 3.12 on, cProfile counts the calls of all threads, such as those of background tasks of other tests.
    sys.setprofile(lambda _frame, event, _function: events.update([event]))
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return events['call'] + events['c_call']


# A candidate among many of equal hosts ----------------------------------------------------------------------------


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
        prefilter = prefilter_of(state, limited)
        candidate_sets = select(
            find_candidate_sets(prefilter.search_units(), prefilter.compiled, budget), state, limited, budget
        )
        candidates = AllocationCandidates(state, limited, candidate_sets)
        assert handler._allocation_requests(candidates, as_list=False)
        assert handler._summaries(candidates, (1, minor))
        return sum(map(len, candidate_sets))

    # Fills what the cache keeps: the summaries, and columns that are computed when first needed.
    assert respond(400) == 400
    calls = {limit: _count(lambda limit=limit: respond(limit)) for limit in (10, 400)}  # type: ignore[misc]
    assert (calls[400] - calls[10]) / 390 <= at_most
