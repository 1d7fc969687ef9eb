"""The number of function calls in the process for a request of each kind. It does not depend on the machine.

Calls of functions in Python and in C, of the service and of its libraries, on SQLite, without the line in the log. They
are counted in a process of its own, as other tests configure logging. The bounds are what was counted on CPython 3.11,
where each comprehension is a call, and 3 percent for other versions of libraries. 3.12 to 3.14 make fewer calls.
"""

from __future__ import annotations

import cProfile
import json
import pathlib
import pstats
import subprocess
import sys
import uuid
from typing import Any

import pytest
import webob

from tests.support import applications
from tests.support.http_client import claim_body, create_provider

_CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')
_OTHER_PROVIDERS = 40
_BOUNDS = {
    'GET /': 240,
    'GET /resource_providers': 690,
    'GET /traits': 628,
    'GET /resource_classes': 618,
    'GET /resource_providers/{host}': 639,
    'GET /resource_providers/{host}/inventories': 837,
    f'GET /allocation_candidates?resources={",".join(f"{name}:1" for name in _CLASSES)}&limit=1000': 1408,
    'PUT /allocations/{consumer}': 1468,
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
    """Print the calls of each request, once what is imported, compiled and cached at first is there."""
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

    with cProfile.Profile() as profile:
        b''.join(app(request.environ, start_response))
    assert statuses[0][:1] == '2'
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]
