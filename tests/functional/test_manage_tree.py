"""``placement-manage tree`` and ``consumer``: what they draw, what they give as JSON, and what it costs."""

from __future__ import annotations

import datetime as dt
import json
import os
import pathlib
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from placement.cmd import manage, manage_audit, output
from placement.db import tables
from placement.db.api import Database
from placement.ops.reports import provider_trees
from placement.ops.reports.consumer_reports import consumers_by_provider
from tests.functional.terminal import shown_by
from tests.support import clouds, corruption, preforked
from tests.support.clouds import Cloud, Provider, uuid_of
from tests.support.fixtures import Counter, Printed
from tests.support.http_client import claim_body, demand

SHARED = 'a0000009-0000-4000-8000-000000000000'
STORE = '00000009-0000-4000-8000-000000000000'

#: A sharing provider with disk, in an aggregate with the child of the tree of ``corruption.SOUND``.
SHARING = (
    f"""INSERT INTO placement_resource_providers (id, uuid, name, generation, root_provider_id)
    VALUES (9, '{STORE}', 'store', 4, 9)""",
    """INSERT INTO placement_inventories (id, resource_provider_id, resource_class_id, total, reserved, min_unit,
    max_unit, step_size, allocation_ratio, used) VALUES (9, 9, 2, 1000, 100, 1, 1000, 1, 1.5, 1350)""",
    """INSERT INTO placement_resource_provider_traits (resource_provider_id, trait_id)
    SELECT 9, id FROM placement_traits WHERE name IN ('MISC_SHARES_VIA_AGGREGATE', 'STORAGE_DISK_SSD')""",
    f"INSERT INTO placement_aggregates (id, uuid) VALUES (9, '{SHARED}')",
    'INSERT INTO placement_resource_provider_aggregates (resource_provider_id, aggregate_id) VALUES (9, 9), (2, 9)',
    f"""INSERT INTO placement_allocations (resource_provider_id, consumer_id, resource_class_id, used)
    VALUES (9, '{corruption.HOLDER}', 2, 1350)""",
)


def _times(changed: str, allocated: str) -> tuple[str, str]:
    """The statements that set when the inventory of the root changed and when its allocation was written."""
    return (
        f"UPDATE placement_inventories SET updated_at = '{changed}' WHERE id = 1",
        f"UPDATE placement_allocations SET created_at = '{allocated}' WHERE resource_provider_id = 1",
    )


def test_drawing(url: str, printed: Printed) -> None:
    corruption.plant(url, *corruption.SOUND, *SHARING)
    assert printed('tree') == (
        f'{corruption.FLAT} generation 0\n'
        f'root {corruption.ROOT} generation 0\n'
        '├── VCPU █████░░░░░░░░░░░░░░░ 2 of 8 used (total 8, ratio 1)\n'
        f'├── aggregates: {corruption.AGGREGATE}\n'
        f'├── shared by store {STORE} through aggregate {SHARED}\n'
        f'└── child {corruption.CHILD} generation 0\n'
        '    ├── VCPU ░░░░░░░░░░░░░░░░░░░░ 0 of 4 used (total 4, ratio 1)\n'
        f'    └── aggregates: {SHARED}\n'
        f'store {STORE} generation 4\n'
        '├── DISK_GB ████████████████████ 1.32 of 1.32 TiB used (reserved 100 GiB, total 1,000 GiB, ratio 1.5)\n'
        '├── traits: MISC_SHARES_VIA_AGGREGATE, STORAGE_DISK_SSD\n'
        f'└── aggregates: {SHARED}\n'
    )


@pytest.mark.parametrize(
    'identifier',
    [corruption.CHILD, corruption.CHILD.upper(), corruption.CHILD.replace('-', ''), 'child', 'root', corruption.ROOT],
)
def test_one_tree_by_any_of_its_providers(url: str, identifier: str, printed: Printed) -> None:
    corruption.plant(url, *corruption.SOUND, *SHARING)
    text = printed('tree', identifier)
    assert next(line.split()[0] for line in text.splitlines() if 'generation' in line) == 'root'
    assert f'child {corruption.CHILD}' in text
    assert f'shared by store {STORE}' in text
    assert 'flat' not in text
    corruption.plant(url, 'UPDATE placement_resource_providers SET name = NULL WHERE id = 9')
    assert f'shared by {STORE} through' in printed('tree', identifier)


