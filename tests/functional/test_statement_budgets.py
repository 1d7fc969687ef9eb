"""The number of SQL statements of each request, and that none reads a whole table. Neither depends on the machine."""

from __future__ import annotations

import contextlib
import json
import pathlib
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from oslo_config import cfg

from placement.db.api import Database
from placement.objects.allocation import AllocationList
from placement.objects.resource_provider import ResourceProvider
from placement.web.context import RequestContext
from tests.support import applications, query_plans
from tests.support.fixtures import Counter
from tests.support.http_client import send_request
from tests.support.objects import create_provider, set_traits


@pytest.fixture
def conf(tmp_path: pathlib.Path) -> cfg.ConfigOpts:
    """Options of a process that serves all microversions."""
    return applications.options(tmp_path / 'placement.sqlite', placement=applications.EVERY_MICROVERSION)


@pytest.fixture
def queries(db: Database, queries: Counter) -> Counter:
    """Count statements, and see that each finds its rows by an index."""

    @contextlib.contextmanager
    def counted(at_most: int) -> Iterator[list[str]]:
        with query_plans.no_scans(db), queries(at_most) as seen:
            yield seen

    return counted


@pytest.fixture
def host(context: RequestContext) -> ResourceProvider:
    return create_provider(context, 'host', VCPU=1000, MEMORY_MB=1000, DISK_GB=1000)


CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')


def amounts(hosts: Sequence[ResourceProvider], amount: int = 1, classes: Sequence[str] = CLASSES) -> dict[str, Any]:
    return {host.uuid: {'resources': dict.fromkeys(classes, amount)} for host in hosts}


def claim_of(allocations: dict[str, Any], generation: int | None) -> dict[str, Any]:
    return {
        'allocations': allocations,
        'project_id': 'project',
        'user_id': 'user',
        'consumer_generation': generation,
    }


#: What belongs to a provider.
PARTS = ('inventories', 'inventories/VCPU', 'usages', 'traits', 'aggregates', 'allocations')


@pytest.mark.parametrize('below', ['', *(f'/{part}' for part in PARTS)])
def test_reading_a_provider_costs_one(app: Any, host: ResourceProvider, queries: Counter, below: str) -> None:
    """However many inventories, traits and aggregates it has."""
    set_traits(host, ['HW_CPU_X86_VMX', 'HW_CPU_X86_AVX2'])
    host.set_aggregates([str(uuid.uuid4()), str(uuid.uuid4())], increment_generation=True)
    for _ in range(2):
        assert (
            send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', claim_of(amounts([host]), None)).status_code == 204
        )
    with queries(at_most=1):
        assert send_request(app, 'GET', f'/resource_providers/{host.uuid}{below}').status_code == 200


@pytest.mark.parametrize('below', ['', *(f'/{part}' for part in PARTS)])
def test_a_404_for_a_provider_costs_one(app: Any, host: ResourceProvider, queries: Counter, below: str) -> None:
    with queries(at_most=1):
        assert send_request(app, 'GET', f'/resource_providers/{uuid.uuid4()}{below}').status_code == 404


STANDARD = ('VCPU', 'MEMORY_MB', 'DISK_GB', 'VGPU', 'SRIOV_NET_VF', 'IPV4_ADDRESS', 'PCI_DEVICE')
TRAITS = ('HW_CPU_X86_VMX', 'HW_CPU_X86_AVX', 'HW_CPU_X86_AVX2', 'HW_CPU_X86_SSE', 'HW_CPU_X86_MMX')


def test_creating_a_host_costs_fifteen(app: Any, queries: Counter) -> None:
    """Four calls as a compute service makes them, once the process is warm and the aggregate known."""
    aggregates = [str(uuid.uuid4())]
    costs = []
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
            with queries(at_most=cost if name == 'second' else 20) as seen:
                assert send_request(app, method, url, body).status_code == 200
            costs.append(len(seen))
    assert sum(costs[4:]) <= 16


CHANGES: dict[str, tuple[str, str, dict[str, Any] | None, int]] = {
    'all inventories overwritten': (
        'PUT',
        '/inventories',
        {'inventories': {key: {'total': 9} for key in STANDARD[:5]}},
        4,
    ),
    'some removed, others overwritten': ('PUT', '/inventories', {'inventories': {'VCPU': {'total': 9}}}, 5),
    'some overwritten, others added': (
        'PUT',
        '/inventories',
        {'inventories': {key: {'total': 9} for key in STANDARD}},
        5,
    ),
    'some removed, others added': ('PUT', '/inventories', {'inventories': {'PCI_DEVICE': {'total': 9}}}, 5),
    'all of it': ('PUT', '/inventories', {'inventories': {key: {'total': 9} for key in ('VCPU', 'PCI_DEVICE')}}, 5),
    'custom inventories': ('PUT', '/inventories', {'inventories': {'CUSTOM_A': {'total': 9}}}, 6),
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
}


