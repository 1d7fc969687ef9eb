"""Races and random load on each database, at every isolation level that an operator may have set."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from tests.integration import races
from tests.support import corruption, databases, servers
from tests.support.history import check
from tests.support.history.load import Load

EVERYWHERE = databases.on(databases.SQLITE, *databases.settings())


@databases.on(*databases.settings())
def test_setting_reaches_the_sessions(setting: databases.Setting, database: sa.URL) -> None:
    """Checks that the isolation level of the following tests is in force."""
    if setting.server == 'postgresql':
        query = 'SHOW transaction_isolation'
    elif setting.isolation:
        query = 'SELECT @@transaction_isolation' if databases.on_mysql() else 'SELECT @@tx_isolation'
    else:
        query = 'SELECT @@innodb_snapshot_isolation'
    (value,) = corruption.column(setting.session_url(database), query)
    assert str(value).upper().replace('-', ' ') == (setting.isolation or '1')


@EVERYWHERE
@pytest.mark.parametrize('race', races.RACES)
def test_race(setting: databases.Setting, server: servers.Server, race: str) -> None:
    """With fewer rounds on SQLite, in the default suite."""
    races.RACES[race]([server.url], divisor=4 if setting == databases.SQLITE else 1)


@EVERYWHERE
def test_random_load_has_no_violations(
    setting: databases.Setting, database: sa.URL, server: servers.Server, record_property: Callable[[str, str], None]
) -> None:
    """Ten callers claim, move and release at random until hundreds of requests were accepted."""
    before = server.retries()
    load = Load.start([server.url], clients=10)
    load.wait_for_accepted(200 if setting == databases.SQLITE else 500)
    load.stop()
    check.assert_none(
        load,
        record_property,
        name=f'{setting.server} {setting.name}',
        retries=server.retries() - before,
        databases=[database.render_as_string(hide_password=False)],
    )


def test_servers_that_start_at_once_on_an_empty_database_all_become_ready(tmp_path: pathlib.Path) -> None:
    races.all_came_up([f'sqlite:///{tmp_path}/placement.db'] * 4, tmp_path)
