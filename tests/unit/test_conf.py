"""Configuration: the sources of values, their order, errors in them, and the URL of the database."""

from __future__ import annotations

import pathlib
import re

import pytest
import sqlalchemy as sa

from placement import conf as configuration
from placement import exception
from placement.conf import COUNTERPARTS
from placement.db import connections


@pytest.fixture
def file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The configuration file, which does not exist yet."""
    monkeypatch.setenv('OS_PLACEMENT_CONFIG_DIR', str(tmp_path))
    return tmp_path / 'placement.conf'


def test_overrides_win_over_environment_and_environment_over_file(
    file: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(
        '[placement]\nmax_search_steps_per_tree = 100\nmax_search_steps = 2000\nmax_allocation_candidates = 3\n'
    )
    monkeypatch.setenv('OS_PLACEMENT__MAX_SEARCH_STEPS', '4000')
    monkeypatch.setenv('OS_PLACEMENT__MAX_ALLOCATION_CANDIDATES', '5')
    monkeypatch.setenv('OS_CORS__ALLOWED_ORIGIN', 'https://a.example.com,https://b.example.com')
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP', 'true')
    conf = configuration.load(overrides={'placement': {'max_allocation_candidates': 6}})
    assert conf.placement.max_search_steps_per_tree == 100
    assert conf.placement.max_search_steps == 4000
    assert conf.placement.max_allocation_candidates == 6
    assert conf.cors.allowed_origin == ['https://a.example.com', 'https://b.example.com']
    assert conf.placement_database.sync_on_startup is True
    assert configuration.load(config_files=[]).placement.max_allocation_candidates == 5


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('[api]\nauth_strategy = none\n', '[api] auth_strategy in {file}: '),
        ('[placement]\nmax_microversion = 1.28\n', '[placement] max_microversion in {file}: '),
        ('[placement]\nmax_microversion = 1.99\n', '[placement] max_microversion in {file}: '),
        ('[placement]\nmax_microversion = latest\n', '[placement] max_microversion in {file}: '),
        ('[api]\nmax_request_body_size = lots\n', '[api] max_request_body_size in {file}: '),
        (
            f'[placement]\nincomplete_consumer_user_id = {"x" * 256}\n',
            '[placement] incomplete_consumer_user_id in {file}: ',
        ),
        ('[placement\n', '{file}'),
        (
            '[placement_database]\nconnection = sqlite://u:pa$secret@host/d\n',
            '[placement_database] connection: a dollar sign ',
        ),
        *(
            (f'[metrics]\nbind = {value}\n', '[metrics] bind in {file}: ')
            for value in ('9178', ':9178', '127.0.0.1', '::1:9178', 'h:port')
        ),
        *(
            (f'[healthcheck]\npath = {value}\n', '[healthcheck] path in {file}: ')
            for value in ('healthcheck', '/health check', '/health/', '/')
        ),
    ],
)
def test_an_error_in_a_file_is_one_line_that_names_it(file: pathlib.Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(exception.ConfigurationInvalid) as caught:
        configuration.load()
    assert message.format(file=file) in str(caught.value)
    assert '\n' not in str(caught.value)
    assert 'secret' not in str(caught.value)


def test_an_error_in_a_variable_names_it(file: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('[placement]\nmax_search_steps_per_tree = 500\n')
    monkeypatch.setenv('OS_PLACEMENT__MAX_SEARCH_STEPS_PER_TREE', 'many')
    with pytest.raises(exception.ConfigurationInvalid) as caught:
        configuration.load()
    blame = '[placement] max_search_steps_per_tree in the environment (OS_PLACEMENT__MAX_SEARCH_STEPS_PER_TREE): '
    assert str(caught.value).startswith(blame)
    assert 'LocationInfo' not in str(caught.value)


def test_a_configured_directory_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    missing = tmp_path / 'nowhere'
    monkeypatch.setenv('OS_PLACEMENT_CONFIG_DIR', str(missing))
    with pytest.raises(exception.ConfigurationInvalid, match=f'OS_PLACEMENT_CONFIG_DIR names {missing}, which is not'):
        configuration.load()


def test_a_log_that_cannot_be_written_is_named() -> None:
    conf = configuration.load(config_files=[], overrides={'DEFAULT': {'log_file': '/nonexistent/placement.log'}})
    with pytest.raises(exception.ConfigurationInvalid, match=r'The log cannot be written: .*nonexistent/'):
        configuration.set_up_log(conf)


def test_a_directory_of_files_wins_over_the_file(tmp_path: pathlib.Path) -> None:
    file, directory = tmp_path / 'a' / 'placement.conf', tmp_path / 'b'
    file.parent.mkdir()
    directory.mkdir()
    file.write_text('[placement]\nmax_search_steps_per_tree = 100\nmax_search_steps = 2000\n')
    (directory / '10-more.conf').write_text('[placement]\nmax_search_steps_per_tree = 200\n')
    conf = configuration.load(['--config-file', str(file), '--config-dir', str(directory)])
    assert (conf.placement.max_search_steps_per_tree, conf.placement.max_search_steps) == (200, 2000)
    assert conf.placement.policy_file == str(file.with_name('placement-policy.yaml'))
    conf = configuration.load(['--config-dir', str(directory)], config_files=[])
    assert conf.placement.policy_file == str(directory / 'placement-policy.yaml')


def test_unknown_options_are_reported_with_their_source(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, directory = tmp_path / 'placement.conf', tmp_path / 'd'
    directory.mkdir()
    file.write_text(
        '[DEFAULT]\ndebug = false\nlog-dir = /tmp\nlogfile = x\ntempdir = /tmp\n'
        '[placement_database]\nconnection = sqlite://\nslave_connection = sqlite://\nmax_retris = 3\n'
        '[keystone_authtoken]\nauth_section = credentials\nusername = placement\n'
        '[cors]\nallowed_origin = *\n[oslo_policy]\npolicy_file = x\n[oslo_middleware]\n'
        'enable_proxy_headers_parsing = true\n'
    )
    (directory / 'more.conf').write_text(
        '[profiler]\nenabled = true\n[api]\nauth-strategy = noauth2\n[credentials]\npassword = secret\n'
    )
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__MAX_POOL_SIZE', '3')
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__BACKEND', 'sqlalchemy')
    monkeypatch.setenv('OS_OTHER__THING', 'x')
    conf = configuration.load(['--config-file', str(file), '--config-dir', str(directory)])
    assert configuration.ignored(conf) == [
        f'[DEFAULT] tempdir in {file}',
        f'[placement_database] slave_connection in {file}: ' + COUNTERPARTS['placement_database', 'slave_connection'],
        f'[placement_database] max_retris in {file}: did you mean max_transaction_retries?',
        f'[profiler] enabled in {directory}/more.conf',
        'the variable OS_PLACEMENT_DATABASE__BACKEND: nothing here depends on it',
    ]


def test_counterparts_of_ignored_options_are_options_that_exist() -> None:
    options = {
        (str(group or 'DEFAULT'), option.dest) for group, members in configuration.list_opts() for option in members
    }
    assert options.isdisjoint(COUNTERPARTS)
    for advice in COUNTERPARTS.values():
        for group, name in re.findall(r'\[(\w+)\] (\w+)', advice):
            assert (group, name) in options


# The URL of the database ------------------------------------------------------------------------------------------


def _url(connection: str, **options: object) -> str:
    values = {'placement_database': {'connection': connection, **options}}
    conf = configuration.load(config_files=[], overrides=values)
    return connections.engine_url(conf.placement_database).render_as_string(hide_password=False)


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


@pytest.mark.parametrize(
    ('connection', 'parameters', 'problem'),
    [
        *(
            ('mysql+pymysql://u@h/d', f'charset={charset}', f'charset={charset} is not safe: .* Remove charset.$')
            for charset in ('sjis', 'gbk', 'cp932', 'latin1', 'big5')
        ),
        ('mysql+pymysql://u@h/d?charset=sjis', '', 'charset=sjis is not safe'),
        ('mysql+pymysql://u@h/d?charset=utf8mb4&charset=sjis', '', 'charset=sjis is not safe'),
        ('postgresql+psycopg://u@h/d?client_encoding=sjis', '', 'client_encoding=sjis is not safe'),
        *(
            (f'mysql+pymysql://u@h/d?{name}=0', '', f'the service sets {name} itself. Remove it.$')
            for name in ('autocommit', 'conv', 'cursorclass', 'use_unicode')
        ),
    ],
)
def test_unsafe_parameters_of_a_connection_are_rejected(connection: str, parameters: str, problem: str) -> None:
    with pytest.raises(exception.ConfigurationInvalid, match=problem):
        _url(connection, connection_parameters=parameters)


@pytest.mark.parametrize('parameters', ['', '?charset=UTF8MB4', '?charset=utf8', '?charset=utf8mb3'])
def test_the_character_set_is_utf8mb4(parameters: str) -> None:
    parsed = sa.make_url(f'mysql+pymysql://u@h/d{parameters}')
    connections._reject_unsafe(parsed)
    # Without the check that the driver is installed.
    assert connections._complete(parsed, 0).query['charset'] == 'utf8mb4'
