"""A database with the schema of revision 001, which no code of today creates, and its upgrade to the newest revision.

``schema_001`` has the statements that the code of revision 001 executed (commit 33bcd8b). They do not change with
``placement.db.tables``, so the upgrade shows whether the migrations lead to the tables that are declared there.
"""

from __future__ import annotations

import pathlib
from typing import Any

import sqlalchemy as sa
from alembic import autogenerate
from alembic.migration import MigrationContext

from placement.db import migration, sql, tables
from tests.support import applications, corruption
from tests.support.http_client import send_request

_STATEMENTS = pathlib.Path(__file__).parent / 'schema_001'
_OWNERS = 'SELECT consumer_project_id FROM placement_allocations'


def differences(engine: sa.Engine) -> list[Any]:
    """Return how the schema of the database differs from the declared tables."""
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={'version_table': migration.VERSION_TABLE, 'compare_server_default': True}
        )
        return list(autogenerate.compare_metadata(context, tables.metadata))


def create(engine: sa.Engine) -> None:
    """Create the schema of revision 001 in an empty database."""
    name = 'mysql' if sql.is_mysql(engine.dialect) else engine.dialect.name
    text = (_STATEMENTS / f'{name}.sql').read_text()
    with engine.begin() as connection:
        if getattr(engine.dialect, 'is_mariadb', False):
            # The only difference between the schemas on MySQL and MariaDB.
            text = text.replace('utf8mb4_0900_bin', 'utf8mb4_nopad_bin')
        for statement in text.split(';\n'):
            if statement.strip():
                connection.exec_driver_sql(statement)


def check_upgrade(url: str | sa.URL) -> None:
    """The upgrade leads to the declared tables and copies owners to allocations, also after an interruption.

    Allocations without copies are counted in usages.
    """
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    create(engine)
    assert migration.recorded_revision(engine) == '001'
    corruption.plant(url, *corruption.SOUND)
    with applications.application(url) as app:
        assert differences(engine) == []
        assert corruption.column(url, _OWNERS) == [501]
        # MySQL commits each change of the schema, so this is what it has after the second step.
        with engine.begin() as connection:
            next(index for index in tables.allocations.indexes if 'owner' in str(index.name)).drop(connection)
        corruption.plant(url, 'UPDATE placement_allocations SET consumer_project_id = NULL')
        assert send_request(app, 'GET', '/usages?project_id=project').json == {'usages': {'VCPU': 2}}
        migration.stamp(engine, '001')
        migration.sync(engine)
        assert differences(engine) == []
        assert corruption.column(url, _OWNERS) == [501]
        assert send_request(app, 'GET', '/usages?project_id=project').json == {'usages': {'VCPU': 2}}
