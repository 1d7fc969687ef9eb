"""Databases with something wrong in them, by plain SQL, for the tests of ``placement-manage audit``."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from placement.db import tables
from placement.ops.audit.kinds import KINDS
from tests.support import waiting
from tests.support.http_client import claim_body, create_provider, demand

ROOT, CHILD, FLAT = (f'0000000{n}-0000-4000-8000-000000000000' for n in (1, 2, 3))
HOLDER, LOST_CONSUMER, LOST_CONSUMER_2 = (f'c000000{n}-0000-4000-8000-000000000000' for n in (1, 2, 3))
AGGREGATE, EMPTY = 'a0000001-0000-4000-8000-000000000000', 'a0000002-0000-4000-8000-000000000000'

_PROVIDER = (
    'INSERT INTO placement_resource_providers (id, uuid, name, generation, root_provider_id, parent_provider_id,'
    " created_at) VALUES ({}, '{}', {}, 0, {}, {}, '2020-01-01 00:00:00')"
)
INVENTORY = (
    'INSERT INTO placement_inventories (id, resource_provider_id, resource_class_id, total, reserved, min_unit,'
    ' max_unit, step_size, allocation_ratio, used) VALUES ({}, {}, 0, {}, 0, 1, 8, 1, 1.0, {})'
)
_CONSUMER = (
    "INSERT INTO placement_consumers (id, uuid, project_id, user_id, generation) VALUES ({}, '{}', 501, 501, {})"
)
ALLOCATION = (
    'INSERT INTO placement_allocations (resource_provider_id, consumer_id, resource_class_id, used)'
    " VALUES ({}, '{}', {}, {})"
)

#: A root with a child, both with VCPUs; a flat host without a name, which only another program writes; a consumer with
#: 2 VCPUs of the first; an aggregate of the first. Sequences of the database do not continue after the ids given here.
SOUND = (
    _PROVIDER.format(1, ROOT, "'root'", 1, 'NULL'),
    _PROVIDER.format(2, CHILD, "'child'", 1, 1),
    _PROVIDER.format(3, FLAT, 'NULL', 3, 'NULL'),
    INVENTORY.format(1, 1, 8, 2),
    INVENTORY.format(2, 2, 4, 0),
    "INSERT INTO placement_projects (id, external_id) VALUES (501, 'project')",
    "INSERT INTO placement_users (id, external_id) VALUES (501, 'user')",
    _CONSUMER.format(501, HOLDER, 1),
    ALLOCATION.format(1, HOLDER, 0, 2),
    f"INSERT INTO placement_aggregates (id, uuid) VALUES (501, '{AGGREGATE}')",
    'INSERT INTO placement_resource_provider_aggregates (resource_provider_id, aggregate_id) VALUES (1, 501)',
)


_NAMES = (tables.resource_classes, tables.traits)
#: Statements that delete what ``SOUND``, the damages and their repairs insert; of names only the custom ones.
CLEAR = (
    *(f'DELETE FROM {table}' for table in tables.SHARED if table not in _NAMES),
    *(f"DELETE FROM {table} WHERE SUBSTR(name, 1, 7) = 'CUSTOM_'" for table in _NAMES),
    'DELETE FROM placement_resource_class_sequence',
    'INSERT INTO placement_resource_class_sequence (id, last) VALUES (1, 9999)',
)


@dataclasses.dataclass(frozen=True)
class Damage:
    """The statements that damage a sound database, and the findings of an audit.

    ``subjects`` are those of the findings, each with the same kinds of objects, and ``detail`` is a part of the detail
    of at least one of them. ``after`` is a query and its result after a repair; None where a person
    has to decide.
    """

    kind: str
    statements: tuple[str, ...]
    subjects: tuple[dict[str, Any], ...]
    detail: str
    after: tuple[str, Any] | None = None

    @property
    def needs_action(self) -> bool:
        return not KINDS[self.kind].for_information

    @property
    def code(self) -> int:
        """The exit code of an audit that repairs nothing."""
        return 3 if self.needs_action else 0


_OF_ROOT = {'resource_provider': ROOT, 'resource_class': 'VCPU'}
_OF_CHILD = {'resource_provider': CHILD, 'resource_class': 'VCPU'}
_ROOTS = 'SELECT root_provider_id FROM placement_resource_providers ORDER BY id'


def _wrong_units(column: str, constraints: str) -> Damage:
    statement = f'UPDATE placement_inventories SET {column} WHERE id = 1'
    subject = {**_OF_ROOT, 'consumer': HOLDER}
    return Damage('unit_violation', (statement,), (subject,), f'allocation of 2 violates {constraints}')


def _below_minimum(values: str, detail: str) -> Damage:
    """The damage of an inventory without allocations, which no other check finds."""
    statement = f'UPDATE placement_inventories SET {values} WHERE id = 2'
    return Damage('invalid_inventory', (statement,), (_OF_CHILD,), f'{detail}: write the inventory')


def _wrong_owner(wrong: str, project: int, user: int) -> Damage:
    statement = f'UPDATE placement_allocations SET consumer_project_id = {project}, consumer_user_id = {user}'
    detail = '1 allocation with another project, user or type than the consumer'
    after = (f'SELECT consumer_{wrong}_id FROM placement_allocations', [501])
    return Damage('allocation_owner_mismatch', (statement,), ({'consumer': HOLDER},), detail, after)


def _missing(what: str, number: int, statements: tuple[str, ...], table: str, after: tuple[str, list[Any]]) -> Damage:
    """The damage of rows with a number that a table lacks; by default, the statements find one row."""
    subject, detail = {what: f'number {number}'}, f'1 row of placement_{table} with this id, which placement_'
    return Damage('missing_reference', statements, (subject,), detail, after)


#: In the order of ``KINDS``.
ALL = {
    'outdated sequence': Damage(
        'outdated_class_sequence',
        ('UPDATE placement_resource_class_sequence SET last = 1',),
        ({'resource_class': f'number {max(tables.STANDARD_CLASSES)}'},),
        f'recorded as the largest id of a resource class: 1; in use: {max(tables.STANDARD_CLASSES)}',
        ('SELECT last FROM placement_resource_class_sequence', [9999]),
    ),
    'sequence in the range of standard classes': Damage(
        'outdated_class_sequence',
        ('UPDATE placement_resource_class_sequence SET last = 9998',),
        ({'resource_class': f'number {max(tables.STANDARD_CLASSES)}'},),
        f': 9998; in use: {max(tables.STANDARD_CLASSES)}; needed: 9999 or more',
        ('SELECT last FROM placement_resource_class_sequence', [9999]),
    ),
    'missing sequence': Damage(
        'outdated_class_sequence',
        ('DELETE FROM placement_resource_class_sequence',),
        ({'resource_class': f'number {max(tables.STANDARD_CLASSES)}'},),
        f'recorded as the largest id of a resource class: None; in use: {max(tables.STANDARD_CLASSES)}',
        ('SELECT last FROM placement_resource_class_sequence', [9999]),
    ),
    'missing provider': dataclasses.replace(
        _missing(
            'resource_provider',
            99,
            (
                INVENTORY.format(9, 99, 8, 0),
                ALLOCATION.format(99, HOLDER, 0, 5),
                # All that this consumer has are allocations of the provider.
                ALLOCATION.format(99, LOST_CONSUMER, 0, 5),
                'INSERT INTO placement_resource_provider_traits (resource_provider_id, trait_id) VALUES (99, 1)',
                (
                    'INSERT INTO placement_resource_provider_aggregates (resource_provider_id, aggregate_id)'
                    ' VALUES (99, 501)'
                ),
            ),
            'inventories',
            (
                (
                    'SELECT resource_provider_id FROM placement_allocations UNION ALL'
                    ' SELECT resource_provider_id FROM placement_inventories WHERE id = 9 UNION ALL'
                    ' SELECT resource_provider_id FROM placement_resource_provider_traits UNION ALL'
                    ' SELECT resource_provider_id FROM placement_resource_provider_aggregates'
                ),
                [1, 1],
            ),
        ),
        subjects=({'resource_provider': 'number 99'},) * 4,
    ),
    'missing class': _missing(
        'resource_class',
        10007,
        (
            'UPDATE placement_resource_class_sequence SET last = 10007',
            'UPDATE placement_inventories SET resource_class_id = 10007 WHERE id = 1',
            'UPDATE placement_allocations SET resource_class_id = 10007',
        ),
        'inventories',
        ('SELECT name FROM placement_resource_classes WHERE id = 10007', ['CUSTOM_LOST_CLASS_10007']),
    ),
    'missing trait': _missing(
        'trait',
        99999,
        ('INSERT INTO placement_resource_provider_traits (resource_provider_id, trait_id) VALUES (1, 99999)',),
        'resource_provider_traits',
        ('SELECT trait_id FROM placement_resource_provider_traits', []),
    ),
    'missing aggregate': _missing(
        'aggregate',
        99,
        ('INSERT INTO placement_resource_provider_aggregates (resource_provider_id, aggregate_id) VALUES (1, 99)',),
        'resource_provider_aggregates',
        ('SELECT aggregate_id FROM placement_resource_provider_aggregates', [501]),
    ),
    'missing parent': _missing(
        'parent_provider',
        98,
        ('UPDATE placement_resource_providers SET parent_provider_id = 98 WHERE id = 3',),
        'resource_providers',
        ('SELECT parent_provider_id FROM placement_resource_providers ORDER BY id', [None, 1, None]),
    ),
    'missing project': _missing(
        'project',
        501,
        ('DELETE FROM placement_projects',),
        'consumers',
        ('SELECT external_id FROM placement_projects', ['lost-project-501']),
    ),
    'missing user': _missing(
        'user',
        501,
        ('DELETE FROM placement_users',),
        'consumers',
        ('SELECT external_id FROM placement_users', ['lost-user-501']),
    ),
    'missing type': _missing(
        'consumer_type',
        77,
        ('UPDATE placement_consumers SET consumer_type_id = 77',),
        'consumers',
        ('SELECT name FROM placement_consumer_types', ['LOST_TYPE_77']),
    ),
    'no root': Damage(
        'invalid_tree',
        ('UPDATE placement_resource_providers SET root_provider_id = NULL',),
        ({'resource_provider': ROOT}, {'resource_provider': CHILD}, {'resource_provider': FLAT}),
        'its root is recorded as None, but its parents lead to',
        (_ROOTS, [1, 1, 3]),
    ),
    'wrong root': Damage(
        'invalid_tree',
        ('UPDATE placement_resource_providers SET root_provider_id = 3 WHERE id = 2',),
        ({'resource_provider': CHILD},),
        f'its root is recorded as {FLAT}, but its parents lead to {ROOT}',
        (_ROOTS, [1, 1, 3]),
    ),
    'missing root': Damage(
        'invalid_tree',
        ('UPDATE placement_resource_providers SET root_provider_id = 99 WHERE id = 2',),
        ({'resource_provider': CHILD},),
        f'its root is recorded as id 99, which does not exist, but its parents lead to {ROOT}',
        (_ROOTS, [1, 1, 3]),
    ),
    'loop': Damage(
        'invalid_tree',
        ('UPDATE placement_resource_providers SET parent_provider_id = 2 WHERE id = 1',),
        ({'resource_provider': ROOT}, {'resource_provider': CHILD}),
        'its parents form a loop',
    ),
    'empty aggregate': Damage(
        'orphaned_aggregate',
        (f"INSERT INTO placement_aggregates (uuid) VALUES ('{EMPTY}')",),
        ({'aggregate': EMPTY},),
        'an aggregate without providers',
        ('SELECT uuid FROM placement_aggregates', [AGGREGATE]),
    ),
    'missing consumers': Damage(
        'allocation_without_consumer',
        (
            ALLOCATION.format(2, LOST_CONSUMER, 0, 1),
            # The project and the user are inserted once.
            ALLOCATION.format(2, LOST_CONSUMER_2, 0, 1),
            'UPDATE placement_inventories SET used = 2 WHERE id = 2',
        ),
        ({'consumer': LOST_CONSUMER}, {'consumer': LOST_CONSUMER_2}),
        '1 allocation without a record of the consumer',
        (
            f"""SELECT external_id FROM placement_projects p
            JOIN placement_consumers c ON c.project_id = p.id WHERE c.uuid != '{HOLDER}'""",
            ['00000000-0000-0000-0000-000000000000'] * 2,
        ),
    ),
    'consumer that only its allocations record': Damage(
        'allocation_without_consumer',
        (
            "INSERT INTO placement_consumer_types (id, name) VALUES (7, 'INSTANCE')",
            # The newest copies of the owner win.
            ALLOCATION.format(2, HOLDER, 0, 1),
            'UPDATE placement_inventories SET used = 1 WHERE id = 2',
            "INSERT INTO placement_users (id, external_id) VALUES (502, 'former user')",
            'UPDATE placement_allocations SET consumer_project_id = 501, consumer_user_id = 502',
            (
                'UPDATE placement_allocations SET consumer_project_id = 501, consumer_user_id = 501,'
                ' consumer_type_id = 7 WHERE resource_provider_id = 2'
            ),
            'DELETE FROM placement_consumers',
        ),
        ({'consumer': HOLDER},),
        '2 allocations without a record of the consumer; its owner is recorded with them',
        (
            """SELECT external_id FROM placement_projects p
            JOIN placement_consumers c ON c.project_id = p.id AND c.user_id = 501 AND c.consumer_type_id = 7
            JOIN placement_allocations a ON a.consumer_project_id = p.id""",
            ['project', 'project'],
        ),
    ),
    'lost consumer with a recorded owner of a lost type': Damage(
        'allocation_without_consumer',
        (
            ALLOCATION.format(1, LOST_CONSUMER, 0, 1),
            'UPDATE placement_inventories SET used = used + 1 WHERE id = 1',
            (
                'UPDATE placement_allocations SET consumer_project_id = 501, consumer_user_id = 501,'
                f" consumer_type_id = 77 WHERE consumer_id = '{LOST_CONSUMER}'"
            ),
        ),
        ({'consumer': LOST_CONSUMER},),
        '1 allocation without a record of the consumer; its owner is recorded with them',
        (
            f"""SELECT consumer_type_id FROM placement_consumers
            WHERE uuid = '{LOST_CONSUMER}' AND project_id = 501 AND user_id = 501""",
            [None],
        ),
    ),
    'project of an allocation': _wrong_owner('project', 502, 501),
    'user of an allocation': _wrong_owner('user', 501, 502),
    'type of an allocation': Damage(
        'allocation_owner_mismatch',
        (
            "INSERT INTO placement_consumer_types (id, name) VALUES (8, 'MIGRATION')",
            'UPDATE placement_consumers SET consumer_type_id = 8',
            'UPDATE placement_allocations SET consumer_project_id = 501, consumer_user_id = 501',
        ),
        ({'consumer': HOLDER},),
        '1 allocation with another project, user or type than the consumer',
        ('SELECT consumer_type_id FROM placement_allocations', [8]),
    ),
    'idle consumer': Damage(
        'consumer_without_allocations',
        (_CONSUMER.format(502, LOST_CONSUMER, 0),),
        ({'consumer': LOST_CONSUMER},),
        'a consumer without allocations',
        ('SELECT uuid FROM placement_consumers', [HOLDER]),
    ),
    'missing inventory': Damage(
        'allocation_without_inventory',
        (ALLOCATION.format(3, HOLDER, 2, 5),),
        ({'resource_provider': FLAT, 'resource_class': 'DISK_GB', 'consumer': HOLDER},),
        'allocation of 5, but the provider has no inventory',
    ),
    'usage too high': Damage(
        'usage_mismatch',
        ('UPDATE placement_inventories SET used = 7 WHERE id = 1',),
        (_OF_ROOT,),
        'recorded as used: 7; sum of the allocations: 2',
        ('SELECT used FROM placement_inventories WHERE id = 1', [2]),
    ),
    'usage without allocations': Damage(
        'usage_mismatch',
        ('UPDATE placement_inventories SET used = 3 WHERE id = 2',),
        (_OF_CHILD,),
        'recorded as used: 3; sum of the allocations: 0',
        ('SELECT used FROM placement_inventories WHERE id = 2', [0]),
    ),
    'too little left': Damage(
        'over_committed', ('UPDATE placement_inventories SET total = 1 WHERE id = 1',), (_OF_ROOT,), '2 of 1 used'
    ),
    'all reserved': Damage(
        'over_committed',
        # The capacity of -0.5 is truncated to 0, so a request may store it.
        ('UPDATE placement_inventories SET reserved = 9, allocation_ratio = 0.5 WHERE id = 1',),
        (_OF_ROOT,),
        '2 of 0 used',
    ),
    'no step': Damage(
        'invalid_inventory',
        ('UPDATE placement_inventories SET step_size = 0',),
        (_OF_ROOT, _OF_CHILD),
        'step_size is 0, below 1: write the inventory',
    ),
    'total below the minimum': _below_minimum('total = 0', 'total is 0, below 1'),
    # The difference of total and reserved exceeds 32 bits.
    'negative reserved': _below_minimum('total = 2147483647, reserved = -1', 'reserved is -1, below 0'),
    'min_unit and max_unit below the minimum': _below_minimum(
        'min_unit = 0, max_unit = -1', 'min_unit is 0, below 1; max_unit is -1, below 1'
    ),
    'negative ratio': _below_minimum('allocation_ratio = -0.1', 'allocation_ratio is -0.1, below 0'),
    'negative capacity': _below_minimum('reserved = 5', 'capacity is -1, below 0'),
    'below the minimum': _wrong_units('min_unit = 4', 'min_unit 4, max_unit 8, step_size 1'),
    'above the maximum': _wrong_units('max_unit = 1', 'min_unit 1, max_unit 1, step_size 1'),
    'out of step': _wrong_units('step_size = 3', 'min_unit 1, max_unit 8, step_size 3'),
}


@contextlib.contextmanager
def unguarded(url: str | sa.URL) -> Iterator[sa.Connection]:
    """A transaction in which the database does not check foreign keys."""
    # A running service may hold the lock of an SQLite file for longer than the five seconds of the driver.
    patience = {'timeout': waiting.SECONDS} if sa.make_url(url).get_backend_name() == 'sqlite' else {}
    engine = sa.create_engine(url, poolclass=sa.NullPool, connect_args=patience)
    with engine.begin() as connection:
        if connection.dialect.name == 'postgresql':
            connection.exec_driver_sql('SET LOCAL session_replication_role = replica')
        elif connection.dialect.name in ('mysql', 'mariadb'):
            connection.exec_driver_sql('SET foreign_key_checks = 0')
        yield connection


def plant(url: str | sa.URL, *statements: str) -> None:
    """Run statements without checks of foreign keys."""
    with unguarded(url) as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def cause_findings(app: Any) -> None:
    """Cause every kind of finding that requests can cause, by requests."""
    provider = create_provider(app, VCPU=8)
    path = f'/resource_providers/{provider}'
    demand(app, 'PUT', f'{path}/aggregates', {'aggregates': [EMPTY], 'resource_provider_generation': 1})
    demand(app, 'PUT', f'{path}/aggregates', {'aggregates': [], 'resource_provider_generation': 2})
    demand(app, 'PUT', f'/allocations/{HOLDER}', claim_body({provider: {'VCPU': 2}}))
    inventory = {'total': 1, 'max_unit': 1, 'resource_provider_generation': 4}
    demand(app, 'PUT', f'{path}/inventories/VCPU', inventory)


def column(url: str | sa.URL, query: str) -> list[Any]:
    """The first column of the result of a query."""
    with unguarded(url) as connection:
        return list(connection.exec_driver_sql(query).scalars())


def with_new_ids(announced: list[dict[str, Any]], repaired: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The announced changes of a finding, with the ids that the repair knows and the announcement has as texts."""
    return [
        change
        | {
            'new': change['new']
            and {
                name: made['new'][name] if str(value).startswith('the id of ') else value
                for name, value in change['new'].items()
            }
        }
        for change, made in zip(announced, repaired, strict=False)
    ] + announced[len(repaired) :]


def contents(url: str | sa.URL) -> dict[str, list[Any]]:
    """Everything in every table."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    metadata = sa.MetaData()
    metadata.reflect(engine)
    with engine.connect() as connection:
        return {
            name: sorted(map(repr, connection.execute(sa.select(table)))) for name, table in metadata.tables.items()
        }
