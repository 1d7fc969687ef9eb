"""The schema on PostgreSQL and MariaDB: upgrade, downgrade, upgrade again, and the values that it has to hold."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from alembic import autogenerate
from alembic.migration import MigrationContext

from placement.db import migration, tables
from tests.support import databases, legacy_database

pytestmark = pytest.mark.parametrize('setting', databases.parameters(*databases.defaults()), indirect=True)


@pytest.fixture
def engine(setting: databases.Setting) -> Iterator[sa.Engine]:
    """An engine on an empty database."""
    with databases.fresh(databases.server_url(setting.server)) as url:
        made = sa.create_engine(url)
        yield made
        made.dispose()


def names(engine: sa.Engine) -> set[str]:
    """The tables in the database, without the one that keeps the version."""
    return set(sa.inspect(engine).get_table_names()) - {migration.VERSION_TABLE}


def test_upgrade_downgrade_and_upgrade_again(engine: sa.Engine) -> None:
    for _ in range(2):
        assert migration.version(engine) is None
        migration.sync(engine)
        assert migration.version(engine) == migration.head()
        assert names(engine) >= set(tables.metadata.tables)
        migration.sync(engine)
        migration.downgrade(engine, 'base')
        assert names(engine) & set(tables.metadata.tables) == set()


@pytest.mark.parametrize('first', ['001', '003', 'head'])
def test_migrations_make_what_the_tables_say(engine: sa.Engine, first: str) -> None:
    """The migrations create the same schema as the declarations of the tables."""
    migration.sync(engine, first)
    migration.sync(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={'version_table': migration.VERSION_TABLE})
        differences = autogenerate.compare_metadata(context, tables.metadata)
        assert connection.execute(sa.select(tables.resource_class_ids.c.last)).scalars().all() == [9999]
    assert differences == []
    assert names(engine) == set(tables.metadata.tables)


def test_types_of_consumers_that_another_service_stored_are_kept(engine: sa.Engine) -> None:
    """In a database that was adopted at version 004, under the name that the other service has for the table."""
    migration.sync(engine, '004')
    legacy_database.add_types(engine.url)
    for _ in range(2):
        migration.sync(engine)
    with engine.begin() as connection:
        context = MigrationContext.configure(connection, opts={'version_table': migration.VERSION_TABLE})
        names = ('remove_constraint', 'add_constraint', 'remove_index', 'add_index')
        differences = [one for one in autogenerate.compare_metadata(context, tables.metadata) if one[0] not in names]
        assert differences == []
        types, consumers = tables.consumer_types, tables.consumers
        query = sa.select(types.c.name).join(consumers, consumers.c.consumer_type_id == types.c.id)
        assert connection.scalars(query).all() == ['MIGRATION']
        # Names are compared character by character.
        connection.execute(types.insert(), {'name': 'instance'})
        assert connection.scalars(sa.select(types.c.name).where(types.c.name == 'INSTANCE')).all() == ['INSTANCE']
        for change in (
            types.insert().values(name='INSTANCE'),
            consumers.update().values(consumer_type_id=77),
        ):
            with pytest.raises(sa.exc.IntegrityError), connection.begin_nested():
                connection.execute(change)
    migration.downgrade(engine, '004')
    migration.sync(engine)


def test_ten_processes_create_the_schema_at_once(engine: sa.Engine) -> None:
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        list(pool.map(migration.sync, [engine] * 10))
    assert migration.version(engine) == migration.head()


def test_upgrade_is_refused_while_older_processes_are_connected(engine: sa.Engine) -> None:
    """A process of an earlier release has an open connection."""
    migration.sync(engine, '001')
    with pytest.raises(migration.StopOthers, match='Stop all of them'):
        migration.sync(engine, others=migration.Others.UNKNOWN)
    other = sa.create_engine(engine.url, poolclass=sa.NullPool)
    with other.connect() as connection:
        connection.execute(sa.select(1))
        with pytest.raises(migration.StopOthers, match=r'and 1 other connections .* --others-are-stopped'):
            migration.sync(engine)
        assert migration.version(engine) == '001'
        # The upgrade waits for a connection that is about to end.
        waiting = threading.Timer(1, connection.close)
        waiting.start()
        migration.sync(engine)
        waiting.join()
        assert migration.version(engine) == migration.head()
        migration.downgrade(engine, '001')
    with other.connect() as connection:
        connection.execute(sa.select(1))
        migration.sync(engine, others=migration.Others.STOPPED)
    assert migration.version(engine) == migration.head()
    migration.sync(engine, others=migration.Others.UNKNOWN)


def test_ten_processes_upgrade_the_schema_at_once(engine: sa.Engine) -> None:
    """They do not refuse because of each other's connections."""
    migration.sync(engine, '001')
    engine.dispose()
    own = [sa.create_engine(engine.url, poolclass=sa.NullPool) for _ in range(10)]
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        list(pool.map(migration.sync, own))
    assert migration.version(engine) == migration.head()


@pytest.mark.parametrize(
    ('one', 'other'),
    [
        ('a', 'A'),
        ('a', 'a '),
        ('a', ' a'),
        ('é', 'e'),
        ('é', 'e\u0301'),
        ('ß', 'ss'),
        ('\U0001d49c', 'A'),
        ('😀', '😁'),
    ],
)
def test_different_text_is_different(engine: sa.Engine, one: str, other: str) -> None:
    migration.sync(engine)
    external_id = tables.projects.c.external_id
    with engine.begin() as connection:
        connection.execute(tables.projects.insert(), [{'external_id': one}, {'external_id': other}])
        for text in (one, other):
            found = connection.execute(sa.select(external_id).where(external_id == text)).scalars().all()
            assert found == [text]
        with pytest.raises(sa.exc.IntegrityError), connection.begin_nested():
            connection.execute(tables.projects.insert(), {'external_id': one})


def test_longest_text_of_four_byte_characters(engine: sa.Engine) -> None:
    migration.sync(engine)
    with engine.begin() as connection:
        for length, columns in ((255, (tables.projects.c.external_id, tables.traits.c.name)), (200, ())):
            for column in columns or (tables.resource_providers.c.name,):
                values = {column.name: '😀' * length}
                if column.table is tables.resource_providers:
                    values['uuid'] = 'any'
                connection.execute(column.table.insert(), values)
                assert connection.execute(sa.select(column)).scalars().all() == ['😀' * length]


def test_numbers_read_back_as_written(engine: sa.Engine) -> None:
    migration.sync(engine)
    inventory = tables.inventories.c
    with engine.begin() as connection:
        connection.execute(tables.resource_providers.insert(), {'uuid': 'any', 'name': 'any'})
        provider = connection.execute(sa.select(tables.resource_providers.c.id)).scalar()
        most = 2**31 - 1
        row = {
            'resource_provider_id': provider,
            'resource_class_id': 0,
            'total': most,
            'reserved': 0,
            'min_unit': 1,
            'max_unit': most,
            'step_size': 1,
        }
        for number, ratio in enumerate((1.15, 0.1, 16.0, 3.40282e38, 1e-30)):
            connection.execute(tables.resource_classes.insert(), {'id': number, 'name': str(number)})
            values = {**row, 'resource_class_id': number, 'allocation_ratio': ratio, 'used': 2**40 + number}
            connection.execute(tables.inventories.insert(), values)
            query = sa.select(inventory.allocation_ratio, inventory.used, inventory.total)
            read = connection.execute(query.where(inventory.resource_class_id == number)).one()
            assert tuple(read) == (ratio, 2**40 + number, most)
