"""The JSON fragments of providers in the cache are those that a new process would make."""

from __future__ import annotations

import urllib.parse
import uuid
from collections.abc import Iterable
from typing import Any

import pytest
import webob
from oslo_config import cfg

from placement.handlers import resource_class
from tests.support import applications
from tests.support.http_client import claim_body, create_provider, demand

PATHS = (
    '/resource_providers',
    '/allocation_candidates?resources=VCPU:1',
    '/allocation_candidates?resources=VCPU:1,DISK_GB:1',
    '/allocation_candidates?resources=DISK_GB:1',
)
#: Each path in each microversion that has it.
EVERYTHING = [(path, minor) for minor in range(30) for path in PATHS if minor >= 10 or 'candidates' not in path]


def bodies(app: Any, requests: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Any]:
    """The bodies of an application's responses to GET requests, sent in this order."""
    return {(path, minor): demand(app, 'GET', path, version=f'1.{minor}').json for path, minor in requests}


def test_each_request_gets_its_own_form(app: Any, conf: cfg.ConfigOpts) -> None:
    """Also after requests at lower or higher microversions, and for fewer or more classes."""
    demand(app, 'PUT', '/resource_classes/CUSTOM_CLASS')
    host, other = (create_provider(app, VCPU=10, **totals) for totals in ({'CUSTOM_CLASS': 10}, {'DISK_GB': 10}))
    traits = {'resource_provider_generation': 1, 'traits': ['HW_CPU_X86_AVX']}
    demand(app, 'PUT', f'/resource_providers/{host}/traits', traits)
    demand(app, 'POST', '/resource_providers', {'name': 'child', 'parent_provider_uuid': host})
    rising = bodies(app, EVERYTHING)
    with applications.application(conf.placement_database.connection) as fresh:
        assert rising == bodies(fresh, reversed(EVERYTHING))
    summaries = rising['/allocation_candidates?resources=DISK_GB:1', 29]['provider_summaries']
    assert summaries[other]['resources'].keys() == {'VCPU', 'DISK_GB'}


def test_fragments_are_written_again_after_each_change_by_another_process(app: Any, conf: cfg.ConfigOpts) -> None:
    demand(app, 'PUT', '/resource_classes/CUSTOM_CLASS')
    host, other = create_provider(app, VCPU=10, CUSTOM_CLASS=10), create_provider(app, VCPU=10, DISK_GB=10)
    path, child = f'/resource_providers/{host}', str(uuid.uuid4())
    changes: list[tuple[str, str, Any, str]] = [
        ('PUT', f'/allocations/{uuid.uuid4()}', claim_body({host: {'VCPU': 2}, other: {'VCPU': 1}}), '1.29'),
        ('PUT', f'{path}/inventories/VCPU', {'resource_provider_generation': 2, 'total': 7}, '1.29'),
        ('PUT', f'{path}/traits', {'resource_provider_generation': 3, 'traits': ['HW_CPU_X86_AVX2']}, '1.29'),
        ('PUT', path, {'name': 'renamed'}, '1.13'),
        ('POST', '/resource_providers', {'name': 'child', 'uuid': child, 'parent_provider_uuid': host}, '1.29'),
        ('PUT', path, {'name': 'joined', 'parent_provider_uuid': other}, '1.29'),
        ('PUT', '/resource_classes/CUSTOM_CLASS', {'name': 'CUSTOM_RENAMED'}, '1.6'),
        ('DELETE', f'/resource_providers/{child}', None, '1.29'),
    ]
    paths = [(PATHS[0], 29), (PATHS[1], 12), (PATHS[1], 27), (PATHS[3], 29)]
    before = bodies(app, paths)
    for change in changes:
        with applications.application(conf.placement_database.connection) as fresh:
            demand(fresh, *change)
            after = bodies(app, paths)
            assert before != after == bodies(fresh, paths), change
            before = after


def test_fragments_of_few_forms_are_kept(app: Any) -> None:
    create_provider(app)
    (partition,) = app.provider_cache.up_to_date().partitions
    for number in range(100):
        assert list(partition.fragments(('form', number), [0], lambda provider: provider.uuid.encode()))
    assert len(partition._fragments) < 10


@pytest.mark.parametrize('path', ['/resource_providers', '/resource_classes'])
def test_links_have_the_prefix_of_the_request_and_the_cache_does_not(app: Any, path: str) -> None:
    """A client may send any X-Forwarded-Prefix: what is kept must not depend on it."""
    name = 'a "href":"/name\\'
    demand(app, 'POST', '/resource_providers', {'name': name})
    plain = demand(app, 'GET', path).json
    kept = _kept(app)
    for prefix in ('/the cloud', *(f'/{number:a>1500}' for number in range(6))):
        headers = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement latest'}
        response = webob.Request.blank(path, {'SCRIPT_NAME': prefix}, headers=headers).get_response(app)
        quoted = urllib.parse.quote(prefix)
        assert response.json == _with_prefix(plain, quoted)
        assert response.text.count(quoted) == response.text.count('"href":"') == str(plain).count("'href': ")
    assert _kept(app) == kept


def _with_prefix(value: Any, prefix: str) -> Any:
    """The JSON with ``prefix`` before each href."""
    if isinstance(value, list):
        return [_with_prefix(item, prefix) for item in value]
    if isinstance(value, dict):
        return {key: prefix + item if key == 'href' else _with_prefix(item, prefix) for key, item in value.items()}
    return value


def _kept(app: Any) -> list[Any]:
    """What the caches of JSON have: the fragments of providers, and the number of lists of classes."""
    partitions = app.provider_cache.up_to_date().partitions
    return [*(partition._fragments for partition in partitions), resource_class._serialize_all.cache_info().currsize]
