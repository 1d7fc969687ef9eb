"""Configuration: the sources of values, their order, errors in them, and the URL of the database."""

from __future__ import annotations

import contextlib
import copy
import logging
import pathlib
import re
import sys
import time
from typing import cast

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from placement import conf as configuration
from placement import exception
from placement.conf.unknown import COUNTERPARTS, list_unknown
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


@pytest.mark.parametrize('use_json', [False, True])
def test_no_text_in_the_log_can_forge_a_line_or_control_a_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, use_json: bool
) -> None:
    path = tmp_path / 'log'
    conf = configuration.load(config_files=[], overrides={'DEFAULT': {'log_file': str(path), 'use_json': use_json}})
    for target, attribute in ((logging.root, 'handlers'), (logging.root, 'level'), (sys, 'excepthook')):
        monkeypatch.setattr(target, attribute, copy.copy(getattr(target, attribute)))
    configuration.set_up_log(conf)
    # Any logger, also of a library: a name in an argument, in an exception and in its traceback.
    for number, character in enumerate('\n\r\x1b\x85\u2028'):
        name = f'host{number}{character}2026-01-01 00:00:00.000 1 ERROR forged'
        logging.getLogger('library').error('No %s', name, exc_info=LookupError(name))
    logging.root.handlers[0].close()
    lines = path.read_text().splitlines()
    prefix = r'\{"message": ' if use_json else r'\d{4}-\d\d-\d\d [^ ]+ \d+ ERROR library '
    assert [line for line in lines if not re.match(prefix, line) or not line.isprintable()] == []
    assert sum('No host' in line for line in lines) == 5


def _write(path: pathlib.Path, **options: object) -> str:
    """Write a file with options of [placement], and return its path."""
    path.parent.mkdir(exist_ok=True)
    path.write_text('[placement]\n' + ''.join(f'{name} = {value}\n' for name, value in options.items()))
    return str(path)


def test_the_files_of_the_default_directory_are_read_in_order_of_their_names(file: pathlib.Path) -> None:
    """As oslo.config does, in which tools put the password of the service and what users add."""
    directory = file.with_name('placement.conf.d')
    paths = [
        _write(file, max_search_steps=2001, max_search_steps_per_tree=101, cache_refresh_interval=1),
        _write(directory / '10-a.conf', max_search_steps=2002, max_search_steps_per_tree=102),
        _write(directory / 'b.conf', max_search_steps=2003),
    ]
    for name in ('a.txt', '.hidden.conf'):
        _write(directory / name, max_search_steps=2009)
    conf = configuration.load()
    values = conf.placement
    assert (values.max_search_steps, values.max_search_steps_per_tree, values.cache_refresh_interval) == (2003, 102, 1)
    assert configuration.describe(conf).endswith(f', configuration: {", ".join(paths)}')
    file.unlink()
    assert configuration.files(configuration.load()) == paths[1:]
    assert configuration.files(configuration.load(config_files=[])) == []


def test_repeated_files_and_directories_are_merged_in_order(file: pathlib.Path) -> None:
    directory = file.parent
    default = _write(directory / 'placement.conf.d' / 'a.conf', max_search_steps=2001, max_search_steps_per_tree=101)
    _write(file, max_search_steps=2002, cache_refresh_interval=2)
    first = _write(directory / 'first.conf', max_search_steps=2003, max_allocation_candidates=3)
    second = _write(directory / 'second.conf', max_search_steps=2004)
    conf = configuration.load(['--config-file', first, '--config-file', second])
    values = conf.placement
    assert (values.max_search_steps, values.max_allocation_candidates) == (2004, 3)
    # As in oslo.config: the default directory is read, too, but the default file is not.
    assert (values.max_search_steps_per_tree, values.cache_refresh_interval) == (101, 1)
    assert configuration.files(conf) == [default, first, second]
    third, fourth = (
        _write(directory / name / 'x.conf', max_search_steps=value) for name, value in (('d', 2005), ('e', 2006))
    )
    conf = configuration.load(['--config-dir', str(directory / 'd'), '--config-dir', str(directory / 'e')])
    assert (conf.placement.max_search_steps, conf.placement.max_search_steps_per_tree) == (2006, 200000)
    assert configuration.files(conf) == [str(file), third, fourth]
    conf = configuration.load(['--config-dir', str(directory / 'd'), '--config-file', second])
    assert conf.placement.max_search_steps == 2004


