"""``placement-manage plan flavors`` and ``plan ratio``: counts, and what would change, against what then happens."""

from __future__ import annotations

import datetime as dt
import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from placement.cache.refresh import ProviderCache
from placement.db import change_log, tables
from placement.db.api import Database
from placement.ops.planning.flavors import BadFlavors, count_flavors, parse_flavor, read_flavors
from placement.ops.planning.ratio import compare_ratio
from placement.ops.reports import capacity_report
from tests.support.clouds import Cloud, Provider, create_cloud, nested, uuid_of
from tests.support.fixtures import Printed
from tests.support.http_client import claim_body, send_request

FLAVORS: list[dict[str, Any]] = [
    {'Name': 'small', 'VCPUs': 4, 'RAM': 4096, 'Disk': 10, 'Ephemeral': 0, 'Swap': '', 'Properties': {}},
    {'Name': 'nic', 'VCPUs': 4, 'RAM': 4096, 'Disk': 10, 'Properties': "resources1:SRIOV_NET_VF='2'"},
    {'Name': 'avx', 'VCPUs': 2, 'RAM': 4096, 'Disk': 10, 'Properties': {'trait:HW_CPU_X86_AVX512F': 'required'}},
    {'Name': 'numa', 'VCPUs': 2, 'RAM': 4096, 'Disk': 10, 'Properties': {'hw:numa_nodes': '2'}},
]

WriteFlavors = Callable[..., str]


@pytest.fixture
def write_flavors(tmp_path: pathlib.Path) -> WriteFlavors:
    def write(content: Any = FLAVORS) -> str:
        path = tmp_path / 'flavors.json'
        path.write_text(json.dumps(content))
        return str(path)

    return write


@pytest.fixture
def cloud(db: Database, url: str) -> Cloud:
    cloud = nested()
    create_cloud(db, cloud)
    return cloud


@pytest.mark.parametrize(
    ('properties', 'resources'),
    [
        ({}, {'VCPU': 4, 'MEMORY_MB': 4096, 'DISK_GB': 13}),
        ({'hw:cpu_policy': 'dedicated'}, {'PCPU': 4, 'MEMORY_MB': 4096, 'DISK_GB': 13}),
        (
            {'hw:cpu_policy': 'dedicated', 'hw:emulator_threads_policy': 'isolate'},
            {'PCPU': 5, 'MEMORY_MB': 4096, 'DISK_GB': 13},
        ),
        ("resources:VCPU='0', resources:CUSTOM_IRON='1'", {'MEMORY_MB': 4096, 'DISK_GB': 13, 'CUSTOM_IRON': 1}),
        ({'hw:mem_encryption': 'True'}, {'VCPU': 4, 'MEMORY_MB': 4096, 'DISK_GB': 13, 'MEM_ENCRYPTION_CONTEXT': 1}),
    ],
)
def test_resources_of_a_flavor_are_those_that_nova_requests(properties: Any, resources: dict[str, int]) -> None:
    entry = {'Name': 'x', 'VCPUs': 4, 'RAM': 4096, 'Disk': 10, 'Ephemeral': 2, 'Swap': 512, 'Properties': properties}
    assert parse_flavor(entry).resources == resources


def test_groups_and_traits_of_a_flavor() -> None:
    properties = {
        'resources1:VGPU': '1',
        'trait1:CUSTOM_RED': 'required',
        'trait:CUSTOM_BLUE': 'forbidden',
        'group_policy': 'isolate',
        'hw:cpu_thread_policy': 'require',
        'pci_passthrough:alias': 'gpu:1',
    }
    flavor = parse_flavor({'Name': 'x', 'VCPUs': 4, 'RAM': 0, 'Disk': 0, 'Properties': properties})
    unsuffixed, numbered = flavor.request.groups
    assert (unsuffixed.suffix, unsuffixed.resources) == ('', {'VCPU': 4})
    assert unsuffixed.traits.forbidden == {'CUSTOM_BLUE'}
    assert unsuffixed.traits.any_of == (frozenset({'HW_CPU_HYPERTHREADING'}),)
    assert (numbered.suffix, numbered.use_same_provider, numbered.resources) == ('1', True, {'VGPU': 1})
    assert numbered.traits.any_of == (frozenset({'CUSTOM_RED'}),)
    assert (flavor.request.isolate, flavor.ignored) == (True, ('pci_passthrough:alias',))


