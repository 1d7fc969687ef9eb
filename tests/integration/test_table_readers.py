"""Programs that read the tables of another Placement service in SQL, after its database is adopted and returned."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from placement.cmd import manage, manage_audit
from placement.db import migration
from tests.support import corruption, databases, legacy_database, upstream_views
from tests.support.fixtures import PointCommandsAt, Printed

#: What an exporter might read: the used and the total amounts of each class on each provider.
QUERY = """SELECT p.name, i.resource_class_id, i.total - i.reserved, i.allocation_ratio, sum(a.used)
    FROM {schema}resource_providers p JOIN {schema}inventories i ON i.resource_provider_id = p.id
    LEFT JOIN {schema}allocations a ON a.resource_provider_id = p.id AND a.resource_class_id = i.resource_class_id
    GROUP BY p.name, i.resource_class_id, i.total, i.reserved, i.allocation_ratio ORDER BY 1, 2"""


@pytest.fixture
def theirs(setting: databases.Setting, tmp_path: pathlib.Path, point_commands_at: PointCommandsAt) -> Iterator[sa.URL]:
    """The URL of a database that another deployment made; commands that the test runs use it."""
    with databases.empty(setting.server, tmp_path) as url:
        legacy_database.build(url)
        point_commands_at(url)
        yield url


@pytest.mark.parametrize('backend', ['mysql', 'postgresql'])
def test_the_scripts_have_the_tables_and_columns_of_other_services(backend: str) -> None:
    assert upstream_views.file(backend).read_text() == upstream_views.script(backend)


@databases.ON_EACH
def test_readers_find_the_same_rows_in_the_views(theirs: sa.URL, printed: Printed) -> None:
    """In the views of a second database (MariaDB) or schema (PostgreSQL), which do not stand in the way of db leave."""
    backend = theirs.get_backend_name()
    database = str(theirs.database)
    script = upstream_views.file(backend).read_text().replace('placement_upstream', f'{database}_readers')
    script = script.replace('FROM placement.', f'FROM {database}.')
    rows = _rows(theirs, QUERY.format(schema=''))
    assert len(rows) == 4
    assert manage.main(['db', 'adopt', '--yes']) == manage_audit.CLEAN
    try:
        corruption.plant(theirs, *script.strip().removesuffix(';').split(';\n'))
        # A ratio in single precision became the decimal that it stands for.
        assert [(*row[:3], pytest.approx(row[3]), row[4]) for row in rows] == _rows(
            theirs, QUERY.format(schema=f'{database}_readers.')
        )
        for name in (
            *('consumers', 'users', 'projects', 'traits', 'resource_classes'),
            'consumer_types',
            'resource_provider_traits',
            'resource_provider_aggregates',
            'placement_aggregates',
        ):
            assert _rows(theirs, f'SELECT * FROM {database}_readers.{name}')
        printed('db', 'leave', '--yes')
        assert [row[:3] for row in _rows(theirs, QUERY.format(schema=''))] == [row[:3] for row in rows]
    finally:
        if backend == 'mysql':
            databases.execute(theirs, f'DROP DATABASE IF EXISTS {database}_readers')


@databases.EVERYWHERE
def test_views_of_the_old_names_are_a_problem_of_db_leave(theirs: sa.URL, printed: Printed) -> None:
    assert manage.main(['db', 'adopt', '--yes']) == manage_audit.CLEAN
    corruption.plant(theirs, 'CREATE VIEW inventories AS SELECT id, total FROM placement_inventories')
    if theirs.get_backend_name() == 'postgresql':
        corruption.plant(theirs, 'CREATE MATERIALIZED VIEW users AS SELECT id FROM placement_users')
    before = corruption.contents(theirs)
    for options in ([], ['--yes']):
        out = printed('db', 'leave', *options, code=manage.FAILED)
        assert '- There is a view inventories, which has the name of a table: drop the view.' in out
        assert ('- There is a view users,' in out) == (theirs.get_backend_name() == 'postgresql')
    assert corruption.contents(theirs) == before
    assert printed('db', 'version') == f'{migration.head()}\n'
    corruption.plant(theirs, 'DROP VIEW inventories')
    if theirs.get_backend_name() == 'postgresql':
        corruption.plant(theirs, 'DROP MATERIALIZED VIEW users')
    printed('db', 'leave', '--yes')


@databases.on(databases.defaults()[0])
def test_a_view_on_a_column_whose_type_changes_is_a_problem_of_db_adopt(theirs: sa.URL, printed: Printed) -> None:
    corruption.plant(theirs, 'CREATE VIEW ratios AS SELECT allocation_ratio FROM inventories')
    corruption.plant(theirs, 'CREATE VIEW totals AS SELECT total FROM inventories')
    before = corruption.contents(theirs)
    for options in ([], ['--yes']):
        out = printed('db', 'adopt', *options, code=manage.FAILED)
        assert (
            '- The view ratios uses the column inventories.allocation_ratio, whose type has to change. Drop the view.'
        ) in out
        assert 'totals' not in out
    assert corruption.contents(theirs) == before
    corruption.plant(theirs, 'DROP VIEW ratios')
    assert manage.main(['db', 'adopt', '--yes']) == manage_audit.CLEAN


def _rows(url: sa.URL, query: str) -> list[tuple[object, ...]]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(query)]