def test_json(url: str, printed: Printed) -> None:
    corruption.plant(url, *corruption.SOUND, *SHARING, *_times('2026-11-02 10:00:00', '2026-11-03 10:00:00'))
    (tree,) = json.loads(printed('tree', 'root', '--format', 'json'))['trees']
    root, child = tree['providers']
    assert tree['root'] == corruption.ROOT
    assert tree['sharing_providers'] == [{'uuid': STORE, 'name': 'store', 'aggregates': [SHARED]}]
    assert root['inventories'] == {
        'VCPU': {
            **dict.fromkeys(('total', 'capacity', 'max_unit'), 8),
            **dict.fromkeys(('used', 'allocated'), 2),
            **dict.fromkeys(('min_unit', 'step_size', 'allocation_ratio'), 1),
            'reserved': 0,
            'updated_at': '2026-11-02T10:00:00+00:00',
            **dict.fromkeys(('allocations_from', 'allocations_to'), '2026-11-03T10:00:00+00:00'),
            'over_commitment': '',
        }
    }
    assert child.pop('inventories')['VCPU']['updated_at'] is None
    of_child = {'uuid': corruption.CHILD, 'name': 'child', 'parent_provider_uuid': corruption.ROOT}
    assert child == of_child | {'generation': 0, 'traits': [], 'aggregates': [SHARED]}


