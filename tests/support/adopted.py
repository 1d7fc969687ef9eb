"""Checks of a database after its adoption, for every server."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from placement import deploy
from placement.db import migration, tables
from placement.ops.adoption import found_tables
from placement.ops.adoption.names import Names
from tests.support import applications, corruption, legacy_database
from tests.support.http_client import send_request


def without_used(statements: Iterable[str]) -> list[str]:
    """The same statements for inventories without the column of the usage."""
    return [
        re.sub(r', used\) VALUES \((.*), \d+\)', r') VALUES (\1)', statement)
        if 'INTO placement_inventories' in statement
        else statement
        for statement in statements
    ]


def check_schema(url: str | sa.URL) -> None:
    """Our schema is complete and at the newest revision; that of the other service is unchanged."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={'compare_type': True})
        differences = compare_metadata(context, tables.metadata)
    theirs = {
        _columns(difference[1]) for difference in differences if difference[0] in ('remove_constraint', 'remove_index')
    }
    # Alembic is silent about an index that MariaDB made for a foreign key.
    indexes = sa.inspect(engine).get_indexes('placement_consumers')
    theirs |= {('placement_consumers', *map(str, index['column_names'])) for index in indexes}
    wrong = [difference for difference in differences if _matters(difference, theirs)]
    assert not wrong, wrong
    with engine.connect() as connection:
        assert not [
            name for name, table in found_tables.read(connection, Names(connection)).items() if table.reuses_ids
        ]
    assert corruption.column(url, 'SELECT last FROM placement_resource_class_sequence') == [10000]
    assert corruption.column(url, 'SELECT version_num FROM alembic_version') == ['somebody-elses']
    assert corruption.column(url, f'SELECT version_num FROM {migration.VERSION_TABLE}') == [migration.head()]


def _columns(item: Any) -> tuple[str, ...]:
    return (item.table.name, *item.columns.keys())


def _matters(difference: Any, theirs: set[tuple[str, ...]]) -> bool:
    """Whether a part of our schema is missing or different. Parts of the other schema may stay, and replace ours."""
    if isinstance(difference, list):
        return any(_matters(part, theirs) for part in difference)
    what = difference[0]
    if what == 'add_constraint':
        return _columns(difference[1]) not in theirs
    if what == 'add_index':
        # An index that begins with the same columns is enough.
        columns = _columns(difference[1])
        return all(key[: len(columns)] != columns for key in theirs)
    if what == 'modify_nullable':
        # Columns of the other service may be NOT NULL where we always write a value.
        return bool(difference[6])
    return what not in ('remove_table', 'remove_column', 'remove_index', 'remove_constraint', 'remove_fk')


#: Queries of a database after its adoption, and the first columns of their results.
_ROWS: dict[str, list[Any]] = {
    'SELECT root_provider_id FROM placement_resource_providers ORDER BY id': [1, 1, 3],
    'SELECT generation FROM placement_resource_providers ORDER BY id': [5, 2, 0],
    'SELECT allocation_ratio FROM placement_inventories ORDER BY id': [1.5, 16.1, 0.1, 1.0],
    'SELECT used FROM placement_inventories ORDER BY id': [1024, 12, 0, 2],
    'SELECT id FROM placement_inventories WHERE updated_at IS NOT NULL': [1],
    'SELECT used FROM placement_allocations ORDER BY id': [1024, 4, 8, 2],
    'SELECT consumer_project_id FROM placement_allocations ORDER BY id': [1, 1, 1, 2],
    'SELECT consumer_user_id FROM placement_allocations ORDER BY id': [1, 1, 1, 2],
    'SELECT name FROM placement_resource_classes WHERE id IN (0, 1, 2, 10000) ORDER BY id': [
        *('VCPU', 'MEMORY_MB', 'DISK_GB', 'CUSTOM_GOLD'),
    ],
    'SELECT name FROM placement_traits WHERE id < 3 ORDER BY id': ['CUSTOM_FAST', 'HW_CPU_X86_AVX2'],
}


def check_rows(url: str | sa.URL) -> None:
    """No rows of the other service are lost; what it did not have is added."""
    for query, values in _ROWS.items():
        assert corruption.column(url, query) == values, query
    types = corruption.column(url, 'SELECT name FROM placement_consumer_types')
    assert types in (['INSTANCE'], [])
    instance = 1 if types else None
    of_allocations = corruption.column(url, 'SELECT consumer_type_id FROM placement_allocations ORDER BY id')
    assert of_allocations == [instance, instance, None, None]
    of_consumers = corruption.column(url, 'SELECT consumer_type_id FROM placement_consumers ORDER BY id')
    assert of_consumers == [instance, None, None]


def _claim(provider: str, amount: int, project: str) -> dict[str, Any]:
    """A claim of a new consumer."""
    allocations = {provider: {'resources': {'VCPU': amount}}}
    return {'allocations': allocations, 'project_id': project, 'user_id': 'the-user', 'consumer_generation': None}


def service(url: str | sa.URL) -> contextlib.AbstractContextManager[deploy.Application]:
    """An application on a database, which does not create the schema."""
    return applications.application(
        url, placement_database={'sync_on_startup': False}, placement=applications.EVERY_MICROVERSION
    )


