"""Connections to MariaDB whose URL asks for a character set in which escaped text is not safe."""

from __future__ import annotations

import uuid

import pytest
import sqlalchemy as sa

from tests.integration import races
from tests.support import applications, databases
from tests.support.http_client import create_provider, demand

pytestmark = databases.ON_MARIADB

#: In sjis the yen sign is encoded as a backslash, so that the quote after it would end the text.
INJECTION = "\u00a5' UNION SELECT 1, 2, 3, 4, 5, 6 -- "


@pytest.mark.parametrize('parameters', [{}, {'init_command': 'SET NAMES sjis'}, {'charset': 'utf8'}])
def test_connections_use_utf8mb4_and_text_is_stored_literally(database: sa.URL, parameters: dict[str, str]) -> None:
    with applications.application(database.update_query_dict(parameters)) as app:
        shown = app.db.fetch_all(
            sa.text('SELECT @@character_set_client, @@character_set_connection, @@character_set_results')
        )
        assert set(shown[0]) == {'utf8mb4'}
        with app.db.reader() as tx:
            assert tx.exec_driver_sql('SELECT @@character_set_client').scalar() == 'utf8mb4'
        host, consumer = create_provider(app, VCPU=4), str(uuid.uuid4())
        body = races.claim([host], None) | {'project_id': INJECTION, 'user_id': INJECTION}
        demand(app, 'PUT', f'/allocations/{consumer}', body)
        allocations = demand(app, 'GET', f'/allocations/{consumer}').json
        assert (allocations['project_id'], allocations['user_id']) == (INJECTION, INJECTION)
        assert demand(app, 'GET', f'/resource_providers/{host}/usages').json['usages'] == {'VCPU': 1}
