"""The JSON fragments of providers in the cache are those that a new process would make."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import webob
from oslo_config import cfg

from placement import deploy
from tests.support.http_client import claim_body, demand

HOST, CHILD, OTHER, CONSUMER, AGGREGATE = (str(uuid.UUID(int=number + 2**76)) for number in range(1, 6))
CLASS = 'CUSTOM_CLASS'

Start = Callable[[], Any]


def request(app: Any, method: str, path: str, minor: int, body: Any = None) -> webob.Response:
    """Send a request that succeeds."""
    return demand(app, method, path, body, f'1.{minor}')


@pytest.fixture
def start(conf: cfg.ConfigOpts) -> Iterator[Start]:
    """Starts the application as another process would, on the same database."""
    started: list[Any] = []

    def load() -> Any:
        started.append(deploy.loadapp(conf))
        return started[-1]

    yield load
    for app in started:
        app.db.dispose()


@pytest.fixture
def app(start: Start) -> Any:
    """An application with a tree of two and one other host."""
    app = start()
    for name, parent in ((HOST, None), (CHILD, HOST), (OTHER, None)):
        body = {'name': f'name-{name}', 'uuid': name, 'parent_provider_uuid': parent}
        request(app, 'POST', '/resource_providers', 29, body)
    request(app, 'PUT', f'/resource_classes/{CLASS}', 29)
    for name, classes in ((HOST, ['VCPU', CLASS]), (CHILD, ['DISK_GB']), (OTHER, ['VCPU', 'DISK_GB', CLASS])):
        inventories = {resource_class: {'total': 10} for resource_class in classes}
        set_part(app, name, 'inventories', inventories=inventories)
    set_part(app, HOST, 'traits', traits=['HW_CPU_X86_AVX'])
    return app


def set_part(app: Any, provider: str, part: str, **members: Any) -> None:
    """Replace what belongs to a provider."""
    generation = request(app, 'GET', f'/resource_providers/{provider}', 29).json['generation']
    body = {'resource_provider_generation': generation, **members}
    request(app, 'PUT', f'/resource_providers/{provider}/{part}', 29, body)


PATHS = (
    '/resource_providers',
    '/allocation_candidates?resources=VCPU:1',
    '/allocation_candidates?resources=VCPU:1,DISK_GB:1',
    '/allocation_candidates?resources=DISK_GB:1',
)
#: At most as many forms as the cache keeps, so that each is still cached when it is requested again.
READY = [(PATHS[0], 0), (PATHS[0], 29), (PATHS[1], 12), (PATHS[1], 17), (PATHS[1], 27), (PATHS[3], 27)]
READY += [(PATHS[1], 29), (PATHS[3], 29)]
#: Each path in each microversion that has it.
EVERYTHING = [(path, minor) for minor in range(30) for path in PATHS if minor >= 10 or 'candidates' not in path]


def bodies(app: Any, requests: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Any]:
    """The bodies of an application's responses to GET requests, sent in this order."""
    return {(path, minor): request(app, 'GET', path, minor).json for path, minor in requests}


def test_each_request_gets_its_own_form(app: Any, start: Start) -> None:
    """Also after requests at lower or higher microversions, and for fewer or more classes."""
    rising, falling = bodies(app, EVERYTHING), bodies(start(), reversed(EVERYTHING))
    assert rising == falling
    summaries = rising['/allocation_candidates?resources=DISK_GB:1', 29]['provider_summaries']
    assert summaries[OTHER]['resources'].keys() == {'VCPU', 'DISK_GB', CLASS}
    assert rising['/resource_providers', 29]['resource_providers'][1]['root_provider_uuid'] == HOST


CHANGES: dict[str, Callable[[Any], Any]] = {
    'claim': lambda app: request(
        app, 'PUT', f'/allocations/{CONSUMER}', 29, claim_body({HOST: {'VCPU': 2}, CHILD: {'DISK_GB': 3}})
    ),
    'inventories': lambda app: set_part(app, HOST, 'inventories', inventories={'VCPU': {'total': 7, 'reserved': 1}}),
    'traits': lambda app: set_part(app, OTHER, 'traits', traits=['HW_CPU_X86_AVX2']),
    'aggregates': lambda app: set_part(app, OTHER, 'aggregates', aggregates=[AGGREGATE]),
    'name': lambda app: request(app, 'PUT', f'/resource_providers/{HOST}', 13, {'name': 'renamed'}),
    'parent': lambda app: request(
        app, 'PUT', f'/resource_providers/{HOST}', 29, {'name': 'joined', 'parent_provider_uuid': OTHER}
    ),
    'class': lambda app: request(app, 'PUT', f'/resource_classes/{CLASS}', 6, {'name': 'CUSTOM_RENAMED'}),
    'class that is new': lambda app: request(app, 'PUT', '/resource_classes/CUSTOM_NEW', 29),
    'child that is new': lambda app: request(
        app, 'POST', '/resource_providers', 29, {'name': 'new', 'parent_provider_uuid': CHILD}
    ),
    'child that goes': lambda app: request(app, 'DELETE', f'/resource_providers/{CHILD}', 29),
}


@pytest.mark.parametrize('name', CHANGES)
def test_a_change_is_seen_in_every_form(app: Any, start: Start, name: str) -> None:
    """Another process makes the change, and the process that responds has cached every form."""
    other = start()
    before = [bodies(application, READY) for application in (app, other)]
    CHANGES[name](other)
    after = [bodies(application, READY) for application in (app, other, start())]
    assert after[0] == after[2]
    assert after[1] == after[2]
    assert before[0] == before[1]
    assert (before[0] == after[0]) == (name == 'class that is new')
