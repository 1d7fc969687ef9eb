"""``placement-manage db fingerprint``: it changes with each kind of row, and with nothing else."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from placement.cmd import manage, manage_fingerprint
from tests.support import corruption, legacy_database
from tests.support.corruption import AGGREGATE, CHILD, HOLDER, ROOT
from tests.support.fixtures import PointCommandsAt, Printed

_CUSTOM = "VALUES (10000, 'CUSTOM_GOLD')"
#: A change of the sound database -> the kinds that differ.
CHANGES = {
    f"UPDATE placement_resource_providers SET uuid = '{HOLDER}' WHERE id = 3": {'resource_providers'},
    "UPDATE placement_resource_providers SET name = 'flat-2' WHERE id = 3": {'resource_providers'},
    'UPDATE placement_resource_providers SET generation = 1 WHERE id = 3': {'resource_providers'},
    'UPDATE placement_resource_providers SET parent_provider_id = NULL WHERE id = 2': {'resource_providers'},
    'UPDATE placement_resource_providers SET root_provider_id = 2 WHERE id = 2': {'resource_providers'},
    'DELETE FROM placement_resource_providers WHERE id = 3': {'resource_providers'},
    'UPDATE placement_inventories SET resource_provider_id = 3 WHERE id = 2': {'inventories'},
    'UPDATE placement_inventories SET resource_class_id = 1 WHERE id = 2': {'inventories'},
    'UPDATE placement_inventories SET total = 9 WHERE id = 2': {'inventories'},
    'UPDATE placement_inventories SET reserved = 1 WHERE id = 2': {'inventories'},
    'UPDATE placement_inventories SET min_unit = 2 WHERE id = 2': {'inventories'},
    'UPDATE placement_inventories SET max_unit = 2 WHERE id = 2': {'inventories'},
    'UPDATE placement_inventories SET step_size = 2 WHERE id = 2': {'inventories'},
    'UPDATE placement_inventories SET allocation_ratio = 1.5 WHERE id = 2': {'inventories'},
    'UPDATE placement_allocations SET used = 3': {'allocations'},
    'UPDATE placement_allocations SET resource_class_id = 1': {'allocations'},
    'UPDATE placement_allocations SET resource_provider_id = 2': {'allocations'},
    f"UPDATE placement_allocations SET consumer_id = '{ROOT}'": {'allocations'},
    'UPDATE placement_consumers SET generation = 2': {'consumers'},
    "UPDATE placement_projects SET external_id = 'other'": {'consumers'},
    "UPDATE placement_users SET external_id = 'other'": {'consumers'},
    "INSERT INTO placement_consumer_types (id, name) VALUES (1, 'INSTANCE');"
    'UPDATE placement_consumers SET consumer_type_id = 1': {'consumers'},
    'INSERT INTO placement_resource_provider_traits (trait_id, resource_provider_id) VALUES (1, 1)': {
        'resource_provider_traits'
    },
    f"UPDATE placement_aggregates SET uuid = '{ROOT}'": {'resource_provider_aggregates'},
    'DELETE FROM placement_resource_provider_aggregates': {'resource_provider_aggregates'},
    f'INSERT INTO placement_resource_classes (id, name) {_CUSTOM}': {'custom_resource_classes'},
    f'INSERT INTO placement_traits (id, name) {_CUSTOM}': {'custom_traits'},
}
#: Changes that the API does not show.
INVISIBLE = (
    "UPDATE placement_resource_providers SET created_at = '2026-01-01', updated_at = '2026-01-01'",
    'UPDATE placement_inventories SET id = id + 10, used = used + 1',
    'UPDATE placement_allocations SET id = id + 10, consumer_project_id = 7',
    'UPDATE placement_consumers SET id = 9',
    'UPDATE placement_projects SET id = 7; UPDATE placement_consumers SET project_id = 7',
    "INSERT INTO placement_aggregates (id, uuid) VALUES (7, 'without members')",
    'DELETE FROM placement_traits WHERE id > 200',
)


@pytest.fixture
def url(tmp_path: pathlib.Path, point_commands_at: PointCommandsAt, printed: Printed) -> str:
    """The URL of a sound database, which commands that the test runs use."""
    text = point_commands_at(f'sqlite:///{tmp_path}/placement.sqlite')
    printed('db', 'sync')
    corruption.plant(text, *corruption.SOUND)
    return text


def _read(printed: Printed, *options: str) -> dict[str, Any]:
    fingerprint: dict[str, Any] = json.loads(printed('db', 'fingerprint', '--format', 'json', *options))
    return fingerprint


def _different(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    assert (before['whole'] == after['whole']) is (before['kinds'] == after['kinds'])
    return {name for name, kind in before['kinds'].items() if kind != after['kinds'][name]}


@pytest.mark.parametrize(('statements', 'kinds'), CHANGES.items())
def test_a_change_of_a_row_changes_its_kind(url: str, printed: Printed, statements: str, kinds: set[str]) -> None:
    before = _read(printed)
    corruption.plant(url, *statements.split(';'))
    # What refers to a provider, class or trait has its name.
    assert kinds <= _different(before, _read(printed))
    if not statements.startswith(('UPDATE placement_resource_providers SET uuid', 'DELETE FROM placement_resource_p')):
        assert kinds == _different(before, _read(printed))


@pytest.mark.parametrize('statements', INVISIBLE)
def test_nothing_else_changes_it(url: str, printed: Printed, statements: str) -> None:
    before = _read(printed)
    corruption.plant(url, *statements.split(';'))
    assert _different(before, _read(printed)) == set()


def test_order_does_not_matter(url: str, printed: Printed, tmp_path: pathlib.Path) -> None:
    before = _read(printed)
    assert before['kinds']['resource_providers']['rows'] == 3
    rows = 'UPDATE placement_inventories SET id = 99 WHERE id = 1; UPDATE placement_inventories SET id = 1 WHERE id = 2'
    corruption.plant(url, *rows.split(';'))
    assert _different(before, _read(printed)) == set()


@pytest.mark.parametrize(
    ('excluded', 'statement'),
    [
        (CHILD, 'UPDATE placement_inventories SET total = 9 WHERE id = 2'),
        (CHILD, 'DELETE FROM placement_inventories WHERE id = 2'),
        (HOLDER, 'UPDATE placement_consumers SET generation = 2'),
        (HOLDER.upper(), 'DELETE FROM placement_allocations'),
    ],
)
def test_what_is_excepted_may_change(url: str, printed: Printed, excluded: str, statement: str) -> None:
    before, other = _read(printed, '--except', excluded), _read(printed, '--except', AGGREGATE)
    corruption.plant(url, statement)
    assert _different(before, _read(printed, '--except', excluded)) == set()
    assert _different(other, _read(printed, '--except', AGGREGATE)) != set()


def test_compare_names_what_differs(url: str, printed: Printed, tmp_path: pathlib.Path) -> None:
    file = tmp_path / 'before.json'
    file.write_text(printed('db', 'fingerprint', '--format', 'json'))
    assert printed('db', 'fingerprint', '--compare', str(file)).startswith('Nothing differs.\n')
    corruption.plant(url, 'DELETE FROM placement_allocations')
    different = manage_fingerprint.DIFFERENT
    out = printed('db', 'fingerprint', '--compare', str(file), code=different)
    assert out.startswith('Different: allocations (1 row before, 0 now).\n')
    report = json.loads(printed('db', 'fingerprint', '--compare', str(file), '--format', 'json', code=different))
    assert report['differences'] == ['allocations']


def test_only_fingerprints_of_the_same_rows_are_compared(
    url: str, printed: Printed, failed: Printed, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / 'before.json'
    file.write_text(printed('db', 'fingerprint', '--format', 'json', '--except', CHILD, '--except', CHILD.upper()))
    assert 'Nothing differs.' in printed('db', 'fingerprint', '--compare', str(file), '--except', CHILD)
    other = f'{file} was made with --except {CHILD}. Pass the same --except to both calls.'
    assert other in failed('db', 'fingerprint', '--compare', str(file))
    file.write_text(printed('db', 'fingerprint', '--format', 'json'))
    other = f'{file} was made with no --except.'
    assert other in failed('db', 'fingerprint', '--compare', str(file), '--except', CHILD)
    for content in ('{"kinds": []}', '{"kinds"', '[]', '{"kinds": {}}'):
        file.write_text(content)
        assert f'{file} is not the output of' in failed('db', 'fingerprint', '--compare', str(file))
    missing = failed('db', 'fingerprint', '--compare', str(tmp_path / 'missing'))
    assert missing == f'placement-manage: Cannot read {tmp_path}/missing: No such file or directory.\n'


def test_except_takes_no_name(url: str, failed: Printed) -> None:
    reason = "--except takes the uuid of a provider or consumer, not 'flat'."
    assert reason in failed('db', 'fingerprint', '--except', 'flat')


def test_an_adoption_and_its_return_change_only_what_the_plan_says(
    tmp_path: pathlib.Path, point_commands_at: PointCommandsAt, printed: Printed
) -> None:
    legacy_database.build(point_commands_at(f'sqlite:///{tmp_path}/placement.sqlite'))
    of_other_service = _read(printed)
    printed('db', 'adopt', '--yes')
    adopted = _read(printed)
    # The plan sets missing generations and roots, and creates missing consumers.
    assert _different(of_other_service, adopted) == {'resource_providers', 'consumers'}
    printed('db', 'leave', '--yes')
    assert _read(printed) == adopted
    printed('db', 'adopt', '--yes')
    assert _read(printed) == adopted


def test_a_database_of_something_else_is_one_line(
    tmp_path: pathlib.Path, point_commands_at: PointCommandsAt, failed: Printed
) -> None:
    point_commands_at(f'sqlite:///{tmp_path}/placement.sqlite')
    assert 'There is no table resource_providers.' in failed('db', 'fingerprint')
    assert manage.FAILED == 127
