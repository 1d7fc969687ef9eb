"""Requests with as many names as a body of the largest size holds, for each route that takes lists."""

from __future__ import annotations

import itertools
import json
import string
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.support.http_client import ask, create_provider

#: The default of [api] max_request_body_size.
LARGEST = 1048576

_LETTERS = string.ascii_uppercase + string.digits


class Case(NamedTuple):
    """A request, the allowed statuses of its answer, and a part of the answer's detail."""

    method: str
    path: str
    body: Any
    status: int
    detail: str = ''


def check(app: Any) -> None:
    """Every route accepts the largest body that the limit allows, or rejects it with a reason."""
    host = create_provider(app)
    for case in _cases(host):
        assert LARGEST * 0.98 < len(_encoded(case.body)) <= LARGEST, case.path
        response = ask(app, case.method, case.path, case.body)
        assert response.status_int == case.status, (case.path, response.text[:300])
        assert case.detail in response.text


def _cases(host: str) -> Iterator[Case]:
    path, empty = f'/resource_providers/{host}', str(uuid.uuid4())
    owner = {'project_id': 'p', 'user_id': 'u'}
    names = _full(lambda names: {'traits': names, 'resource_provider_generation': 0}, _names())
    yield Case('PUT', f'{path}/traits', names, 400, 'No such trait')
    records = _full(
        lambda names: {'resource_provider_generation': 0, 'inventories': {one: {'total': 1} for one in names}}, _names()
    )
    yield Case('PUT', f'{path}/inventories', records, 400, 'No such resource class')
    classes = _full(
        lambda names: {
            'allocations': {host: {'resources': dict.fromkeys(names, 1)}},
            'consumer_generation': None,
            **owner,
        },
        _names(),
    )
    yield Case('PUT', f'/allocations/{empty}', classes, 400, 'No such resource class')
    providers = _full(
        lambda uuids: {
            'allocations': {one: {'resources': {'VCPU': 1}} for one in uuids},
            'consumer_generation': None,
            **owner,
        },
        _uuids(),
    )
    yield Case('PUT', f'/allocations/{empty}', providers, 400, 'that does not exist')
    consumers = _full(
        lambda uuids: {one: {'allocations': {}, 'consumer_generation': None, **owner} for one in uuids}, _uuids()
    )
    yield Case('POST', '/allocations', consumers, 204)
    aggregates = _full(
        lambda uuids: {'aggregates': uuids, 'resource_provider_generation': 0},
        (one.replace('-', '') for one in _uuids()),
    )
    yield Case('PUT', f'{path}/aggregates', aggregates, 200)
    yield Case('PUT', f'{path}/aggregates', {**aggregates, 'resource_provider_generation': 1}, 200)


def _names() -> Iterator[str]:
    """Names of one length, so that the length of a body is known beforehand."""
    return (''.join(letters) for letters in itertools.product(_LETTERS, repeat=4))


def _uuids() -> Iterator[str]:
    return (str(uuid.uuid4()) for _ in itertools.count())


def _full(make: Callable[[list[str]], Any], items: Iterator[str]) -> Any:
    """The body with as many items as the limit allows."""
    chosen = list(itertools.islice(items, 200))
    length, half = (len(_encoded(make(chosen[:count]))) for count in (200, 100))
    each = (length - half) / 100
    chosen += itertools.islice(items, int((LARGEST - length) / each))
    return make(chosen)


def _encoded(body: Any) -> bytes:
    """The body as ``ask`` sends it."""
    return json.dumps(body, separators=(',', ':')).encode()