@pytest.mark.parametrize('allocations', [1, 5])
def test_usage_mismatches_are_reported(url: str, allocations: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Usages that are too low and too high; the audit finds both."""
    corruption.plant(url, *corruption.SOUND, *SHARING)
    assert manage.main(['tree']) == 0
    assert capsys.readouterr().err == ''
    corruption.plant(url, f'UPDATE placement_allocations SET used = {allocations} WHERE resource_provider_id = 1')
    warning = 'Warning: the recorded usage of 1 inventory is not the sum of the allocations.'
    for arguments in ([], ['child'], ['--format', 'json']):
        assert manage.main(['tree', *arguments]) == 0
        captured = capsys.readouterr()
        assert captured.err.startswith(warning)
        wrong = f'2 of 8 used (total 8, ratio 1) WRONG: the allocations add up to {allocations}\n'
        assert wrong in captured.out or f'"allocated": {allocations},\n' in captured.out
    assert manage.main(['tree', 'store']) == 0
    assert capsys.readouterr().err == ''
    assert manage.main(['audit']) == manage_audit.UNREPAIRED


def test_a_negative_usage_is_drawn_and_named(url: str, capsys: pytest.CaptureFixture[str], printed: Printed) -> None:
    corruption.plant(url, *corruption.SOUND, 'UPDATE placement_inventories SET used = -8 WHERE id = 1')
    line = 'VCPU ░░░░░░░░░░░░░░░░░░░░ -8 of 8 used (total 8, ratio 1) WRONG: the allocations add up to 2\n'
    assert line in printed('tree')
    assert manage.main(['tree']) == 0
    assert capsys.readouterr().err.startswith('Warning: the recorded usage')


@pytest.mark.parametrize(
    ('options', 'roots'),
    [
        (['--name', 'CHI'], ['root']),
        (['--trait', 'STORAGE_DISK_SSD', '--trait', 'MISC_SHARES_VIA_AGGREGATE'], ['store']),
        (['--aggregate', SHARED], ['root', 'store']),
        (['--aggregate', SHARED, '--aggregate', corruption.AGGREGATE], ['root']),
        (['--full'], ['store']),
        (['--full', '--class', 'VCPU'], []),
        (['--name', 'nobody'], []),
    ],
)
def test_trees_are_chosen(url: str, options: list[str], roots: list[str], printed: Printed) -> None:
    """Each condition is met by any provider of a tree, and the whole tree is shown."""
    corruption.plant(url, *corruption.SOUND, *SHARING)
    names = {corruption.ROOT: 'root', STORE: 'store', corruption.FLAT: 'flat'}
    trees = json.loads(printed('tree', *options, '--format', 'json'))['trees']
    assert [names[tree['root']] for tree in trees] == roots
    assert [len(tree['providers']) for tree in trees if tree['root'] == corruption.ROOT] == [2] * roots.count('root')
    if not roots:
        assert printed('tree', *options) == 'No tree satisfies these conditions.\n'


def test_trees_without_a_change(url: str, app: Any, printed: Printed) -> None:
    def unchanged(age: str) -> list[str]:
        trees = json.loads(printed('tree', '--unchanged-for', age, '--format', 'json'))['trees']
        return [tree['root'] for tree in trees]

    corruption.plant(url, *corruption.SOUND)
    assert unchanged('99999d') == []
    consumer = str(uuid.uuid4())
    demand(app, 'PUT', f'/allocations/{consumer}', claim_body({corruption.CHILD: {'VCPU': 1}}))
    assert unchanged('1h') == [corruption.FLAT]
    # A deletion sets no time.
    corruption.plant(url, "UPDATE placement_resource_providers SET updated_at = '2020-01-02 00:00:00'")
    assert unchanged('1h') == [corruption.FLAT, corruption.ROOT]
    demand(app, 'DELETE', f'/allocations/{consumer}')
    assert unchanged('1h') == [corruption.FLAT, corruption.ROOT]
    inventories = {'resource_provider_generation': 0, 'inventories': {'VCPU': {'total': 4}}}
    demand(app, 'PUT', f'/resource_providers/{corruption.FLAT}/inventories', inventories)
    assert unchanged('1h') == [corruption.ROOT]


@pytest.mark.parametrize('age', ['1w', '1000000d'])
def test_an_age_is_a_number_of_days_or_hours(age: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        manage.main(['tree', '--unchanged-for', age])
    assert f"'{age}' is not a number of days or hours such as 30d or 12h" in capsys.readouterr().err


@pytest.mark.parametrize('command', ['tree', 'capacity'])
@pytest.mark.parametrize(
    ('aggregate', 'message'),
    [
        ('az1', "'az1' is not the uuid of an aggregate."),
        (str(uuid.UUID(int=1)), f'No resource provider is in the aggregate {uuid.UUID(int=1)}.'),
    ],
)
def test_an_aggregate_that_does_not_exist_is_an_error(
    url: str, command: str, aggregate: str, message: str, failed: Printed
) -> None:
    corruption.plant(url, *corruption.SOUND, *SHARING)
    assert failed(command, '--aggregate', aggregate) == f'placement-manage: {message}\n'


@pytest.mark.parametrize('command', ['tree', 'capacity'])
def test_an_aggregate_can_be_named_as_in_the_names_file(
    url: str, command: str, tmp_path: pathlib.Path, printed: Printed, failed: Printed
) -> None:
    corruption.plant(url, *corruption.SOUND, *SHARING)
    file = tmp_path / 'names.json'
    file.write_text(json.dumps({SHARED: 'az1', corruption.AGGREGATE: 'twice', STORE: 'twice'}))
    options = ['--aggregate', 'az1', '--names', str(file), '--format', 'json']
    assert printed(command, *options) == printed(command, '--aggregate', SHARED, '--format', 'json')
    error = failed(command, '--aggregate', 'twice', '--names', str(file))
    assert "'twice' is not the uuid of an aggregate, and the names file has 2 uuids with this name." in error
    error = failed(command, '--aggregate', 'az2', '--names', str(file))
    assert "'az2' is not the uuid of an aggregate, and the names file does not have it." in error


BEFORE, AFTER = '2020-11-02 10:00:00', '2020-11-03 10:00:00.125'
SET_BELOW = ' That change set the capacity below the 2 that were already allocated.'
WRITTEN_LATER = (
    ' Allocations were written after that change: they replaced others of at least the same amount, which the service'
    ' accepts, or another program wrote them.'
)


@pytest.mark.parametrize(
    ('columns', 'changed', 'allocated', 'cause'),
    [
        ('total = 1', AFTER, BEFORE, SET_BELOW),
        ('reserved = 7', AFTER, BEFORE, f'{SET_BELOW} With nothing reserved, the capacity would suffice.'),
        ('allocation_ratio = 0.1', AFTER, BEFORE, f'{SET_BELOW} With a ratio of 1, the capacity would suffice.'),
        ('total = 1', BEFORE, AFTER, WRITTEN_LATER),
        # Neither can be told: two writes at the same time, and a recorded usage of which most has no allocation.
        ('total = 1', AFTER, AFTER, ''),
        ('used = 9', BEFORE, AFTER, ''),
    ],
)
def test_since_when_and_why_a_host_is_over_committed(
    url: str, columns: str, changed: str, allocated: str, cause: str, printed: Printed
) -> None:
    overcommit = f'UPDATE placement_inventories SET {columns} WHERE id = 1'
    corruption.plant(url, *corruption.SOUND, overcommit, *_times(changed, allocated))
    for arguments in ([], ['root']):
        line = printed('tree', *arguments).partition('├── VCPU: ')[2].splitlines()[0]
        times = f'({changed[:16]} UTC); allocations from {allocated[:16]} UTC to {allocated[:16]} UTC.'
        assert line.endswith(f' days ago {times}{cause}')
        root = json.loads(printed('tree', *arguments, '--format', 'json'))['trees'][-1]['providers'][0]
        changed_at, allocated_at = (
            dt.datetime.fromisoformat(moment).replace(tzinfo=dt.UTC).isoformat() for moment in (changed, allocated)
        )
        assert root['inventories']['VCPU']['over_commitment'] == (
            f'Inventory changed {changed_at}; allocations from {allocated_at} to {allocated_at}.{cause}'
        )


def test_allocations_from_before_a_change_are_its_cause_whatever_was_written_later(url: str, printed: Printed) -> None:
    """Such as a migration, which keeps the amounts."""
    corruption.plant(
        url,
        *corruption.SOUND,
        'UPDATE placement_inventories SET total = 1, used = 5 WHERE id = 1',
        *_times(AFTER, BEFORE),
        'INSERT INTO placement_allocations (resource_provider_id, consumer_id, resource_class_id, used, created_at)'
        f" VALUES (1, '{corruption.LOST_CONSUMER}', 0, 3, '2020-11-04 10:00:00')",
    )
    assert f'to 2020-11-04 10:00 UTC.{SET_BELOW}\n' in printed('tree', 'root')


def test_all_trees_have_the_times_of_over_committed_inventories_only(url: str, printed: Printed) -> None:
    """Because they are in no index."""
    corruption.plant(url, *corruption.SOUND, *SHARING, 'UPDATE placement_inventories SET total = 1 WHERE id = 1')
    assert printed('tree', '--format', 'json').count('"updated_at"') == 1
    line = '├── VCPU ████████████████████ 2 of 1 used (total 1, ratio 1), over-committed by 1'
    assert printed('tree', '--full').splitlines()[1] == line


@pytest.mark.usefixtures('url')
@pytest.mark.parametrize(('option', 'problem'), [('--trait', 'trait(s): A.'), ('--class', 'resource class A')])
def test_an_unknown_name_fails(option: str, problem: str, failed: Printed) -> None:
    assert failed('tree', option, 'A') == f'placement-manage: No such {problem}\n'


def test_a_pager_on_a_terminal_only(url: str, tmp_path: pathlib.Path) -> None:
    corruption.plant(url, *corruption.SOUND, *SHARING)
    pager = tmp_path / 'pager'
    pager.write_text('#!/bin/sh\necho "paged with LESS=$LESS"\nexec cat\n')
    pager.chmod(0o755)
    assert 'paged with LESS=FRX' in ''.join(shown_by('tree', PAGER=str(pager)))
    plain = shown_by('tree', PAGER='cat')
    assert max(map(len, plain)) <= 80
    text = '\n'.join(plain)
    assert all(uuid in text for uuid in (corruption.ROOT, corruption.CHILD, STORE, SHARED, corruption.AGGREGATE))
    assert 'paged' not in preforked.run('placement-manage', ['tree'], {**os.environ, 'PAGER': str(pager)}).stdout


def test_nothing_stored(url: str, printed: Printed) -> None:
    assert printed('tree') == 'No resource providers are stored.\n'
    assert json.loads(printed('tree', '--format', 'json')) == {'trees': []}


@pytest.mark.parametrize('identifier', ['11111111-1111-4111-8111-111111111111', 'n\udc80', ''])
def test_unknown_provider(url: str, identifier: str, failed: Printed) -> None:
    problem = f'There is no resource provider with the uuid or name {identifier!r}.'
    assert failed('tree', identifier) == f'placement-manage: {problem}\n'


def test_names_cannot_write_control_characters(url: str, db: Database, printed: Printed) -> None:
    name, shown = '\x1b[31m\n[red]ü\u202e', '\\x1b[31m\\n[red]ü\\u202e'
    clouds.create_cloud(db, Cloud([Provider(name, {'VCPU': {'total': 1}})], {'machine': {name: {'VCPU': 1}}}))
    corruption.plant(url, "UPDATE placement_projects SET external_id = 'a' || char(27) || '[31m[red]'")
    assert printed('tree').startswith(f'{shown} ')
    for arguments in (['consumer', uuid_of('machine')], ['tree', '--consumers']):
        assert 'of project a\\x1b[31m[red], user ' in printed(*arguments)


def test_broken_trees_are_drawn_too(url: str, printed: Printed) -> None:
    """Every provider is shown once, even if its parent or root is wrong."""
    for name in ('no root', 'loop'):
        corruption.plant(url, *corruption.CLEAR, *corruption.SOUND, *corruption.ALL[name].statements)
        text = printed('tree')
        assert sorted(line.split()[-3] for line in text.splitlines() if 'generation' in line) == sorted(
            (corruption.ROOT, corruption.CHILD, corruption.FLAT)
        )
        assert f'root {corruption.ROOT}' in printed('tree', 'root')


def test_provider_below_a_loop_is_drawn_below_it(url: str, printed: Printed) -> None:
    """It is read before the loop, but only a provider of the loop becomes a root."""
    parents = 'UPDATE placement_resource_providers SET parent_provider_id = CASE id WHEN 2 THEN 3 ELSE 2 END'
    corruption.plant(url, *corruption.SOUND, parents)
    [tree] = json.loads(printed('tree', '--format', 'json'))['trees']
    assert [provider['name'] for provider in tree['providers']] == ['child', '', 'root']


def test_deep_tree(url: str, db: Database, printed: Printed) -> None:
    """Deeper than Python's stack."""
    rows = [
        {
            'id': id_,
            'uuid': str(uuid.UUID(int=id_)),
            'name': f'level-{id_}',
            'root_provider_id': 1,
            'parent_provider_id': id_ - 1 or None,
        }
        for id_ in range(1, 1051)
    ]
    with db.engine.begin() as tx:
        tx.execute(tables.resource_providers.insert(), rows)
    assert len(printed('tree').splitlines()) == 1050
    assert len(json.loads(printed('tree', '--format', 'json'))['trees'][0]['providers']) == 1050


@pytest.mark.parametrize('count', [1, 40])
def test_statements_do_not_depend_on_what_is_stored(url: str, db: Database, queries: Any, count: int) -> None:
    corruption.plant(url, *corruption.SOUND, *SHARING)
    with db.engine.begin() as tx:
        for id_ in range(100, 100 + count):
            values = {'id': id_, 'uuid': str(uuid.uuid4()), 'name': f'more-{id_}', 'root_provider_id': id_}
            tx.execute(tables.resource_providers.insert().values(values))
            tx.execute(tables.resource_provider_aggregates.insert().values(resource_provider_id=id_, aggregate_id=9))
    with queries(at_most=7):
        assert len(provider_trees.load(db)[0]) == count + 3
    with queries(at_most=8):
        assert len(provider_trees.load(db, 'child')[0]) == 1


def test_what_is_no_provider_is_not_searched_in_all_providers(url: str, db: Database, queries: Any) -> None:
    corruption.plant(url, *corruption.SOUND)
    for identifier in ('nobody', corruption.HOLDER):
        with queries(at_most=2), pytest.raises(provider_trees.UnknownProvider):
            provider_trees.load(db, identifier)


def test_in_a_pipe(url: str) -> None:
    """No colors, no broken lines, and no traceback when the reader of the pipe ends."""
    traits = [f'CUSTOM_{"LONG" * 10}_{number:02}' for number in range(20)]
    names = [
        f"INSERT INTO placement_traits (id, name) VALUES ({id_}, '{name}')" for id_, name in enumerate(traits, 5000)
    ]
    members = 'INSERT INTO placement_resource_provider_traits (trait_id, resource_provider_id) SELECT id, 3'
    corruption.plant(url, *corruption.SOUND, *names, f'{members} FROM placement_traits WHERE id >= 5000')
    done = preforked.run('placement-manage', ['tree'], os.environ)
    assert (done.returncode, done.stderr) == (0, '')
    assert '\x1b' not in done.stdout
    assert ', '.join(traits) in done.stdout
    for form in ('text', 'json'):
        program = [sys.executable, '-m', 'placement.cmd.manage', 'tree', '--format', form]
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.close()
            assert process.stderr is not None
            assert process.stderr.read() == b''


# Consumers: where an instance is, and who is on a host ------------------------------------------------------------


MACHINE = uuid_of('machine-3')


@pytest.fixture
def nested_url(url: str, db: Database) -> str:
    """The URL of a database with the nested cloud; commands that the test runs use it."""
    clouds.create_cloud(db, clouds.nested())
    return url


def in_json(printed: Printed, *arguments: str) -> Any:
    return json.loads(printed(*arguments, '--format', 'json'))


@pytest.mark.parametrize('spelling', [MACHINE, MACHINE.upper(), MACHINE.replace('-', '')])
def test_a_consumer_has_its_owner_and_its_allocations_by_provider(
    nested_url: str, spelling: str, printed: Printed
) -> None:
    corruption.plant(
        nested_url,
        "INSERT INTO placement_consumer_types (id, name) VALUES (1, 'INSTANCE')",
        "UPDATE placement_consumers SET created_at = '2026-11-20 09:12:33', updated_at = '2026-11-24 08:10:00',"
        ' consumer_type_id = 1',
        "UPDATE placement_allocations SET created_at = '2026-11-24 08:10:00.125'",
    )
    lines = printed('consumer', spelling).splitlines()
    assert lines[:2] == [
        f'{MACHINE} INSTANCE of project project-blue, user user-ada',
        'created 2026-11-20 09:12 UTC, last written 2026-11-24 08:10 UTC',
    ]
    assert [re.split('  +', line.strip()) for line in lines[5:]] == [
        ['compute-0-nic1', 'SRIOV_NET_VF', '2', '2026-11-24 08:10 UTC'],
        ['compute-0-numa1', 'VCPU', '16', '2026-11-24 08:10 UTC'],
        ['compute-0-numa1', 'MEMORY_MB', '15.9 GiB', '2026-11-24 08:10 UTC'],
        ['store', 'DISK_GB', '80 GiB', '2026-11-24 08:10 UTC'],
    ]
    consumer = in_json(printed, 'consumer', spelling)['consumer']
    allocations = consumer.pop('allocations')
    assert consumer == {
        'uuid': MACHINE,
        'project': 'project-blue',
        'user': 'user-ada',
        'generation': 1,
        'type': 'INSTANCE',
        'created_at': '2026-11-20T09:12:33+00:00',
        'updated_at': '2026-11-24T08:10:00+00:00',
    }
    assert (allocations[0]['provider_uuid'], allocations[0]['amount']) == (uuid_of('compute-0-nic1'), 2)


def test_a_consumer_without_a_record_and_one_without_allocations(
    nested_url: str, printed: Printed, failed: Printed
) -> None:
    corruption.plant(nested_url, f"DELETE FROM placement_consumers WHERE uuid = '{MACHINE}'")
    lines = printed('consumer', MACHINE).splitlines()
    assert lines[:2] == [f'{MACHINE} has no record of its project and user', '']
    assert 'compute-0-numa1' in lines[5]
    machine = uuid_of('machine-1')
    corruption.plant(nested_url, f"DELETE FROM placement_allocations WHERE consumer_id = '{machine}'")
    assert 'It has no allocations. See: placement-manage audit\n' in printed('consumer', machine)
    corruption.plant(nested_url, f"DELETE FROM placement_consumers WHERE uuid = '{machine}'")
    assert failed('consumer', machine) == (
        f"placement-manage: There is no consumer with the uuid '{machine}': it has neither a record nor allocations.\n"
    )


def test_a_tree_has_the_consumers_of_each_provider(nested_url: str, printed: Printed) -> None:
    owner = 'of project project-blue, user user-ada'
    text = printed('tree', 'compute-0', '--consumers')
    branch = text[text.index('compute-0-numa1') : text.index('compute-0-nic1')]
    machines = sorted(uuid_of(f'machine-{number}') for number in (1, 3, 5))
    lines = [line.lstrip('│├└─ ') for line in branch.splitlines() if owner in line]
    assert lines == [f'{uuid} {owner}: VCPU 16, MEMORY_MB 15.9 GiB' for uuid in machines]
    assert 'project' not in printed('tree', 'compute-0')
    (tree,) = in_json(printed, 'tree', 'compute-0', '--consumers')['trees']
    consumers = {provider['name']: provider['consumers'] for provider in tree['providers']}
    assert consumers['compute-0'] == []
    assert [consumer['uuid'] for consumer in consumers['compute-0-nic1']] == [MACHINE]
    (allocation,) = consumers['compute-0-nic1'][0]['allocations']
    assert (allocation['resource_class'], allocation['amount']) == ('SRIOV_NET_VF', 2)


@pytest.mark.usefixtures('nested_url')
def test_many_consumers_take_few_statements(db: Database, queries: Counter) -> None:
    with queries(at_most=3), db.reader() as tx:
        by_provider = consumers_by_provider(tx, range(1, 22))
    assert sum(map(len, by_provider.values())) == 40


def test_a_json_list_is_printed_item_by_item_as_a_whole_document_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    items = [{'name': 'zürich', 'empty': [], 'at': dt.datetime(2026, 11, 28, tzinfo=dt.UTC)}, {'large': 2**70}, 1.5]
    printed = []

    def produced() -> Iterator[Any]:
        for item in items:
            yield item
            # Printed before the next item is made.
            printed.append(capsys.readouterr().out)

    output.print_json_list('trees', produced())
    assert all(printed)
    text = ''.join(printed) + capsys.readouterr().out
    assert text == json.dumps({'trees': items}, indent=2, default=dt.datetime.isoformat) + '\n'
    output.print_json_list('trees', [])
    assert capsys.readouterr().out == '{\n  "trees": []\n}\n'


def test_tree_of_a_consumer_names_the_command(nested_url: str, failed: Printed) -> None:
    assert failed('tree', MACHINE.upper()) == (
        f'placement-manage: {MACHINE} is a consumer, not a resource provider.'
        f' See: placement-manage consumer {MACHINE}\n'
    )
