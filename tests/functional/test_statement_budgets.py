"""The number of SQL statements of each request, and that none reads a whole table. Neither depends on the machine."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from placement.db import tables
from placement.db.api import Database
from placement.objects.resource_provider import ResourceProvider
from placement.web.authentication import RequestContext
from tests.support.applications import NEWEST_MICROVERSION
from tests.support.event_hooks import listening
from tests.support.fixtures import Counter
from tests.support.http_client import claim_body, demand, send_request
from tests.support.objects import create_provider, set_aggregates, set_traits

pytestmark = pytest.mark.usefixtures('every_microversion')

#: Tables that do not grow with the cloud.
_CATALOGS = (
    tables.resource_classes,
    tables.resource_class_sequence,
    tables.traits,
    tables.consumer_types,
    tables.change_log_slots,
)
_GROWING = set(tables.metadata.tables) - {table.name for table in _CATALOGS}


@contextlib.contextmanager
def no_scans(db: Database) -> Iterator[None]:
    """Assert at the end that no statement in between read the whole of a table that grows with the cloud."""
    seen: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if not statement.startswith('BEGIN'):
            seen.append((statement, parameters[0] if many else parameters))

    event = 'before_cursor_execute'
    with listening(db.engine, event, note):
        yield
    with db.engine.connect() as connection:
        for statement, parameters in seen:
            plan = connection.exec_driver_sql(f'EXPLAIN QUERY PLAN {statement}', parameters).all()
            scanned = {words[1] for words in (row.detail.split() for row in plan) if words[0] == 'SCAN'}
            assert not scanned & _GROWING, f'{statement}\n{[row.detail for row in plan]}'


@pytest.fixture
def queries(db: Database, queries: Counter) -> Counter:
    """Count statements, and see that each finds its rows by an index."""

    @contextlib.contextmanager
    def counted(at_most: int) -> Iterator[list[str]]:
        with no_scans(db), queries(at_most) as seen:
            yield seen

    return counted


@pytest.fixture
def host(context: RequestContext) -> ResourceProvider:
    return create_provider(context, 'host', VCPU=1000, MEMORY_MB=1000, DISK_GB=1000)


CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')
#: What belongs to a provider.
PARTS = ('', '/inventories', '/inventories/VCPU', '/usages', '/traits', '/aggregates', '/allocations')
STANDARD = ('VCPU', 'MEMORY_MB', 'DISK_GB', 'VGPU', 'SRIOV_NET_VF', 'IPV4_ADDRESS', 'PCI_DEVICE')
TRAITS = ('HW_CPU_X86_VMX', 'HW_CPU_X86_AVX', 'HW_CPU_X86_AVX2', 'HW_CPU_X86_SSE', 'HW_CPU_X86_MMX')


def amounts(
    hosts: Sequence[ResourceProvider], amount: int = 1, classes: Sequence[str] = CLASSES
) -> dict[str, dict[str, int]]:
    return {host.uuid: dict.fromkeys(classes, amount) for host in hosts}


def claim(app: Any, body: dict[str, Any], version: str = '1.29') -> str:
    """Claim for a new consumer; returns its uuid."""
    consumer = str(uuid.uuid4())
    demand(app, 'PUT', f'/allocations/{consumer}', body, version)
    return consumer


# One provider -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('below', PARTS)
def test_reading_a_provider_costs_one(app: Any, host: ResourceProvider, queries: Counter, below: str) -> None:
    """However many inventories, traits and aggregates it has; and so does a 404."""
    set_traits(host, ['HW_CPU_X86_VMX', 'HW_CPU_X86_AVX2'])
    set_aggregates(host, [str(uuid.uuid4()), str(uuid.uuid4())], increment_generation=True)
    for _ in range(2):
        claim(app, claim_body(amounts([host])))
    for provider, status in ((host.uuid, 200), (uuid.uuid4(), 404)):
        with queries(at_most=1):
            assert send_request(app, 'GET', f'/resource_providers/{provider}{below}').status_code == status


def test_creating_a_host_costs_fifteen(app: Any, queries: Counter) -> None:
    """Four calls as a compute service makes them, once the process is warm and the aggregate known."""
    aggregates = [str(uuid.uuid4())]
    for name in ('first', 'second'):
        provider_uuid = str(uuid.uuid4())
        path = f'/resource_providers/{provider_uuid}'
        inventories = {class_: {'total': 8} for class_ in STANDARD}
        for method, url, body, cost in (
            ('POST', '/resource_providers', {'name': name, 'uuid': provider_uuid}, 3),
            ('PUT', f'{path}/inventories', {'resource_provider_generation': 0, 'inventories': inventories}, 4),
            ('PUT', f'{path}/aggregates', {'resource_provider_generation': 1, 'aggregates': aggregates}, 4),
            ('PUT', f'{path}/traits', {'resource_provider_generation': 2, 'traits': TRAITS}, 4),
        ):
            with queries(at_most=cost if name == 'second' else 20):
                demand(app, method, url, body)


def _inventories(*classes: str) -> dict[str, Any]:
    return {'inventories': {class_: {'total': 9} for class_ in classes}}


CHANGES: dict[str, tuple[str, str, dict[str, Any] | None, int]] = {
    'all inventories overwritten': ('PUT', '/inventories', _inventories(*STANDARD[:5]), 4),
    'some removed, others overwritten': ('PUT', '/inventories', _inventories('VCPU'), 5),
    'some overwritten, others added': ('PUT', '/inventories', _inventories(*STANDARD), 5),
    'some removed, others added': ('PUT', '/inventories', _inventories('PCI_DEVICE'), 5),
    'all of it': ('PUT', '/inventories', _inventories('VCPU', 'PCI_DEVICE'), 5),
    'custom inventories': ('PUT', '/inventories', _inventories('CUSTOM_A'), 6),
    'no inventories': ('DELETE', '/inventories', None, 4),
    'one inventory added': ('POST', '/inventories', {'resource_class': 'PCI_DEVICE', 'total': 9}, 4),
    'one custom inventory added': ('POST', '/inventories', {'resource_class': 'CUSTOM_A', 'total': 9}, 5),
    'one inventory overwritten': ('PUT', '/inventories/VCPU', {'total': 9}, 4),
    'one inventory removed': ('DELETE', '/inventories/VCPU', None, 4),
    'other traits': ('PUT', '/traits', {'traits': TRAITS[2:]}, 5),
    'other and custom traits': ('PUT', '/traits', {'traits': [*TRAITS[2:], 'CUSTOM_B']}, 6),
    'the same traits': ('PUT', '/traits', {'traits': TRAITS[:3]}, 1),
    'no traits': ('DELETE', '/traits', None, 4),
    'known aggregates': ('PUT', '/aggregates', {'aggregates': ['{0}', '{1}']}, 4),
    'no aggregates': ('PUT', '/aggregates', {'aggregates': []}, 3),
    'new aggregates': ('PUT', '/aggregates', {'aggregates': [str(uuid.UUID(int=n)) for n in range(9)]}, 5),
    'another name': ('PUT', '', {'name': 'renamed'}, 3),
    'another name and the same parent': ('PUT', '', {'name': 'renamed', 'parent_provider_uuid': None}, 4),
    # One more for each kind of part: inventories and traits.
    'deleted': ('DELETE', '', None, 6),
}


@pytest.mark.parametrize('change', CHANGES)
def test_a_change_of_a_provider_costs_few(app: Any, context: RequestContext, queries: Counter, change: str) -> None:
    """Five, and one more for each rarer kind of work, however many inventories, traits and aggregates there are."""
    aggregates = [str(uuid.uuid4()), str(uuid.uuid4())]
    demand(app, 'PUT', '/resource_classes/CUSTOM_A')
    demand(app, 'PUT', '/traits/CUSTOM_B')
    other = create_provider(context, 'other', VCPU=1)
    set_aggregates(other, aggregates, increment_generation=True)
    host = create_provider(context, 'host', **dict.fromkeys(STANDARD[:5], 8))
    set_traits(host, TRAITS[:3])
    method, below, body, cost = CHANGES[change]
    if body is not None:
        body = json.loads(json.dumps(body).replace('{0}', aggregates[0]).replace('{1}', aggregates[1]))
        if below and method == 'PUT':
            body['resource_provider_generation'] = host.generation
    with queries(at_most=cost):
        demand(app, method, f'/resource_providers/{host.uuid}{below}', body)


# Trees ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('below', [0, 40])
@pytest.mark.parametrize('place', ['own tree', 'other tree', 'none'])
def test_moving_a_provider_costs_six(
    context: RequestContext, host: ResourceProvider, queries: Counter, below: int, place: str
) -> None:
    """However many providers are below it."""
    root = create_provider(context)
    top, sibling = (create_provider(context, name, root.uuid) for name in ('top', 'sibling'))
    line = top
    for number in range(below):
        line = create_provider(context, f'below{number}', (top if number % 2 else line).uuid)
    parent = {'own tree': sibling.uuid, 'other tree': host.uuid, 'none': None}[place]
    with queries(at_most=6):
        ResourceProvider.rename_and_move(context, top.uuid, 'renamed', parent, reparenting=True)
    roots = {'own tree': root, 'other tree': host, 'none': top}
    assert ResourceProvider.get_by_uuid(context, line.uuid).root_provider_uuid == roots[place].uuid


def test_a_root_that_joins_a_tree_costs_six_and_a_new_child_four(
    app: Any, context: RequestContext, host: ResourceProvider, queries: Counter
) -> None:
    root = create_provider(context)
    body = {'name': 'renamed', 'parent_provider_uuid': host.uuid}
    with queries(at_most=6):
        joined = demand(app, 'PUT', f'/resource_providers/{root.uuid}', body)
    shown = demand(app, 'GET', f'/resource_providers/{root.uuid}')
    assert (joined.json, joined.last_modified) == (shown.json, shown.last_modified)
    with queries(at_most=4):
        demand(app, 'POST', '/resource_providers', {'name': 'child', 'parent_provider_uuid': host.uuid})


# Searches ---------------------------------------------------------------------------------------------------------

SEARCHES = (
    '/resource_providers',
    '/resource_providers?resources=VCPU:1,DISK_GB:1&member_of=6dd7a6c0-0d0d-4b4e-8b2c-3c9a1f0f3d51',
    '/resource_providers?in_tree={0}',
    '/allocation_candidates?resources=VCPU:1',
    '/allocation_candidates?resources=VCPU:1&resources1=MEMORY_MB:1&group_policy=isolate&limit=3',
    '/allocation_candidates?resources=VCPU:1001',
    '/allocation_candidates?resources=VCPU:1&required=HW_CPU_X86_VMX',
)


@pytest.mark.parametrize('path', SEARCHES)
@pytest.mark.parametrize('changes', [1, 30])
def test_a_search_costs_one_after_claims_two_and_after_other_changes_up_to_seven(
    app: Any, context: RequestContext, queries: Counter, path: str, changes: int
) -> None:
    """However many changes there were, and of however many providers."""
    hosts = [create_provider(context, f'host{number}', VCPU=8, MEMORY_MB=8, DISK_GB=8) for number in range(40)]
    search = path.format(hosts[0].uuid)
    app.provider_cache.up_to_date()
    with queries(at_most=1) as seen:
        demand(app, 'GET', search)
    assert len(seen) == 1
    for host in hosts[:changes]:
        claim(app, claim_body(amounts([host])))
    with queries(at_most=2):
        demand(app, 'GET', search)
    for host in hosts[:changes]:
        set_traits(ResourceProvider.get_by_uuid(context, host.uuid), ['HW_CPU_X86_VMX'])
    # A tree is read from its table.
    with queries(at_most=1 if 'in_tree' in search else 7):
        demand(app, 'GET', search)


# Claims -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[1, 40])
def hosts(request: pytest.FixtureRequest, app: Any, context: RequestContext) -> list[ResourceProvider]:
    """One host, and many. An earlier claim has stored the project and the user."""
    totals = dict.fromkeys(CLASSES, 100)
    hosts = [create_provider(context, f'host{number}', **totals) for number in range(request.param)]
    claim(app, claim_body(amounts(hosts)))
    return hosts


def test_claims_of_one_consumer(
    app: Any, context: RequestContext, hosts: list[ResourceProvider], queries: Counter
) -> None:
    """A new consumer costs six, a known one seven, its release five or six, and a custom class one more."""
    with queries(at_most=6):
        consumer = claim(app, claim_body(amounts(hosts)))
    with queries(at_most=7):
        demand(app, 'PUT', f'/allocations/{consumer}', claim_body(amounts(hosts, 2), 1))
    with queries(at_most=6):
        demand(app, 'PUT', f'/allocations/{consumer}', claim_body({}, 2))
    consumer = claim(app, claim_body(amounts(hosts)))
    with queries(at_most=5):
        demand(app, 'DELETE', f'/allocations/{consumer}')
    for name in ('CUSTOM_GPU', 'CUSTOM_FPGA'):
        demand(app, 'PUT', f'/resource_classes/{name}')
    host = create_provider(context, 'other', VCPU=8, CUSTOM_GPU=8, CUSTOM_FPGA=8)
    with queries(at_most=7):
        claim(app, claim_body(amounts([host], classes=['VCPU', 'CUSTOM_GPU', 'CUSTOM_FPGA'])))


def test_the_first_claim_of_a_project_and_user_costs_two_more(
    app: Any, host: ResourceProvider, queries: Counter
) -> None:
    # The first write of a process also takes a slot of the change log.
    set_traits(host, [])
    with queries(at_most=8):
        claim(app, claim_body(amounts([host])))


def test_a_known_type_of_consumers_costs_nothing_and_a_new_one_one_more(
    app: Any, hosts: list[ResourceProvider], queries: Counter
) -> None:
    claim(app, claim_body(amounts(hosts), consumer_type='INSTANCE'), '1.38')
    with queries(at_most=6):
        consumer = claim(app, claim_body(amounts(hosts), consumer_type='INSTANCE'), '1.38')
    for generation, type_, cost in ((1, 'MIGRATION', 8), (2, 'INSTANCE', 7)):
        body = claim_body(amounts(hosts), generation, consumer_type=type_)
        with queries(at_most=cost):
            demand(app, 'PUT', f'/allocations/{consumer}', body, '1.38')


def test_a_move_costs_eight(app: Any, context: RequestContext, hosts: list[ResourceProvider], queries: Counter) -> None:
    """Of any number of servers: the consumers of the migrations are new, those of the servers are known."""
    target = create_provider(context, 'there', **dict.fromkeys(CLASSES, 100))
    body = {claim(app, claim_body(amounts([host]))): claim_body(amounts([target]), 1) for host in hosts}
    body |= {str(uuid.uuid4()): claim_body(amounts([host])) for host in hosts}
    with queries(at_most=8):
        demand(app, 'POST', '/allocations', body)


def test_changing_consumers_beside_cleared_ones_costs_nine(
    app: Any, hosts: list[ResourceProvider], queries: Counter
) -> None:
    """They are locked first, because otherwise two statements would lock them."""
    body = {claim(app, claim_body(amounts([host]))): claim_body(amounts([host], 2), 1) for host in hosts}
    body |= {claim(app, claim_body(amounts([host]))): claim_body({}, 1) for host in hosts}
    with queries(at_most=9):
        demand(app, 'POST', '/allocations', body)


@pytest.mark.parametrize(('taken', 'amount'), [(0, 101), (90, 10)], ids=['constraint', 'capacity'])
def test_a_rejection_costs_eight(
    app: Any, hosts: list[ResourceProvider], queries: Counter, taken: int, amount: int
) -> None:
    if taken:
        claim(app, claim_body(amounts(hosts, taken)))
    with queries(at_most=8):
        body = claim_body(amounts(hosts, amount))
        assert send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', body).status_code == 409


@pytest.mark.parametrize('is_rejected', [False, True])
def test_a_reshape_costs_twelve_and_a_rejected_one_sixteen(
    app: Any, context: RequestContext, queries: Counter, is_rejected: bool
) -> None:
    """However many providers and consumers: each host gives its VCPU to a new cell, and so does its consumer."""
    inventories, claims = {}, {}
    for number in range(40):
        host = create_provider(context, f'host{number}', **dict.fromkeys(CLASSES, 100))
        cell = create_provider(context, f'cell{number}')
        remaining = {name: {'total': 100} for name in CLASSES[1:]}
        inventories[host.uuid] = {'resource_provider_generation': 2, 'inventories': remaining}
        inventories[cell.uuid] = {'resource_provider_generation': 0, 'inventories': {'VCPU': {'total': 100}}}
        allocated = {**amounts([cell], classes=CLASSES[:1]), **amounts([host], classes=CLASSES[1:])}
        claims[claim(app, claim_body(amounts([host])))] = claim_body(allocated, 1)
    if is_rejected:
        claims.popitem()
    with queries(at_most=16 if is_rejected else 12):
        body = {'inventories': inventories, 'allocations': claims}
        response = send_request(app, 'POST', '/reshaper', body, version='1.30')
    assert response.status_code == (409 if is_rejected else 204), response.text


# Other requests ---------------------------------------------------------------------------------------------------


READS = (
    '/traits',
    '/traits?associated=true&name=in:HW_CPU_X86_VMX',
    '/resource_classes',
    '/resource_classes/VCPU',
    '/usages?project_id=project&user_id=user',
    '/allocations/{}',
)
TYPES = ('all', 'unknown', 'A&user_id=user')
READS_SINCE_1_38 = [f'/usages?project_id=project&consumer_type={type_}' for type_ in TYPES]


@pytest.mark.parametrize(
    ('path', 'version'),
    [*((path, '1.29') for path in READS), *((path, NEWEST_MICROVERSION) for path in (*READS, *READS_SINCE_1_38))],
)
def test_other_reads_cost_one(app: Any, host: ResourceProvider, queries: Counter, path: str, version: str) -> None:
    claim(app, claim_body(amounts([host])))
    with queries(at_most=1):
        demand(app, 'GET', path.format(uuid.uuid4()), version=version)


def test_creating_a_custom_class_costs_five(app: Any, queries: Counter) -> None:
    demand(app, 'PUT', '/resource_classes/CUSTOM_FIRST')
    for cost in (5, 1):
        with queries(at_most=cost):
            demand(app, 'PUT', '/resource_classes/CUSTOM_A')
