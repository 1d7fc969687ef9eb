"""Rows that MariaDB and MySQL join into texts of JSON are the rows that the same query returns without that."""

from __future__ import annotations

import datetime as dt
import random
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from placement.cache import loader
from placement.capacity import MAX_INT32
from placement.db import sql, tables
from placement.db.api import Database
from tests.support import applications, databases

pytestmark = databases.on(databases.SQLITE, *databases.defaults(), databases.mysqlclient())

_CONTROL = ''.join(map(chr, range(1, 32)))
NAMES = (
    *(None, '', ' ', 'null', '],[', '"', '\\', '\\"', '\\u0041', "'%s?:x", _CONTROL, '\x7f\x80\x9f', '\u2028\ufeff'),
    *('\U0001f5a5 \U0010ffff', 'é', 'e\u0301', '\ud7ff\ue000\uffff', '\U0001f5a5' * 200, '"' * 200, '\x01' * 200),
)
_random = random.Random(0)
RATIOS = (
    *(0.0, 1.0, 16.0, 0.1, 1 / 3, 1.5e16, 123456789012345680.0, 5e-324, 2.2250738585072014e-308),
    *(1.7976931348623157e308, 1.2345678901234567e-300, float(MAX_INT32)),
    *(abs(struct.unpack('d', _random.randbytes(7) + bytes([number % 127]))[0]) for number in range(2000)),
)
MOMENTS = (None, dt.datetime(1970, 1, 1), dt.datetime(2026, 2, 28, 23, 59, 59), dt.datetime(9999, 12, 31, 1, 2, 3))

_providers, _inventories = tables.resource_providers, tables.inventories


@pytest.fixture(scope='module')
def db(load_application: Callable[..., Any], database: sa.URL) -> Iterator[Database]:
    """A database with a provider of each name, whose ids are far apart, and inventories with many ratios."""
    load_application({})
    engine = sa.create_engine(database, poolclass=sa.NullPool)
    providers = [
        {
            'id': 1 + number * 97,
            'uuid': str(uuid.UUID(int=number)),
            'name': name,
            'generation': MAX_INT32 - number,
            'root_provider_id': 1,
            'created_at': MOMENTS[number % len(MOMENTS)],
        }
        for number, name in enumerate(NAMES)
    ]
    classes = range(len(tables.STANDARD_CLASSES))
    places = [(provider['id'], class_id) for class_id in classes for provider in providers]
    inventories = [
        {
            'resource_provider_id': provider_id,
            'resource_class_id': class_id,
            **dict.fromkeys(('total', 'reserved', 'min_unit', 'max_unit', 'step_size'), MAX_INT32),
            'allocation_ratio': ratio,
            'used': 2**62 + class_id,
        }
        for (provider_id, class_id), ratio in zip(places, RATIOS, strict=False)
    ]
    with engine.begin() as tx:
        tx.execute(_providers.insert(), providers)
        tx.execute(_inventories.insert(), inventories)
        trait_id = tx.execute(sa.select(tables.traits.c.id).limit(1)).scalar_one()
        own_traits = [{'resource_provider_id': provider['id'], 'trait_id': trait_id} for provider in providers]
        tx.execute(tables.resource_provider_traits.insert(), own_traits)
    with applications.database(database) as opened:
        yield opened


@pytest.fixture(params=[loader._PROVIDERS, loader._INVENTORIES, loader._TRAITS, loader._CLASS_NAMES])
def query(request: pytest.FixtureRequest) -> sa.Select[Any]:
    """A query of the cache."""
    chosen: sa.Select[Any] = request.param
    return chosen


def texts(rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return rows as texts, which show types and all digits."""
    return sorted(repr(tuple(row)) for row in rows)


def test_joined_rows_have_the_values_and_types_of_the_columns(db: Database, query: sa.Select[Any]) -> None:
    with db.reader() as tx:
        rows = texts(sql.fetch_rows(tx, query))
        assert rows == texts(tx.execute(query))
    assert len(rows) >= len(NAMES)


def test_ratios_are_exact(db: Database) -> None:
    query = sa.select(_inventories.c.id, _inventories.c.allocation_ratio)
    with db.reader() as tx:
        ratios = [ratio for _, ratio in sorted(map(tuple, sql.fetch_rows(tx, query)))]
    assert ratios == list(RATIOS[: len(ratios)])
    assert len(ratios) > 100


def test_no_rows(db: Database) -> None:
    with db.reader() as tx:
        assert list(sql.fetch_rows(tx, loader._AGGREGATES)) == []


def test_rows_of_a_text_that_the_server_truncates_are_read_again(db: Database) -> None:
    """The text ends anywhere, also between two rows."""
    with db.reader() as tx:
        expected = texts(tx.execute(loader._CLASS_NAMES))
        for length in range(4, 60):
            if sql.is_mysql(tx.dialect):
                tx.exec_driver_sql(f'SET SESSION group_concat_max_len = {length}')
            assert texts(sql.fetch_rows(tx, loader._CLASS_NAMES)) == expected
    db.engine.dispose()