@pytest.mark.parametrize('change', CHANGES)
def test_a_change_of_a_provider_costs_few(app: Any, context: RequestContext, queries: Counter, change: str) -> None:
    """Five, and one more for each rarer kind of work, however many inventories, traits and aggregates there are."""
    aggregates = [str(uuid.uuid4()), str(uuid.uuid4())]
    assert send_request(app, 'PUT', '/resource_classes/CUSTOM_A').status_code == 201
    assert send_request(app, 'PUT', '/traits/CUSTOM_B').status_code == 201
    other = create_provider(context, 'other', VCPU=1)
    other.set_aggregates(aggregates, increment_generation=True)
    host = create_provider(context, 'host', **dict.fromkeys(STANDARD[:5], 8))
    set_traits(host, TRAITS[:3])
    method, below, body, cost = CHANGES[change]
    if body is not None:
        body = json.loads(json.dumps(body).replace('{0}', aggregates[0]).replace('{1}', aggregates[1]))
        if below and method == 'PUT':
            body['resource_provider_generation'] = host.generation
    with queries(at_most=cost):
        response = send_request(app, method, f'/resource_providers/{host.uuid}{below}', body)
    assert response.status_code == {'PUT': 200, 'POST': 201, 'DELETE': 204}[method]


@pytest.mark.parametrize('children', [0, 20])
def test_joining_a_tree_costs_six(
    app: Any, context: RequestContext, host: ResourceProvider, queries: Counter, children: int
) -> None:
    """However many providers join."""
    root = create_provider(context)
    for number in range(children):
        create_provider(context, f'child{number}', root.uuid)
    with queries(at_most=6):
        body = {'name': 'renamed', 'parent_provider_uuid': host.uuid}
        answer = send_request(app, 'PUT', f'/resource_providers/{root.uuid}', body)
    assert answer.status_code == 200
    assert answer.json == send_request(app, 'GET', f'/resource_providers/{root.uuid}').json
    assert answer.last_modified == send_request(app, 'GET', f'/resource_providers/{root.uuid}').last_modified


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
        top.rename_and_move('renamed', parent, reparenting=True)
    roots = {'own tree': root, 'other tree': host, 'none': top}
    assert ResourceProvider.get_by_uuid(context, line.uuid).root_provider_uuid == roots[place].uuid


def test_a_child_costs_four(app: Any, host: ResourceProvider, queries: Counter) -> None:
    with queries(at_most=4):
        body = {'name': 'child', 'parent_provider_uuid': host.uuid}
        assert send_request(app, 'POST', '/resource_providers', body).status_code == 200


def test_deleting_an_empty_provider_costs_four(app: Any, context: RequestContext, queries: Counter) -> None:
    bare = create_provider(context)
    with queries(at_most=4):
        assert send_request(app, 'DELETE', f'/resource_providers/{bare.uuid}').status_code == 204


def test_deleting_a_provider_costs_one_more_for_each_kind_of_part(
    app: Any, host: ResourceProvider, queries: Counter
) -> None:
    set_traits(host, TRAITS)
    host.set_aggregates([str(uuid.uuid4())], increment_generation=True)
    with queries(at_most=7):
        assert send_request(app, 'DELETE', f'/resource_providers/{host.uuid}').status_code == 204


SEARCHES = (
    '/resource_providers',
    '/resource_providers?resources=VCPU:1,DISK_GB:1&member_of=6dd7a6c0-0d0d-4b4e-8b2c-3c9a1f0f3d51',
    '/resource_providers?required=HW_CPU_X86_VMX',
    '/resource_providers?in_tree={0}',
    '/allocation_candidates?resources=VCPU:1',
    '/allocation_candidates?resources=VCPU:1&resources1=MEMORY_MB:1&group_policy=isolate&limit=3',
    '/allocation_candidates?resources=VCPU:1001',
    '/allocation_candidates?resources=VCPU:1&required=HW_CPU_X86_VMX',
)


