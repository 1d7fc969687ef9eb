"""A database with the schema of the release before, 001, and its upgrade."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import command

from placement.db import migration, tables
from tests.support import applications, corruption
from tests.support.http_client import send_request

_OWNERS = 'SELECT consumer_project_id FROM placement_allocations'


def check_upgrade(url: str | sa.URL) -> None:
    """The upgrade copies owners to allocations, also after an interruption. Those without copies are counted."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with migration.locked(engine) as connection:
        command.upgrade(migration._config(connection), '001')
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
