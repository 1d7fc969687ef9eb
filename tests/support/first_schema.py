"""A database with the schema of the release before, 001, and its upgrade."""

from __future__ import annotations

import sqlalchemy as sa

from placement.db import migration, tables
from tests.support import applications, corruption
from tests.support.http_client import send_request

_OWNERS = 'SELECT consumer_project_id FROM placement_allocations'


def _undo_second_revision(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        # MySQL needs an index for the foreign key of the project.
        connection.exec_driver_sql(
            'CREATE INDEX consumers_project_id_user_id_idx ON placement_consumers (project_id, user_id)'
        )
        for index in (*tables.allocations.indexes, *tables.consumers.indexes):
            if index.name in ('allocations_owner_class_used_idx', 'consumers_project_user_type_uuid_idx'):
                index.drop(connection)
        for column in tables.CONSUMER_COPIES:
            connection.exec_driver_sql(f'ALTER TABLE placement_allocations DROP COLUMN {column}')
    migration.stamp(engine, '001')


def check_upgrade(url: str | sa.URL) -> None:
    """The upgrade copies owners to allocations, also after an interruption. Those without copies are counted."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    migration.sync(engine)
    _undo_second_revision(engine)
    corruption.plant(url, *corruption.SOUND)
    with applications.application(url) as app:
        assert corruption.column(url, _OWNERS) == [501]
        # MySQL commits each change of the schema, so this is what it has after the second step.
        with engine.begin() as connection:
            next(index for index in tables.allocations.indexes if 'owner' in str(index.name)).drop(connection)
        corruption.plant(url, 'UPDATE placement_allocations SET consumer_project_id = NULL')
        assert send_request(app, 'GET', '/usages?project_id=project').json == {'usages': {'VCPU': 2}}
        migration.stamp(engine, '001')
        migration.sync(engine)
        assert corruption.column(url, _OWNERS) == [501]
        assert send_request(app, 'GET', '/usages?project_id=project').json == {'usages': {'VCPU': 2}}