@pytest.mark.parametrize('path', SEARCHES)
def test_a_search_costs_one(app: Any, host: ResourceProvider, queries: Counter, path: str) -> None:
    search = path.format(host.uuid)
    assert send_request(app, 'GET', search).status_code == 200
    with queries(at_most=1) as seen:
        assert send_request(app, 'GET', search).status_code == 200
    assert len(seen) == 1


@pytest.mark.parametrize('path', SEARCHES)
@pytest.mark.parametrize('claims', [1, 30])
def test_a_search_after_claims_costs_two(
    app: Any, context: RequestContext, queries: Counter, path: str, claims: int
) -> None:
    """However many claims there were, and on however many providers."""
    hosts = [create_provider(context, f'host{number}', VCPU=8, MEMORY_MB=8, DISK_GB=8) for number in range(40)]
    search = path.format(hosts[0].uuid)
    assert send_request(app, 'GET', search).status_code == 200
    for number in range(claims):
        body = claim_of(amounts([hosts[number]]), None)
        assert send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', body).status_code == 204
    with queries(at_most=2):
        assert send_request(app, 'GET', search).status_code == 200


@pytest.mark.parametrize('changes', [1, 30])
def test_a_search_after_other_changes_costs_seven(
    app: Any, context: RequestContext, queries: Counter, changes: int
) -> None:
    hosts = [create_provider(context, f'host{number}', VCPU=8) for number in range(40)]
    assert send_request(app, 'GET', SEARCHES[0]).status_code == 200
    for host in hosts[:changes]:
        set_traits(host, ['HW_CPU_X86_VMX'])
    with queries(at_most=7):
        assert send_request(app, 'GET', SEARCHES[0]).status_code == 200


@pytest.mark.parametrize('hosts', [20, 60])
def test_a_search_reads_the_rows_of_what_changed(app: Any, context: RequestContext, db: Database, hosts: int) -> None:
    """However many other providers there are."""
    providers = [create_provider(context, f'host{number}', VCPU=8, MEMORY_MB=8, DISK_GB=8) for number in range(hosts)]
    assert send_request(app, 'GET', SEARCHES[0]).status_code == 200
    for host in providers[:2]:
        assert (
            send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', claim_of(amounts([host]), None)).status_code == 204
        )
    set_traits(providers[2], ['HW_CPU_X86_VMX'])
    with rows_read(db) as count:
        assert send_request(app, 'GET', SEARCHES[0]).status_code == 200
    # The sums of the slots. One joined row each: the only slot, the entries of the log, the providers of new usages and
    # their inventories. In the transaction all of these again but the entries, and one provider with three inventories
    # and a trait.
    assert sum(count) == 1 + 4 + 3 + 1 + 3 + 1


@contextlib.contextmanager
def rows_read(db: Database) -> Iterator[list[int]]:
    """Collects how many rows each statement has read."""
    counts: list[int] = []

    connect = sqlite3.connect

    def counting(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: Connection = connect(*arguments, **options, factory=Connection)
        connection.counts = counts
        return connection

    db.engine.dispose()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sqlite3.dbapi2, 'connect', counting)
        yield counts
    db.engine.dispose()


class Connection(sqlite3.Connection):
    """A connection whose cursors count the rows that are fetched."""

    counts: list[int]

    def cursor(self, *_: Any) -> Any:
        return super().cursor(Cursor)


class Cursor(sqlite3.Cursor):
    """Counts rows."""

    def fetchall(self) -> Any:
        rows = super().fetchall()
        self.connection.counts.append(len(rows))  # type: ignore[attr-defined]
        return rows

    def fetchone(self) -> Any:
        row = super().fetchone()
        self.connection.counts.append(row is not None)  # type: ignore[attr-defined]
        return row

    def fetchmany(self, *arguments: Any) -> Any:
        rows = super().fetchmany(*arguments)
        self.connection.counts.append(len(rows))  # type: ignore[attr-defined]
        return rows


@pytest.fixture(params=[1, 40])
def hosts(request: pytest.FixtureRequest, app: Any, context: RequestContext) -> list[ResourceProvider]:
    """One host, and many. An earlier claim has stored the project and the user."""
    totals = dict.fromkeys(CLASSES, 100)
    hosts = [create_provider(context, f'host{number}', **totals) for number in range(request.param)]
    assert send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', claim_of(amounts(hosts), None)).status_code == 204
    return hosts


