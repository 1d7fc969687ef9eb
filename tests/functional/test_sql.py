"""SQL that must stay within a database's limits."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from placement.db import sql, tables
from placement.db.api import Database


@pytest.mark.parametrize('count', [0, 1, 100, 101, 3000])
def test_any_number_of_conditions_can_be_joined(db: Database, count: int) -> None:
    name = tables.traits.c.name
    conditions = [name != f'CUSTOM_{number}' for number in range(count)]
    query = sa.select(sa.func.count()).select_from(tables.traits)
    with db.reader() as tx:
        everything = tx.scalar(query)
        assert tx.scalar(query.where(sql.all_of(conditions))) == everything
        assert tx.scalar(query.where(sql.all_of([*conditions, name == 'HW_CPU_X86_VMX']))) == 1
