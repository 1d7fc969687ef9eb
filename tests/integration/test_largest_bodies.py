"""Requests with the longest lists that the limit on bodies allows, on PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from placement.db import tables
from tests.support import databases, largest_bodies

pytestmark = databases.on(*databases.defaults(), databases.mysqlclient())


def test_largest_bodies(load_application: Callable[..., Any]) -> None:
    largest_bodies.check(load_application({}))


def test_no_text_of_a_statement_is_kept(load_application: Callable[..., Any], setting: databases.Setting) -> None:
    """But for the last hundred of each connection, which PostgreSQL's driver counts in order to prepare them."""
    kept_bytes = largest_bodies.kept_bytes(load_application({}).db)
    assert kept_bytes < (5_000_000 if setting.server == 'postgresql' else 1_000_000)


def test_a_statement_with_too_many_parameters_is_no_outage(
    load_application: Callable[..., Any], setting: databases.Setting
) -> None:
    """PostgreSQL's driver does not send more than 65,535 parameters; MariaDB's has no limit."""
    db = load_application({}).db
    query = sa.select(tables.traits.c.id).where(tables.traits.c.name.in_([f'T{number}' for number in range(70_000)]))
    with db.reader() as tx:
        if setting.server == 'mariadb':
            assert tx.execute(query).all() == []
            return
    # Not DatabaseUnavailable.
    with pytest.raises(sa.exc.OperationalError), db.reader() as tx:
        tx.execute(query)