def check_service(url: str | sa.URL) -> None:
    """The service answers with the old data, searches it, and can claim, move trees and create names."""
    with service(url) as app:
        _check_answers(app)
        _check_types(
            app, 'INSTANCE' if corruption.column(url, 'SELECT name FROM placement_consumer_types') else 'unknown'
        )
        _check_candidates(app)
        _check_claims(app)
        _check_names(app)


def _check_answers(app: Any) -> None:
    allocations = send_request(app, 'GET', f'/allocations/{legacy_database.INSTANCE}').json
    assert {key: allocation['resources'] for key, allocation in allocations.pop('allocations').items()} == {
        legacy_database.HOST: {'MEMORY_MB': 1024},
        legacy_database.NUMA: {'VCPU': 4},
    }
    assert allocations == {'project_id': 'the-project', 'user_id': 'the-user', 'consumer_generation': 3}
    usages = send_request(app, 'GET', '/usages?project_id=the-project').json['usages']
    assert usages == {'MEMORY_MB': 1024, 'VCPU': 12}
    traits = send_request(app, 'GET', f'/resource_providers/{legacy_database.NUMA}/traits').json['traits']
    assert traits == ['HW_CPU_X86_AVX2']


def _check_types(app: Any, of_instance: str) -> None:
    """Types that the database had are kept and can be used, and new ones get new ids."""
    for consumer, type_ in (
        (legacy_database.INSTANCE, of_instance),
        (legacy_database.LARGE, 'unknown'),
        (legacy_database.LOST, 'unknown'),
    ):
        assert send_request(app, 'GET', f'/allocations/{consumer}', version='1.38').json['consumer_type'] == type_
    claim = _claim(legacy_database.NUMA, 1, 'typed')
    for type_ in ('INSTANCE', 'MIGRATION'):
        consumer = f'/allocations/{uuid.uuid4()}'
        assert send_request(app, 'PUT', consumer, {**claim, 'consumer_type': type_}, '1.38').status_code == 204
        usages = send_request(app, 'GET', '/usages?project_id=typed', version='1.38').json['usages']
        assert usages == {type_: {'consumer_count': 1, 'VCPU': 1}}
        assert send_request(app, 'DELETE', consumer).status_code == 204


def _check_candidates(app: Any) -> None:
    path = f'/allocation_candidates?resources=MEMORY_MB:512,VCPU:2&member_of={legacy_database.RACK}'
    response = send_request(app, 'GET', path).json
    assert [set(candidate['allocations']) for candidate in response['allocation_requests']] == [
        {legacy_database.HOST, legacy_database.NUMA}
    ]
    capacity = response['provider_summaries'][legacy_database.NUMA]['resources']['VCPU']
    assert capacity == {'capacity': int(16 * 16.1), 'used': 12}


def _check_claims(app: Any) -> None:
    small, large = (_claim(legacy_database.OTHER, amount, 'another') for amount in (6, 7))
    assert send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', large).status_code == 409
    assert send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', small).status_code == 204
    assert send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', small).status_code == 409
    assert send_request(app, 'DELETE', f'/allocations/{legacy_database.LOST}').status_code == 204
    usages = send_request(app, 'GET', f'/resource_providers/{legacy_database.OTHER}/usages').json['usages']
    assert usages == {'CUSTOM_GOLD': 0, 'VCPU': 6}


def _check_names(app: Any) -> None:
    """New names get new ids, names that differ in case are different, and names in use cannot be deleted."""
    assert send_request(app, 'PUT', '/resource_classes/CUSTOM_SILVER').status_code == 201
    assert send_request(app, 'PUT', '/traits/CUSTOM_SLOW').status_code == 201
    assert send_request(app, 'POST', '/resource_providers', {'name': 'HOST'}).status_code == 200
    assert send_request(app, 'POST', '/resource_providers', {'name': 'host'}).status_code == 409
    assert send_request(app, 'DELETE', '/traits/CUSTOM_FAST').status_code == 409
    assert send_request(app, 'DELETE', '/resource_classes/CUSTOM_GOLD').status_code == 409
    assert send_request(app, 'DELETE', f'/resource_providers/{legacy_database.HOST}').status_code == 409


def check_usages(url: str | sa.URL) -> None:
    """The recorded usages are the sums of the allocations."""
    assert corruption.column(url, _WRONG) == []


_WRONG = """SELECT id FROM placement_inventories WHERE used <> (
    SELECT coalesce(sum(a.used), 0) FROM placement_allocations a
    WHERE a.resource_provider_id = placement_inventories.resource_provider_id
    AND a.resource_class_id = placement_inventories.resource_class_id)"""


def check_no_oversell(url: str | sa.URL) -> None:
    """No more is claimed than there is, also after the writes of the other service."""
    with service(url) as app:
        fill(app)
    check_usages(url)


def fill(app: Any) -> None:
    """Claim all VCPUs that are left of ``legacy_database.OTHER``, which has 8, and check that it was not oversold."""
    claim = _claim(legacy_database.OTHER, 1, 'ours')
    statuses = [send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', claim).status_code for _ in range(9)]
    assert set(statuses) <= {204, 409}
    assert statuses[-1] == 409
    usages = send_request(app, 'GET', f'/resource_providers/{legacy_database.OTHER}/usages').json['usages']
    assert usages['VCPU'] == 8
    # So do searches, which read the cache.
    summaries = send_request(app, 'GET', '/allocation_candidates?resources=CUSTOM_GOLD:1').json['provider_summaries']
    assert summaries[legacy_database.OTHER]['resources']['VCPU']['used'] == 8