def test_files_of_another_form_are_rejected(write_flavors: WriteFlavors, failed: Printed, url: str) -> None:
    contents: list[Any] = [{'flavors': []}, [{'Name': 'x'}], [1]]
    for content in contents:
        with pytest.raises(BadFlavors):
            read_flavors(write_flavors(content))
        assert 'Error' not in failed('plan', 'flavors', write_flavors(content))
    assert 'Cannot read /nowhere: No such file or directory.' in failed('plan', 'flavors', '/nowhere')
    assert 'has no flavors' in failed('plan', 'flavors', write_flavors([]))


@pytest.mark.parametrize('index', range(4))
def test_as_many_instances_fit_as_can_be_claimed(cloud: Cloud, app: Any, db: Database, index: int) -> None:
    """Scheduling until nothing is found, as the compute service does with the request of the flavor."""
    flavor = parse_flavor(FLAVORS[index])
    [fit] = count_flavors(ProviderCache(db).up_to_date(), [flavor])
    queries = {
        'small': 'resources=VCPU:4,MEMORY_MB:4096,DISK_GB:10',
        'nic': 'resources=VCPU:4,MEMORY_MB:4096,DISK_GB:10&resources1=SRIOV_NET_VF:2',
        'avx': 'resources=VCPU:2,MEMORY_MB:4096,DISK_GB:10&required=HW_CPU_X86_AVX512F',
        'numa': 'resources=VCPU:2,MEMORY_MB:4096,DISK_GB:10',
    }
    claimed = 0
    while requests := _enabled_candidates(app, f'/allocation_candidates?{queries[flavor.name]}'):
        body = claim_body({uuid: amounts['resources'] for uuid, amounts in requests[0]['allocations'].items()})
        answer = send_request(app, 'PUT', f'/allocations/{uuid_of(f"new-{claimed}")}', body)
        assert answer.status_code == 204
        claimed += 1
    assert claimed == fit.count.fit
    assert fit.count.complete
    assert (claimed == 0) == (flavor.name == 'avx')


def _enabled_candidates(app: Any, path: str) -> list[dict[str, Any]]:
    document = send_request(app, 'GET', path).json
    disabled = {uuid_of('compute-3'), *(uuid_of(f'compute-3-{part}{n}') for part in ('numa', 'nic') for n in range(2))}
    return [request for request in document['allocation_requests'] if disabled.isdisjoint(request['allocations'])]


def test_what_prevents_more(db: Database, url: str, printed: Printed, write_flavors: WriteFlavors) -> None:
    hosts = [
        Provider(f'host{n}', {'VCPU': {'total': 6}}, ('HW_CPU_X86_VMX',) if n else (), ('rack',)) for n in range(3)
    ]
    pool = Provider('pool', {'DISK_GB': {'total': 25}}, ('MISC_SHARES_VIA_AGGREGATE',), ('rack',))
    create_cloud(db, Cloud([*hosts, pool]))
    plain = {'Name': 'plain', 'VCPUs': 4, 'RAM': 0, 'Disk': 0}
    listed = [
        plain,
        {**plain, 'Name': 'disk', 'Disk': 10},
        {**plain, 'Name': 'trait', 'Properties': {'trait:HW_CPU_X86_VMX': 'required'}},
        {**plain, 'Name': 'unknown', 'Properties': {'trait:CUSTOM_UNKNOWN': 'required'}},
    ]
    document = json.loads(printed('plan', 'flavors', write_flavors(listed), '--format', 'json', '--by-aggregate'))
    assert dt.datetime.fromisoformat(document['read_at']).tzinfo
    by_name = {entry['name']: entry for entry in document['flavors']}
    keys = ('fit', 'prevented_by_pools', 'prevented_by_traits', 'prevented_by_fragmentation')
    assert {name: tuple({**entry, **entry['count']}[key] for key in keys) for name, entry in by_name.items()} == {
        'plain': (3, 0, 0, 1),
        'disk': (2, 1, 0, 0),
        'trait': (2, 0, 1, 1),
        'unknown': (0, 0, 3, 1),
    }
    assert by_name['plain']['stranded'] == {'VCPU': 6}
    assert by_name['disk']['by_aggregate'][uuid_of('rack')]['fit'] == 2
    lines = printed('plan', 'flavors', write_flavors(listed), '--by-aggregate').splitlines()
    assert lines[0] == 'plain: 3 more fit; VCPU 6 would be stranded.'
    rows = [line.split() for line in lines]
    assert ['disk', '2', '1', '0', '0'] in rows
    assert [uuid_of('rack'), '3', '2', '2', '0'] in rows


def test_properties_that_are_not_evaluated_are_named(
    cloud: Cloud, printed: Printed, write_flavors: WriteFlavors
) -> None:
    lines = printed('plan', 'flavors', write_flavors()).splitlines()
    assert 'numa: fewer may fit, because only the compute service evaluates hw:numa_nodes.' in lines
    assert next(line for line in lines if line.startswith('numa: ')).startswith('numa: at most ')