@pytest.mark.parametrize('classes', [CLASSES[:1], CLASSES])
def test_a_claim_of_a_new_consumer_costs_six(
    app: Any, hosts: list[ResourceProvider], queries: Counter, classes: Sequence[str]
) -> None:
    with queries(at_most=6):
        body = claim_of(amounts(hosts, classes=classes), None)
        assert send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', body).status_code == 204


def test_a_custom_class_costs_one_more(
    app: Any, context: RequestContext, hosts: list[ResourceProvider], queries: Counter
) -> None:
    for name in ('CUSTOM_GPU', 'CUSTOM_FPGA'):
        assert send_request(app, 'PUT', f'/resource_classes/{name}').status_code == 201
    host = create_provider(context, 'other', VCPU=8, CUSTOM_GPU=8, CUSTOM_FPGA=8)
    body = claim_of(amounts([host], classes=['VCPU', 'CUSTOM_GPU', 'CUSTOM_FPGA']), None)
    with queries(at_most=7):
        assert send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', body).status_code == 204


def test_the_first_claim_of_a_project_and_user_costs_two_more(
    app: Any, host: ResourceProvider, queries: Counter
) -> None:
    # The first write of a process also takes a slot of the change log.
    set_traits(host, [])
    with queries(at_most=8):
        assert (
            send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', claim_of(amounts([host]), None)).status_code == 204
        )


def test_a_known_type_of_consumers_costs_nothing_and_a_new_one_one_more(
    app: Any, hosts: list[ResourceProvider], queries: Counter
) -> None:
    def claim(consumer: str, type_: str, generation: int | None) -> None:
        body = {**claim_of(amounts(hosts), generation), 'consumer_type': type_}
        assert send_request(app, 'PUT', f'/allocations/{consumer}', body, '1.38').status_code == 204

    claim(str(uuid.uuid4()), 'INSTANCE', None)
    consumer = str(uuid.uuid4())
    with queries(at_most=6):
        claim(consumer, 'INSTANCE', None)
    with queries(at_most=8):
        claim(consumer, 'MIGRATION', 1)
    with queries(at_most=7):
        claim(consumer, 'INSTANCE', 2)


def test_a_claim_of_a_known_consumer_costs_seven(app: Any, hosts: list[ResourceProvider], queries: Counter) -> None:
    consumer = str(uuid.uuid4())
    assert send_request(app, 'PUT', f'/allocations/{consumer}', claim_of(amounts(hosts), None)).status_code == 204
    with queries(at_most=7):
        assert send_request(app, 'PUT', f'/allocations/{consumer}', claim_of(amounts(hosts, 2), 1)).status_code == 204


def test_a_move_costs_eight(app: Any, context: RequestContext, hosts: list[ResourceProvider], queries: Counter) -> None:
    """Of any number of servers: the consumers of the migrations are new, those of the servers are known."""
    target = create_provider(context, 'there', **dict.fromkeys(CLASSES, 100))
    instances = [str(uuid.uuid4()) for _ in hosts]
    for instance, host in zip(instances, hosts, strict=True):
        assert send_request(app, 'PUT', f'/allocations/{instance}', claim_of(amounts([host]), None)).status_code == 204
    body = {instance: claim_of(amounts([target]), 1) for instance in instances}
    body |= {str(uuid.uuid4()): claim_of(amounts([host]), None) for host in hosts}
    with queries(at_most=8):
        assert send_request(app, 'POST', '/allocations', body).status_code == 204


def test_changing_consumers_beside_cleared_ones_costs_nine(
    app: Any, hosts: list[ResourceProvider], queries: Counter
) -> None:
    """They are locked first, because otherwise two statements would lock them."""
    staying, going = ([str(uuid.uuid4()) for _ in hosts] for _ in range(2))
    for consumers in (staying, going):
        for consumer, host in zip(consumers, hosts, strict=True):
            assert (
                send_request(app, 'PUT', f'/allocations/{consumer}', claim_of(amounts([host]), None)).status_code == 204
            )
    body = {consumer: claim_of(amounts([host], 2), 1) for consumer, host in zip(staying, hosts, strict=True)}
    body |= {consumer: claim_of({}, 1) for consumer in going}
    with queries(at_most=9):
        assert send_request(app, 'POST', '/allocations', body).status_code == 204


