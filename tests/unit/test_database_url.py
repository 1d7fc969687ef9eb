"""The URL of the database: what is rejected, what is added, and which parameters win."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from placement import conf as configuration
from placement import exception
from placement.db import connections


def _url(connection: str, **options: object) -> str:
    values = {'placement_database': {'connection': connection, **options}}
    conf = configuration.load(config_files=[], overrides=values)
    return connections.engine_url(conf.placement_database).render_as_string(hide_password=False)


def _completed(connection: str) -> sa.URL:
    parsed = sa.make_url(connection)
    connections._reject_unsafe(parsed)
    return connections._complete(parsed, 0)


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
def test_url_forms_of_other_services_are_rejected_with_the_right_form(connection: str, advice: str) -> None:
    with pytest.raises(exception.ConfigurationInvalid) as caught:
        _url(connection)
    assert advice in str(caught.value)
    assert connection.partition('//')[0] in str(caught.value)


class Counter(sa.CreateEnginePlugin):
    """Stands for the plugin with which devstack counts statements."""

    def update_url(self, url: sa.URL) -> sa.URL:
        return url.difference_update_query(['plugin'])


def test_a_plugin_of_sqlalchemy_is_named_if_it_is_missing_and_else_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(exception.ConfigurationInvalid, match=r'plugin dbcounter, .* Install it, or remove plugin='):
        _url('sqlite:////tmp/file?plugin=dbcounter')
    monkeypatch.setitem(sa.dialects.plugins.impls, 'dbcounter', lambda: Counter)
    completed = _url('sqlite:////tmp/file?plugin=dbcounter')
    assert 'plugin=dbcounter' in completed
    assert 'plugin' not in sa.create_engine(completed).url.query


def test_parameters_win_over_those_of_the_url() -> None:
    url = sa.make_url(_url('sqlite:///x?timeout=5&uri=true', connection_parameters='timeout=7&cache=a%26b'))
    assert dict(url.query) == {'timeout': '7', 'uri': 'true', 'cache': 'a&b'}


@pytest.mark.parametrize('parameters', ['ssl_ca', 'ssl_ca=a&ssl_key', 'ssl_ca=a&&ssl_key=b'])
def test_malformed_connection_parameters_stop_the_start(parameters: str) -> None:
    with pytest.raises(exception.ConfigurationInvalid, match='connection_parameters is not of the form'):
        _url('sqlite://', connection_parameters=parameters)


@pytest.mark.parametrize('charset', ['sjis', 'gbk', 'cp932', 'latin1', 'big5', 'utf8mb4&charset=sjis'])
@pytest.mark.parametrize('place', ['connection', 'connection_parameters'])
def test_unsafe_character_sets_are_rejected(charset: str, place: str) -> None:
    options = {'connection': 'mysql+pymysql://u@h/d', 'connection_parameters': f'charset={charset}'}
    if place == 'connection':
        options = {'connection': f'mysql+pymysql://u@h/d?charset={charset}'}
    with pytest.raises(exception.ConfigurationInvalid) as caught:
        _url(**options)
    rejected = charset.rpartition('=')[2]
    assert str(caught.value) == (
        f'[placement_database] connection cannot be used: charset={rejected} is not safe: the service connects with'
        ' utf8mb4. Remove charset.'
    )


@pytest.mark.parametrize(
    'parameters', ['', '?charset=utf8mb4', '?charset=UTF8MB4', '?charset=utf8', '?charset=utf8mb3']
)
def test_the_character_set_is_utf8mb4(parameters: str) -> None:
    # Without the check that the driver is installed.
    assert _completed(f'mysql+pymysql://u@h/d{parameters}').query['charset'] == 'utf8mb4'


@pytest.mark.parametrize('name', ['autocommit', 'conv', 'cursorclass', 'use_unicode'])
def test_parameters_that_the_service_sets_are_rejected(name: str) -> None:
    with pytest.raises(exception.ConfigurationInvalid, match=f'the service sets {name} itself. Remove it.$'):
        _url(f'mysql+pymysql://u@h/d?{name}=0')


def test_another_encoding_of_postgresql_is_rejected() -> None:
    with pytest.raises(exception.ConfigurationInvalid, match='client_encoding=sjis is not safe'):
        _url('postgresql+psycopg://u@h/d?client_encoding=sjis')
    assert _completed('postgresql+psycopg://u@h/d?client_encoding=utf8').query['client_encoding'] == 'utf8'
