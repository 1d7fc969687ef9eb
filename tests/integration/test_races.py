"""Races and random load on PostgreSQL and MariaDB, at every isolation level that an operator may have set."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from tests.support import assertions, databases, servers
from tests.support.history import report
from tests.support.history.workload import Load

pytestmark = pytest.mark.parametrize(
    'setting', databases.parameters(*databases.settings()), indirect=True, scope='module'
)


def test_setting_reaches_the_sessions(setting: databases.Setting, database: sa.URL) -> None:
    """Checks that the isolation level of the following tests is in force."""
    engine = sa.create_engine(setting.session_url(database), poolclass=sa.NullPool)
    if setting.server == 'postgresql':
        query = 'SHOW transaction_isolation'
    elif setting.isolation:
        query = 'SELECT @@tx_isolation'
    else:
        query = 'SELECT @@innodb_snapshot_isolation'
    with engine.connect() as connection:
        value = str(connection.execute(sa.text(query)).scalar())
    assert value.upper().replace('-', ' ') == (setting.isolation or '1')


def test_forty_claims_for_ten_units(server: servers.Server) -> None:
    assertions.last_units_are_given_once(server)


@pytest.mark.parametrize('existing', [True, False])
def test_concurrent_writes_with_one_consumer_generation(server: servers.Server, existing: bool) -> None:
    assertions.a_generation_is_moved_once(server, existing=existing)


def test_concurrent_writes_in_opposite_orders(server: servers.Server) -> None:
    assertions.opposite_orders_make_progress(server)


def test_names_that_are_created_renamed_and_deleted_under_load(server: servers.Server) -> None:
    assertions.names_keep_their_meaning(server)


def test_history_of_random_load_has_no_violations(
    setting: databases.Setting, database: sa.URL, server: servers.Server, record_property: Callable[[str, str], None]
) -> None:
    retries = server.retries()
    load = Load.start([server.url], clients=10)
    time.sleep(6)
    history = load.finish()
    judged = report.of(
        history,
        unsent=load.unsent,
        retries=server.retries_since(retries),
        databases=[database.render_as_string(hide_password=False)],
    )
    record_property('history', f'{setting.server} {setting.name}\n{judged.text()}')
    assert judged.violations == []
    assert judged.server_errors == 0
    assert judged.unknown == 0
    assert judged.accepted > 100
