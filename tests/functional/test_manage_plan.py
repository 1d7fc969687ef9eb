"""``placement-manage plan``: what it prints, as text and as JSON, and its exit codes."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import Any

import pytest

from placement.cmd import manage_plan
from placement.db import tables
from placement.db.api import Database
from placement.ops.planning.failures import check_failures
from placement.ops.planning.loads import PlanOptions
from tests.support.clouds import Amounts, Cloud, Provider, create_cloud, nested, uuid_of
from tests.support.fixtures import Counter, Printed

SHARES = ('MISC_SHARES_VIA_AGGREGATE',)


@pytest.fixture
def cloud(db: Database, url: str) -> Cloud:
    """The nested cloud, in the database that the commands use."""
    cloud = nested()
    create_cloud(db, cloud)
    return cloud


def store(db: Database, *providers: Provider, **allocations: Mapping[str, Amounts]) -> None:
    create_cloud(db, Cloud(list(providers), {name: dict(held) for name, held in allocations.items()}))


def host(name: str, cpus: int, *aggregates: str, traits: tuple[str, ...] = ()) -> Provider:
    return Provider(name, {'VCPU': {'total': cpus}}, traits, aggregates)


def document(printed: Printed, *arguments: str, code: int = 0) -> Any:
    return json.loads(printed('plan', *arguments, '--format', 'json', code=code))


def test_a_drain_that_fits(cloud: Cloud, printed: Printed) -> None:
    lines = printed('plan', 'drain', 'compute-2').splitlines()
    assert lines[0] == 'The 3 consumers of 1 host fit on 1 other host.'
    assert ['compute-1', '3'] in [line.split() for line in lines]
    assert lines[-1].startswith('A load is what a consumer holds on one tree.')
    plan = document(printed, 'drain', uuid_of('compute-2'))
    assert (plan['verdict'], plan['consumers'], plan['left_count'], plan['not_placed']) == ('fits', 3, 0, [])
    assert plan['sentences'] == lines[:1]
    assert dt.datetime.fromisoformat(plan['read_at']).tzinfo
    assert {move['from']['name'] for move in plan['moves']} == {'compute-2'}
    allocations = [a for move in plan['moves'] for a in move['allocations']]
    targets = {uuid_of(f'compute-1-{part}{cell}') for part in ('numa', 'nic') for cell in range(2)}
    assert {allocation['resource_provider']['uuid'] for allocation in allocations} <= targets
    assert {'VCPU': 4, 'MEMORY_MB': 4096} in [allocation['resources'] for allocation in allocations]


def test_a_drain_that_cannot_fit(db: Database, url: str, printed: Printed) -> None:
    store(
        db,
        *(host('a', 8), host('b', 4), host('c', 16, traits=('COMPUTE_STATUS_DISABLED',))),
        one={'a': {'VCPU': 3}},
        two={'a': {'VCPU': 3}},
    )
    lines = printed('plan', 'drain', 'a', code=manage_plan.CANNOT).splitlines()
    reason = '2 need at least VCPU:3, and there is room for only 1.'
    assert lines[:2] == [
        f'The 2 consumers of 1 host cannot be placed on the other hosts: {reason}',
        'The best plan makes 1 move and leaves 1.',
    ]
    assert ['VCPU:3', '1', '1', 'b', 'VCPU', '2'] in [line.split() for line in lines]
    plan = document(printed, 'drain', 'a', code=manage_plan.CANNOT)
    proof = {'resource_class': None, 'slots_of': {'VCPU': 3}, 'needed': 2, 'available': 1}
    assert (plan['verdict'], plan['proof'], len(plan['moves']), plan['left_count']) == ('cannot', proof, 1, 1)
    unplaced = {'consumers': 1, 'resources': [{'VCPU': 3}], 'eligible_hosts': 1, 'closest_lacks': {'VCPU': 2}}
    closest = {'uuid': uuid_of('b'), 'name': 'b'}
    assert plan['not_placed'] == [{**unplaced, 'closest_host': closest, 'sharing_providers': []}]


def test_a_sum_proves_that_a_drain_cannot_fit(db: Database, url: str, printed: Printed) -> None:
    consumers: dict[str, dict[str, Amounts]] = {f'x{number}': {'a': {'VCPU': 3}} for number in range(4)}
    inventories = {'VCPU': {'total': 12}, 'MEMORY_MB': {'total': 2}}
    small = {'VCPU': {'total': 5}, 'MEMORY_MB': {'total': 1}}
    consumers['y'] = {'a': {'MEMORY_MB': 2}}
    store(db, Provider('a', inventories), *(Provider(name, small) for name in 'bcde'), **consumers)
    plan = document(printed, 'drain', 'a', code=manage_plan.CANNOT)
    assert (plan['left_count'], plan['proof']['slots_of']) == (1, {'MEMORY_MB': 2})
    with db.engine.begin() as connection:
        connection.execute(tables.inventories.update().where(tables.inventories.c.total == 1).values(total=2))
        connection.execute(tables.inventories.update().where(tables.inventories.c.total == 5).values(total=2))
    sentence = printed('plan', 'drain', 'a', code=manage_plan.CANNOT).splitlines()[0]
    assert sentence.endswith('4 need at least VCPU:3, and there is no room for that.')


def test_the_whole_of_an_aggregate_is_drained(db: Database, url: str, printed: Printed, failed: Printed) -> None:
    store(db, host('a', 4, 'rack'), host('b', 4, 'rack'), host('c', 4), one={'a': {'VCPU': 2}}, two={'b': {'VCPU': 2}})
    plan = document(printed, 'drain', '--aggregate', uuid_of('rack'))
    assert {move['to']['name'] for move in plan['moves']} == {'c'}
    assert [drained['name'] for drained in plan['hosts']] == sorted('ab', key=uuid_of)
    assert 'There is no resource provider' in failed('plan', 'drain', 'nowhere')
    assert 'No host is in aggregate' in failed('plan', 'drain', '--aggregate', uuid_of('nowhere'))
    assert 'Name hosts, or an aggregate.' in failed('plan', 'drain')


def test_a_drain_of_a_host_drains_no_aggregate_whose_uuid_is_empty(db: Database, url: str, printed: Printed) -> None:
    store(db, host('a', 4), host('b', 4, 'rack'), host('c', 4), x={'a': {'VCPU': 1}}, y={'b': {'VCPU': 1}})
    with db.engine.begin() as connection:
        connection.execute(tables.placement_aggregates.update().values(uuid=''))
    assert printed('plan', 'drain', 'a').startswith('The 1 consumer of 1 host fits on')


def test_a_destination_keeps_traits_and_aggregates(db: Database, url: str, printed: Printed) -> None:
    providers = [
        host('a', 4, 'zone', traits=('CUSTOM_RED', 'HW_CPU_X86_VMX')),
        host('b', 4, traits=('CUSTOM_RED',)),
        host('c', 4, 'zone'),
    ]
    store(db, *providers, one={'a': {'VCPU': 2}})
    for options, name in ((['--keep-traits'], 'b'), (['--keep-aggregates'], 'c')):
        assert document(printed, 'drain', 'a', *options)['moves'][0]['to']['name'] == name
    both = document(printed, 'drain', 'a', '--keep-traits', '--keep-aggregates', code=manage_plan.CANNOT)
    assert both['not_placed'][0]['eligible_hosts'] == 0
    assert document(printed, 'failures', '--keep-traits', '--keep-aggregates', code=1)['not_evacuable'] == 1


def test_a_drain_uses_few_hosts_or_many(db: Database, url: str, printed: Printed) -> None:
    consumers: dict[str, dict[str, Amounts]] = {f'x{number}': {'a': {'VCPU': 1}} for number in range(3)}
    store(db, host('a', 4), host('b', 4), host('c', 4), host('d', 4), **consumers)
    for options, count in (([], 1), (['--spread'], 3)):
        plan = document(printed, 'drain', 'a', *options)
        assert len({move['to']['name'] for move in plan['moves']}) == count


def test_what_is_on_two_providers_comes_together_unless_isolated(db: Database, url: str, printed: Printed) -> None:
    nics = [Provider(f'a{n}', {'SRIOV_NET_VF': {'total': 1}}, parent='a') for n in range(2)]
    nic = Provider('b0', {'SRIOV_NET_VF': {'total': 4}}, parent='b')
    store(db, host('a', 4), *nics, host('b', 4), nic, one={'a0': {'SRIOV_NET_VF': 1}, 'a1': {'SRIOV_NET_VF': 1}})
    [move] = document(printed, 'drain', 'a')['moves']
    assert [allocation['resource_provider']['uuid'] for allocation in move['allocations']] == [uuid_of('b0')] * 2
    document(printed, 'drain', 'a', '--isolate', code=manage_plan.NOT_FOUND)


def test_shared_resources_stay_or_move(db: Database, url: str, printed: Printed) -> None:
    pools = [Provider(f'pool{n}', {'DISK_GB': {'total': 10}}, SHARES, (f'rack{n}',)) for n in range(2)]
    consumers: dict[str, dict[str, Amounts]] = {f'x{n}': {'a': {'VCPU': 2}, 'pool0': {'DISK_GB': 4}} for n in range(2)}
    store(db, host('a', 4, 'rack0'), host('b', 4, 'rack1'), host('c', 2, 'rack0'), *pools, **consumers)
    lines = printed('plan', 'drain', '--aggregate', uuid_of('rack0'), code=manage_plan.CANNOT).splitlines()
    assert (
        '2 of these hold resources of sharing providers that reach no eligible host; --move-shared moves these, too.'
        in lines
    )
    plan = document(printed, 'drain', '--aggregate', uuid_of('rack0'), '--move-shared')
    assert {a['resource_provider']['uuid'] for move in plan['moves'] for a in move['allocations']} == {
        uuid_of('b'),
        uuid_of('pool1'),
    }
    # One stays in reach of its pool, and only the other one has to leave it.
    plan = document(printed, 'drain', 'a', '--move-shared')
    assert sorted(len(move['allocations']) for move in plan['moves']) == [1, 2]


def test_allocations_without_inventory_are_listed(db: Database, url: str, printed: Printed) -> None:
    store(db, host('a', 4), host('b', 4), one={'a': {'VCPU': 1}})
    with db.engine.begin() as connection:
        class_id = connection.execute(
            tables.resource_classes.select().where(tables.resource_classes.c.name == 'PGPU')
        ).scalar_one()
        row = {'resource_provider_id': 1, 'consumer_id': uuid_of('one'), 'resource_class_id': class_id, 'used': 1}
        connection.execute(tables.allocations.insert(), [row])
    plan = document(printed, 'drain', 'a', code=manage_plan.CANNOT)
    assert plan['allocations_without_inventory'] == 1
    assert plan['not_placed'][0]['resources'] == [{'PGPU': 1, 'VCPU': 1}]
    assert '1 allocation without an inventory: the audit lists them.' in plan['sentences']


def test_hosts_whose_load_does_not_fit(cloud: Cloud, db: Database, printed: Printed) -> None:
    assert printed('plan', 'failures').splitlines()[:2] == [
        'The load of each of 3 hosts fits on the others.',
        'Tolerated failures: any 1; the worst 2 cannot.',
    ]
    with db.engine.begin() as connection:
        connection.execute(
            tables.inventories.update().values(total=tables.inventories.c.used + 1, allocation_ratio=1.0)
        )
    lines = printed('plan', 'failures', code=manage_plan.CANNOT).splitlines()
    assert lines[:2] == ['The load of 3 of 3 hosts does not fit on the others.', 'Tolerated failures: 0.']
    report = document(printed, 'failures', '--aggregate', uuid_of('rack-b'), code=manage_plan.CANNOT)
    assert (report['hosts'], report['not_evacuable'], report['tolerated_failures']) == (1, 1, 0)
    [failed_host] = report['not_evacuable_hosts']
    assert (failed_host['host']['name'], failed_host['consumers'], failed_host['verdict']) == ('compute-2', 3, 'cannot')
    assert failed_host['left_resources']['VCPU'] == 4 * failed_host['left_count']


def test_a_host_may_have_its_uuid_in_any_spelling(db: Database, url: str, printed: Printed) -> None:
    store(db, host('a', 4), one={'a': {'VCPU': 2}})
    lines = printed('plan', 'drain', uuid_of('a').replace('-', '').upper(), code=manage_plan.CANNOT).splitlines()
    assert lines[0].endswith('the other hosts: 1 needs at least VCPU:2, and there is no room for that.')


def test_gaps_that_are_smaller_than_a_consumer_guarantee_nothing(db: Database, url: str, printed: Printed) -> None:
    held: dict[str, dict[str, Amounts]] = {
        f'x{host}-{number}': {f'host{host}': {'VCPU': 4}} for host in range(22) for number in range(2)
    }
    store(db, *(host(f'host{number}', 10) for number in range(22)), **held)
    report = document(printed, 'failures', code=manage_plan.CANNOT)
    assert (report['guaranteed_together'], report['at_most_together'], report['not_evacuable']) == (0, 0, 22)
    assert 'And 2 more hosts.' in printed('plan', 'failures', code=manage_plan.CANNOT)


def test_a_host_that_just_fits_can_fail(db: Database, url: str, printed: Printed) -> None:
    store(db, host('a', 4), host('b', 4), one={'a': {'VCPU': 2}}, two={'b': {'VCPU': 2}})
    report = document(printed, 'failures')
    assert (report['tolerated_failures'], report['at_most_together']) == (1, 1)


def test_an_empty_cloud_tolerates_everything(db: Database, url: str, printed: Printed) -> None:
    assert printed('plan', 'failures').startswith('Nothing is allocated on hosts, so nothing is lost if they fail.\n')
    store(db, host('a', 4))
    assert printed('plan', 'drain', 'a').startswith('Nothing is allocated on 1 host.\n')


def test_a_host_can_be_drained_where_nobody_has_inventory(db: Database, url: str, printed: Printed) -> None:
    store(db, Provider('a', {}))
    assert printed('plan', 'drain', 'a').startswith('Nothing is allocated on 1 host.\n')


def test_usage_mismatches_are_reported(
    cloud: Cloud, db: Database, printed: Printed, capsys: pytest.CaptureFixture[str]
) -> None:
    with db.engine.begin() as connection:
        connection.execute(tables.consumers.delete().where(tables.consumers.c.uuid == uuid_of('machine-16')))
    capsys.readouterr()
    manage_plan_output = printed('plan', 'failures')
    assert manage_plan_output
    with db.engine.begin() as connection:
        connection.execute(tables.inventories.update().values(used=1))
    report = check_failures(db, PlanOptions())
    assert report.usage_mismatches > 2


def test_the_state_is_read_in_one_transaction(cloud: Cloud, db: Database, queries: Counter) -> None:
    with queries(at_most=9) as statements:
        check_failures(db, PlanOptions())
    assert not [statement for statement in statements if 'FOR UPDATE' in statement]