def test_a_file_below_the_default_directory_is_named_in_an_error(file: pathlib.Path) -> None:
    _write(file, max_search_steps=5000)
    path = _write(file.with_name('placement.conf.d') / 'a.conf', max_search_steps='many')
    with pytest.raises(exception.ConfigurationInvalid, match=re.escape(f'[placement] max_search_steps in {path}: ')):
        configuration.load()


def test_values_that_sqlalchemy_takes_are_legal(tmp_path: pathlib.Path, file: pathlib.Path) -> None:
    file.write_text(
        f'[placement_database]\nconnection = sqlite:///{tmp_path}/file\n'
        'max_pool_size = 0\nmax_overflow = -1\npool_timeout = 0\nconnection_recycle_time = -1\nmax_retries = -1\n'
    )
    conf = configuration.load()
    engine = connections.create_engine(conf.placement_database)
    with contextlib.ExitStack() as stack:
        # There is no limit of connections, and none is replaced because of its age.
        for _ in range(60):
            stack.enter_context(engine.connect())
    pool = cast('sa.QueuePool', engine.pool)
    assert (pool.size(), pool._recycle, pool._timeout) == (0, -1, 0)
    engine.dispose()
    assert list_unknown(conf) == [
        f'[placement_database] max_retries in {file}: ' + COUNTERPARTS['placement_database', 'max_retries']
    ]


def test_a_pool_without_a_limit_of_overflow_and_one_without_a_wait(tmp_path: pathlib.Path) -> None:
    values = {'connection': f'sqlite:///{tmp_path}/file', 'max_pool_size': 1, 'pool_timeout': 0}
    for overflow, error in ((-1, None), (1, sa.exc.TimeoutError)):
        overrides = {'placement_database': values | {'max_overflow': overflow}}
        engine = connections.create_engine(configuration.load(config_files=[], overrides=overrides).placement_database)
        with contextlib.ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(engine.connect())
            if error is None:
                stack.enter_context(engine.connect())
            else:
                begin = time.monotonic()
                with pytest.raises(error):
                    engine.connect()
                assert time.monotonic() - begin < 1
        engine.dispose()


def test_values_may_refer_to_other_options(file: pathlib.Path) -> None:
    file.write_text(
        '[DEFAULT]\nstate_path = /var/lib/elsewhere\nmy_ip = 192.0.2.1\nmy_port = 9178\nunused = 1\n'
        'log_dir = $state_path/log\n'
        '[metrics]\nbind = ${my_ip}:$my_port\n'
        '[placement]\npolicy_file = $pybasedir/$placement.incomplete_consumer_user_id/$$x\n'
        'incomplete_consumer_user_id = u\n'
        '[placement_database]\nconnection = sqlite:///$state_path/placement.sqlite\n'
    )
    conf = configuration.load()
    assert conf.log_dir == '/var/lib/elsewhere/log'
    assert conf.metrics.bind == '192.0.2.1:9178'
    root = pathlib.Path(configuration.__file__).parents[2]
    assert conf.placement.policy_file == f'{root}/u/$x'
    assert conf.placement_database.connection == 'sqlite:////var/lib/elsewhere/placement.sqlite'
    assert list_unknown(conf) == [f'[DEFAULT] unused in {file}']


def test_a_strategy_of_authentication_may_have_its_former_name(file: pathlib.Path) -> None:
    file.write_text('[DEFAULT]\nauth_strategy = noauth2\n')
    conf = configuration.load()
    assert conf.api.auth_strategy == 'noauth2'
    assert list_unknown(conf) == []
    file.write_text('[DEFAULT]\nauth_strategy = none\n')
    with pytest.raises(exception.ConfigurationInvalid, match=re.escape(f'[api] auth_strategy in {file}: ')):
        configuration.load()