@pytest.fixture
def reshape(app: Any, context: RequestContext, hosts: list[ResourceProvider]) -> dict[str, Any]:
    """The body of a reshape: each host gives its VCPU to a new cell, and so does its consumer, which keeps the rest."""
    _, allocations = AllocationList.get_with_provider(context, hosts[0].uuid)
    for consumer in {allocation.consumer_uuid for allocation in allocations}:
        # The claim of ``hosts``, which would keep their VCPU in use.
        assert send_request(app, 'DELETE', f'/allocations/{consumer}').status_code == 204
    inventories, claims = {}, {}
    for number, host in enumerate(hosts):
        consumer, cell = str(uuid.uuid4()), create_provider(context, f'cell{number}')
        assert send_request(app, 'PUT', f'/allocations/{consumer}', claim_of(amounts([host]), None)).status_code == 204
        remaining = {name: {'total': 100} for name in CLASSES[1:]}
        inventories[host.uuid] = {'resource_provider_generation': 3, 'inventories': remaining}
        inventories[cell.uuid] = {'resource_provider_generation': 0, 'inventories': {'VCPU': {'total': 100}}}
        allocated = {**amounts([cell], classes=CLASSES[:1]), **amounts([host], classes=CLASSES[1:])}
        claims[consumer] = claim_of(allocated, 1)
    return {'inventories': inventories, 'allocations': claims}


def test_a_reshape_costs_twelve(app: Any, reshape: dict[str, Any], queries: Counter) -> None:
    """However many providers and consumers it names."""
    with queries(at_most=12):
        answer = send_request(app, 'POST', '/reshaper', reshape, version='1.30')
    assert answer.status_code == 204, answer.text


def test_a_rejected_reshape_costs_sixteen(app: Any, reshape: dict[str, Any], queries: Counter) -> None:
    reshape['allocations'].popitem()
    with queries(at_most=16):
        answer = send_request(app, 'POST', '/reshaper', reshape, version='1.30')
    assert answer.json['errors'][0]['code'] == 'placement.inventory.inuse', answer.text


@pytest.mark.parametrize('broken', ['constraint', 'capacity'])
def test_a_rejection_costs_eight(app: Any, hosts: list[ResourceProvider], queries: Counter, broken: str) -> None:
    consumer = str(uuid.uuid4())
    if broken == 'capacity':
        assert (
            send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', claim_of(amounts(hosts, 90), None)).status_code
            == 204
        )
    with queries(at_most=8):
        body = claim_of(amounts(hosts, 10 if broken == 'capacity' else 101), None)
        assert send_request(app, 'PUT', f'/allocations/{consumer}', body).status_code == 409


@pytest.mark.parametrize('way', ['DELETE', 'PUT'])
def test_a_release_costs_four_or_five(app: Any, hosts: list[ResourceProvider], queries: Counter, way: str) -> None:
    consumer = str(uuid.uuid4())
    assert send_request(app, 'PUT', f'/allocations/{consumer}', claim_of(amounts(hosts), None)).status_code == 204
    body = claim_of({}, 1) if way == 'PUT' else None
    with queries(at_most=5 if way == 'PUT' else 4):
        assert send_request(app, way, f'/allocations/{consumer}', body).status_code == 204


@pytest.mark.parametrize(
    'path',
    [
        '/traits',
        '/traits?associated=true&name=in:HW_CPU_X86_VMX',
        '/resource_classes',
        '/resource_classes/VCPU',
        '/usages?project_id=nobody',
        '/usages?project_id=nobody&user_id=nobody',
        '/allocations/{}',
    ],
)
@pytest.mark.parametrize('version', ['1.29', '1.39'])
def test_other_reads_cost_one(app: Any, queries: Counter, path: str, version: str) -> None:
    with queries(at_most=1):
        assert send_request(app, 'GET', path.format(uuid.uuid4()), version=version).status_code == 200


@pytest.mark.parametrize(
    'parameters', ['', '&consumer_type=all', '&consumer_type=unknown', '&user_id=u&consumer_type=A']
)
def test_usages_by_type_cost_one(app: Any, hosts: list[ResourceProvider], queries: Counter, parameters: str) -> None:
    with queries(at_most=1):
        assert send_request(app, 'GET', f'/usages?project_id=project{parameters}', version='1.38').status_code == 200


def test_creating_a_custom_class_costs_five(app: Any, queries: Counter) -> None:
    assert send_request(app, 'PUT', '/resource_classes/CUSTOM_FIRST').status_code == 201
    with queries(at_most=5):
        assert send_request(app, 'PUT', '/resource_classes/CUSTOM_A').status_code == 201
    with queries(at_most=1):
        assert send_request(app, 'PUT', '/resource_classes/CUSTOM_A').status_code == 204
