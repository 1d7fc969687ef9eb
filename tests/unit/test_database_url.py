"""The URL of the database: what is refused, what is added, and which parameters win."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from placement import conf as configuration
from placement import exception
from placement.db import url


def _url(connection: str, **options: object) -> str:
    values = {'placement_database': {'connection': connection, **options}}
    conf = configuration.load(environ={}, config_files=[], overrides=values)
    return url.engine_url(conf.placement_database).render_as_string(hide_password=False)


@pytest.mark.parametrize(
    ('connection', 'advice'),
    [
        ('postgresql+psycopg2://u@h/d', "Write postgresql+psycopg://... and install its driver: pip install 'psycopg"),
        ('postgresql+asyncpg://u@h/d', 'Write postgresql+psycopg://'),
        ('postgres://u@h/d', 'Write postgresql+psycopg://'),
        ('mysql+mysqlconnector://u@h/d', "Write mysql+pymysql://... and install its driver: pip install 'PyMySQL'"),
        ('mariadb+mariadbconnector://u@h/d', 'Write mysql+pymysql://'),
        ('oracle://u@h/d', 'Write sqlite:, postgresql'),
    ],
)
def test_url_forms_of_other_services_are_refused_with_the_right_form(connection: str, advice: str) -> None:
    with pytest.raises(exception.ConfigurationInvalid) as caught:
        _url(connection)
    assert advice in str(caught.value)
    assert connection.partition('//')[0] in str(caught.value)


@pytest.mark.parametrize('connection', ['mysql://u@h/d', 'mysql+mysqldb://u@h/d'])
def test_a_missing_driver_is_refused_with_advice(connection: str) -> None:
    try:
        import MySQLdb  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        with pytest.raises(exception.ConfigurationInvalid, match=r"Write mysql\+pymysql://.* pip install 'PyMySQL'"):
            _url(connection)
    else:
        assert _url(connection).startswith(connection)


def test_parameters_win_over_those_of_the_url() -> None:
    found = sa.make_url(_url('sqlite:///x?timeout=5&uri=true', connection_parameters='timeout=7&cache=a%26b'))
    assert dict(found.query) == {'timeout': '7', 'uri': 'true', 'cache': 'a&b'}


@pytest.mark.parametrize('parameters', ['ssl_ca', 'ssl_ca=a&ssl_key', 'ssl_ca=a&&ssl_key=b'])
def test_malformed_connection_parameters_stop_the_start(parameters: str) -> None:
    with pytest.raises(exception.ConfigurationInvalid, match='connection_parameters is not of the form'):
        _url('sqlite://', connection_parameters=parameters)