@pytest.mark.parametrize(
    ('change', 'aggregate'), [('VCPU=2.5', None), ('VCPU=16', 'rack-a'), ('MEMORY_MB=0.3', 'rack-b')]
)
def test_a_ratio_gives_the_figures_of_the_change(
    cloud: Cloud, db: Database, change: str, aggregate: str | None
) -> None:
    name, value = change.split('=')
    flavors = [parse_flavor(entry) for entry in FLAVORS[:2]]
    uuid = aggregate and uuid_of(aggregate)
    report = compare_ratio(ProviderCache(db).up_to_date(), name, float(value), uuid, flavors)
    trees = [f'compute-{n}' for n in range(4) if aggregate in (None, f'rack-{"ab"[n // 2]}')]
    providers = {uuid_of(provider.name) for provider in cloud.providers if (provider.name[:9] in trees)}

    def change_ratio(tx: Any) -> None:
        change_log.record_reload(tx)
        ids = tx.execute(tables.resource_providers.select().where(tables.resource_providers.c.uuid.in_(providers)))
        class_id = tx.execute(
            tables.resource_classes.select().where(tables.resource_classes.c.name == name)
        ).scalar_one()
        inventory = tables.inventories
        chosen = inventory.c.resource_provider_id.in_([row.id for row in ids])
        of_class = inventory.c.resource_class_id == class_id
        tx.execute(inventory.update().where(chosen, of_class).values(allocation_ratio=float(value)))

    db.write(change_ratio)
    after = ProviderCache(db).up_to_date()
    [figures] = [of_class for of_class in capacity_report.summary(after).classes if of_class.resource_class == name]
    assert report.after == figures != report.before
    assert [fit.count for fit in report.flavors_after] == [fit.count for fit in count_flavors(after, flavors)]
    assert len(report.above_capacity) == figures.providers_over_committed
    assert report.inventories_changed == 2 * len(trees)
    assert sum(provider.used - provider.capacity for provider in report.above_capacity) == figures.over_committed


def test_a_ratio_is_printed(cloud: Cloud, printed: Printed, failed: Printed, write_flavors: WriteFlavors) -> None:
    lines = printed('plan', 'ratio', 'VCPU=2', '--flavors', write_flavors()).splitlines()
    assert lines[0] == 'At allocation ratio 2 the capacity of VCPU would shrink by 256, in 8 inventories.'
    rows = [line.split() for line in lines]
    assert ['Capacity', '512', '256'] in rows
    assert any(row[:2] == ['Fit:', 'small'] and row[2] != row[3] for row in rows)
    document = json.loads(printed('plan', 'ratio', 'VCPU=2', '--format', 'json', '--aggregate', uuid_of('rack-a')))
    assert dt.datetime.fromisoformat(document['read_at']).tzinfo
    assert (document['before']['capacity'], document['after']['capacity']) == (512, 384)
    assert document['inventories_changed'] == 4
    assert [entry['used'] > entry['capacity'] for entry in document['above_capacity']] == [True] * 2
    assert 'Expected CLASS=VALUE with a value above 0' in failed('plan', 'ratio', 'VCPU=0')
    assert 'No provider has inventory of PGPU.' in failed('plan', 'ratio', 'PGPU=2')
    nowhere = failed('plan', 'ratio', 'VCPU=2', '--aggregate', uuid_of('nowhere'))
    assert f'No resource provider is in the aggregate {uuid_of("nowhere")}.' in nowhere


def test_a_flavor_that_requests_nothing_fits_nowhere(cloud: Cloud, db: Database) -> None:
    flavor = parse_flavor({'Name': 'nothing', 'VCPUs': 0, 'RAM': 0, 'Disk': 0})
    [fit] = count_flavors(ProviderCache(db).up_to_date(), [flavor], by_aggregate=True)
    assert fit.by_aggregate
    assert {count.fit for count in (fit.count, *fit.by_aggregate.values())} == {0}


def test_flavors_are_counted_where_the_database_lacks_the_trait_of_disabled_hosts(cloud: Cloud, db: Database) -> None:
    flavors = [parse_flavor({**FLAVORS[0], 'Disk': 0})]
    [before] = count_flavors(ProviderCache(db).up_to_date(), flavors)
    assert before.count.fit > 0
    names = tables.traits.c.name
    with db.engine.begin() as connection:
        connection.execute(tables.traits.update().where(names == 'COMPUTE_STATUS_DISABLED').values(name='CUSTOM_OFF'))
    [after] = count_flavors(ProviderCache(db).up_to_date(), flavors)
    assert after.count.fit >= before.count.fit
