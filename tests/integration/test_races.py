"""Races and random load on PostgreSQL and MariaDB, at every isolation level that an operator may have set."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from tests.support import assertions, databases, servers

pytestmark = databases.on(*databases.settings())


def test_setting_reaches_the_sessions(setting: databases.Setting, database: sa.URL) -> None:
    """Checks that the isolation level of the following tests is in force."""
    engine = sa.create_engine(setting.session_url(database), poolclass=sa.NullPool)
    if setting.server == 'postgresql':
        query = 'SHOW transaction_isolation'
    elif setting.isolation:
        query = 'SELECT @@transaction_isolation' if databases.on_mysql() else 'SELECT @@tx_isolation'
    else:
        query = 'SELECT @@innodb_snapshot_isolation'
    with engine.connect() as connection:
        value = str(connection.execute(sa.text(query)).scalar())
    assert value.upper().replace('-', ' ') == (setting.isolation or '1')


@pytest.mark.parametrize('race', assertions.RACES)
def test_race(server: servers.Server, race: str) -> None:
    assertions.RACES[race]([server.url])


def test_random_load_has_no_violations(
    setting: databases.Setting, database: sa.URL, server: servers.Server, record_property: Callable[[str, str], None]
) -> None:
    assertions.random_load_has_no_violations(
        server,
        record_property,
        name=f'{setting.server} {setting.name}',
        database=database.render_as_string(hide_password=False),
        requests=500,
    )