def test_unknown_options_are_reported_with_their_source(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, directory = tmp_path / 'placement.conf', tmp_path / 'd'
    directory.mkdir()
    file.write_text(
        '[DEFAULT]\ndebug = false\nlog-dir = /tmp\nlogfile = x\ntempdir = /tmp\n'
        '[placement_database]\nconnection = sqlite://\nslave_connection = sqlite://\nmax_trans_retries = 3\n'
        '[keystone_authtoken]\nauth_section = credentials\nusername = placement\n'
        '[cors]\nallowed_origin = *\n[oslo_policy]\npolicy_file = x\n[oslo_middleware]\n'
        'enable_proxy_headers_parsing = true\n'
    )
    (directory / 'more.conf').write_text(
        '[profile]\nenabled = true\n[api]\nauth-strategy = noauth2\n[credentials]\npassword = secret\n'
    )
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__MAX_POOL_SIZE', '3')
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__BACKEND', 'sqlalchemy')
    monkeypatch.setenv('OS_OTHER__THING', 'x')
    conf = configuration.load(['--config-file', str(file), '--config-dir', str(directory)])
    assert list_unknown(conf) == [
        f'[DEFAULT] tempdir in {file}: nothing here depends on it',
        f'[placement_database] slave_connection in {file}: ' + COUNTERPARTS['placement_database', 'slave_connection'],
        f'[placement_database] max_trans_retries in {file}: did you mean max_transaction_retries?',
        f'[profile] enabled in {directory}/more.conf',
        'the variable OS_PLACEMENT_DATABASE__BACKEND: nothing here depends on it',
    ]


def test_options_of_the_profiler_need_its_package(file: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('[profiler]\nenabled = true\n')
    for name in ('osprofiler', 'osprofiler.opts'):
        monkeypatch.setitem(sys.modules, name, None)
    assert list_unknown(configuration.load()) == [
        f'[profiler] enabled in {file}: it needs the package osprofiler, which the extra "profiler" installs'
    ]


#: What deployment tools write into the file of the service, by group.
OF_TOOLS = {
    'DEFAULT': 'debug log_file log_dir log_config_append log_options log_rotation_type max_logfile_count'
    ' max_logfile_size_mb state_path pybasedir auth_strategy use_journal use_syslog syslog_log_facility verbose'
    ' logging_context_format_string logging_exception_prefix logging_debug_format_suffix fatal_deprecations',
    'api': 'auth_strategy',
    'cache': 'backend enabled memcache_servers',
    'cors': 'allowed_origin allow_credentials expose_headers max_age allow_methods allow_headers',
    'oslo_concurrency': 'lock_path',
    'oslo_middleware': 'enable_proxy_headers_parsing max_request_body_size',
    'oslo_policy': 'enforce_scope enforce_new_defaults policy_file policy_default_rule policy_dirs',
    'placement': 'randomize_allocation_candidates allocation_conflict_retry_count max_allocation_candidates'
    ' allocation_candidates_generation_strategy incomplete_consumer_project_id incomplete_consumer_user_id policy_file',
    'placement_database': 'connection connection_parameters slave_connection mysql_sql_mode mysql_wsrep_sync_wait'
    ' mysql_enable_ndb sqlite_synchronous connection_recycle_time max_pool_size max_overflow pool_timeout max_retries'
    ' retry_interval connection_debug connection_trace use_db_reconnect db_retry_interval db_inc_retry_interval'
    ' db_max_retry_interval db_max_retries synchronous_reader sqlite_busy_timeout backend sync_on_startup',
    'workarounds': 'optimize_for_wide_provider_trees',
}


def test_options_that_tools_write_are_read_or_reported_with_advice(file: pathlib.Path) -> None:
    """None is reported with the name of an option that is only similar."""
    options = {
        (former.group or str(group or 'DEFAULT'), (former.name or option.name).replace('-', '_'))
        for group, members in configuration.list_opts()
        for option in members
        for former in (cfg.DeprecatedOpt(option.name), *option.deprecated_opts)
    }
    settings = [(group, name) for group, names in OF_TOOLS.items() for name in names.split()]
    unread = [setting for setting in settings if setting not in options]
    file.write_text(''.join(f'[{group}]\n{name} = 1\n' for group, name in unread))
    assert list_unknown(configuration.load()) == [
        f'[{group}] {name} in {file}: {COUNTERPARTS[group, name]}' for group, name in unread
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


@pytest.mark.parametrize('driver', ['pymysql', 'mysqldb'])
def test_mariadb_in_a_url_means_the_same_as_mysql(driver: str) -> None:
    """oslo.db translates the errors of a driver only if the URL says mysql."""
    parsed = connections._parsed(f'mariadb+{driver}://u:p%40@h/d?ssl_ca=a')
    assert parsed == sa.make_url(f'mysql+{driver}://u:p%40@h/d?ssl_ca=a')
    assert connections._parsed('mariadb://u@h/d').drivername == 'mysql+mysqldb'


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
