"""Races and random load on each database, at every isolation level that an operator may have set."""

from __future__ import annotations

import pathlib

import pytest
import sqlalchemy as sa

from tests.integration import races
from tests.support import databases, servers
from tests.support.history import check
from tests.support.history.load import Load

EVERYWHERE = databases.on(databases.SQLITE, *databases.settings())


@EVERYWHERE
@pytest.mark.parametrize('race', races.RACES)
def test_race(setting: databases.Setting, server: servers.Server, race: str) -> None:
    """With fewer rounds on SQLite, in the default suite."""
    races.RACES[race]([server.url], divisor=4 if setting == databases.SQLITE else 1)


@EVERYWHERE
def test_random_load_has_no_violations(setting: databases.Setting, database: sa.URL, server: servers.Server) -> None:
    """Ten callers claim, move and release at random until hundreds of requests were accepted."""
    with Load.running([server.url], clients=10) as load:
        load.wait_for_accepted(200 if setting == databases.SQLITE else 500)
    check.assert_none(load, [database])


@databases.EVERYWHERE
def test_servers_that_start_at_once_on_an_empty_database_all_become_ready(
    setting: databases.Setting, tmp_path: pathlib.Path
) -> None:
    with databases.empty(setting.server, tmp_path) as url:
        races.all_came_up([url] * 4, tmp_path)
