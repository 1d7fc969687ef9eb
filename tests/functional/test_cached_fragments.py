"""The JSON fragments of providers in the cache are those of the microversion and classes of each request.

``tests/property/test_cache_histories.py`` has the changes after which they are written again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oslo_config import cfg

from tests.support import applications
from tests.support.http_client import create_provider, demand

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


def test_fragments_of_few_forms_are_kept(app: Any) -> None:
    create_provider(app)
    (partition,) = app.provider_cache.up_to_date().partitions
    for number in range(100):
        assert list(partition.fragments(('form', number), [0], lambda provider: provider.uuid.encode()))
    assert len(partition._fragments) < 10
