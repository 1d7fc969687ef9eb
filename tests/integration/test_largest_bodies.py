"""Requests with as many names as the largest body holds, for each route that takes lists, on each database."""

from __future__ import annotations

import itertools
import json
import string
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from placement.db import sql
from tests.support import databases
from tests.support.http_client import claim_body, create_provider, send_request

pytestmark = databases.on(databases.SQLITE, *databases.defaults(), databases.mysqlclient())

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


def _cases(host: str) -> Iterator[Case]:
    path, empty = f'/resource_providers/{host}', str(uuid.uuid4())
    names = _full(lambda names: {'traits': names, 'resource_provider_generation': 0}, _names())
    yield Case('PUT', f'{path}/traits', names, 400, 'No such trait')
    records = _full(
        lambda names: {'resource_provider_generation': 0, 'inventories': {name: {'total': 1} for name in names}},
        _names(),
    )
    yield Case('PUT', f'{path}/inventories', records, 400, 'No such resource class')
    classes = _full(lambda names: claim_body({host: dict.fromkeys(names, 1)}), _names())
    yield Case('PUT', f'/allocations/{empty}', classes, 400, 'No such resource class')
    providers = _full(lambda uuids: claim_body({uuid_: {'VCPU': 1} for uuid_ in uuids}), _uuids())
    yield Case('PUT', f'/allocations/{empty}', providers, 400, 'that does not exist')
    consumers = _full(lambda uuids: {uuid_: claim_body({}) for uuid_ in uuids}, _uuids())
    yield Case('POST', '/allocations', consumers, 204)
    aggregates = _full(
        lambda uuids: {'aggregates': uuids, 'resource_provider_generation': 0},
        (uuid_.replace('-', '') for uuid_ in _uuids()),
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
    item_length = (length - half) / 100
    chosen += itertools.islice(items, int((LARGEST - length) / item_length))
    return make(chosen)


def _encoded(body: Any) -> bytes:
    """The body as ``send_request`` sends it."""
    return json.dumps(body, separators=(',', ':')).encode()


def test_every_route_accepts_the_largest_body_or_rejects_it_with_a_reason(load_application: Callable[..., Any]) -> None:
    app = load_application({})
    for case in _cases(create_provider(app)):
        assert LARGEST * 0.98 < len(_encoded(case.body)) <= LARGEST, case.path
        response = send_request(app, case.method, case.path, case.body)
        assert response.status_int == case.status, (case.path, response.text[:300])
        assert case.detail in response.text


def test_no_text_of_a_statement_is_kept(load_application: Callable[..., Any], setting: databases.Setting) -> None:
    """But for the last ones of each connection: a hundred that PostgreSQL's driver counts, and sixteen on SQLite."""
    db = load_application({}).db

    def run(number: int) -> int:
        ids = ', '.join(str(number * 100_000 + id_) for id_ in range(25_000))
        with db.reader() as tx:
            sql.execute_text(tx, f'SELECT count(*) FROM placement_consumers WHERE generation = ? AND id IN ({ids})', 0)
        return len(ids)

    assert run(10) > 200_000
    tracemalloc.start()
    try:
        for number in range(11, 21):
            run(number)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < {'sqlite': 3_000_000, 'postgresql': 5_000_000, 'mariadb': 1_000_000}[setting.server]


def test_amounts_whose_sum_is_larger_than_any_double_are_rejected(load_application: Callable[..., Any]) -> None:
    app = load_application({})
    host = create_provider(app, VCPU=1)
    body = {str(uuid.uuid4()): claim_body({host: {'VCPU': 10**308}}) for _ in range(2)}
    response = send_request(app, 'POST', '/allocations', body)
    assert response.status_int == 409, response.text
    assert 'The requested amount would violate inventory constraints.' in response.text
