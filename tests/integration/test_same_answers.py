"""Hostile and strange input gets the same answer on PostgreSQL and MariaDB as on SQLite, and leaves no trace."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import webob
from hypothesis import given
from hypothesis import strategies as st

from tests.support import applications, databases
from tests.support import malformed_requests as malformed
from tests.support.http_client import claim_body
from tests.support.malformed_requests import GOOD_HEADERS, Request, Topology, send

pytestmark = databases.ON_EACH

#: The number of generated requests of each kind; each is sent to two applications and the responses are compared.
COUNT = 250


@pytest.fixture(scope='module')
def topology(load_application: Callable[..., Any]) -> Iterator[Topology]:
    """The attacked application on the database server."""
    topology = Topology(load_application({}))
    yield topology
    topology.close()


@pytest.fixture(scope='module')
def reference(setting: databases.Setting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    """The same application on SQLite; a new one for each setting, since requests change it."""
    database = tmp_path_factory.mktemp('reference') / 'placement.sqlite'
    with applications.application(database) as app:
        topology = Topology(app)
        yield topology
        topology.close()


_UUID = re.compile('[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}')


def essence(answer: webob.Response) -> tuple[int, Any]:
    """Status, and for an error its code and detail. Other bodies are left out, since lists may have another order.

    UUIDs are masked: the detail may have one that the service gave to the provider.
    """
    if answer.status_int < 400 or not answer.body or 'json' not in answer.headers['content-type']:
        return answer.status_int, None
    error = answer.json['errors'][0]
    return answer.status_int, (error.get('code'), _UUID.sub('UUID', error['detail']))


@pytest.mark.parametrize('generator', [malformed.bodies, malformed.queries, malformed.anything])
def test_generated_requests(
    topology: Topology, reference: Topology, generator: Callable[[], st.SearchStrategy[Request]]
) -> None:
    @malformed.derandomized(COUNT)
    @given(generator())
    def compare(request: Request) -> None:
        assert essence(topology.attack(request)) == essence(reference.attack(request)), request

    compare()


#: Names that databases may confuse or reject. All are valid, and all are different.
NAMES = ['name', 'NAME', 'name ', ' name', 'näme', 'na\u0308me', 'straße', 'strasse', '\U0001d4c3ame', '😀', '😁']
NAMES += [*'%_\\\'"', '\ufffd', '\u200b', '\u00a0', 'ÿ' * 200, '😀' * 200]


def call(topology: Topology, method: str, target: str, body: Any = None) -> webob.Response:
    """A well-formed request."""
    return send(topology.app, Request(method, target, GOOD_HEADERS, b'' if body is None else json.dumps(body).encode()))


def test_texts_that_differ_are_different(topology: Topology) -> None:
    """Names of providers, and the ids of projects and users: each has a provider, and an amount of it, of its own."""
    for number, name in enumerate(NAMES):
        provider = call(topology, 'POST', '/resource_providers', {'name': name}).json['uuid']
        inventories = {'resource_provider_generation': 0, 'inventories': {'DISK_GB': {'total': 1000}}}
        call(topology, 'PUT', f'/resource_providers/{provider}/inventories', inventories)
        claim = claim_body({provider: {'DISK_GB': number + 1}}, project_id=name, user_id=name)
        assert call(topology, 'PUT', f'/allocations/{number:032x}', claim).status_int == 204, name
    for number, name in enumerate(NAMES):
        assert call(topology, 'POST', '/resource_providers', {'name': name}).status_int == 409, name
        quoted = urllib.parse.quote(name, safe='')
        listed = call(topology, 'GET', f'/resource_providers?name={quoted}').json['resource_providers']
        assert [provider['name'] for provider in listed] == [name]
        usages = call(topology, 'GET', f'/usages?project_id={quoted}&user_id={quoted}').json['usages']
        assert usages == {'DISK_GB': number + 1}


#: Ratios that might be stored or returned in another form.
RATIOS = [-0.0, 0.0, 0, 1, 0.1, 1 / 3, 16.1, 1e-30, 5e-324, 2.2250738585072014e-308, 1e22, 123456789012345680.0]
RATIOS += [2**53 + 1, 10**38, 3.40282e38, 0.30000000000000004, 1e16, 1e-7]


def test_ratios_read_back_as_written(topology: Topology) -> None:
    path = f'/resource_providers/{call(topology, "POST", "/resource_providers", {"name": "ratios"}).json["uuid"]}'
    records = {}
    for number, ratio in enumerate(RATIOS):
        assert call(topology, 'PUT', f'/resource_classes/CUSTOM_RATIO_{number}').status_int == 201
        records[f'CUSTOM_RATIO_{number}'] = {'total': 8, 'allocation_ratio': ratio}
    body = {'resource_provider_generation': 0, 'inventories': records}
    written = call(topology, 'PUT', f'{path}/inventories', body)
    inventories = written.json['inventories']
    assert [record['allocation_ratio'] for record in inventories.values()] == [float(ratio) for ratio in RATIOS]
    assert b'-0.0' not in written.body
    assert call(topology, 'GET', f'{path}/inventories').body == written.body
