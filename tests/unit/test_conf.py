"""Configuration: the sources of values, their order, and errors in them."""

from __future__ import annotations

import os
import pathlib
import re
import tempfile

import pytest

from placement import conf as configuration
from placement import exception
from placement.conf import COUNTERPARTS


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


@pytest.mark.parametrize(
    ('locked', 'message'),
    [
        ('placement.conf', 'Permission denied: {directory}/placement.conf cannot be read.'),
        ('.', "[Errno 13] Permission denied: '{directory}/placement.conf'"),
    ],
)
def test_a_file_without_permission_is_named(monkeypatch: pytest.MonkeyPatch, locked: str, message: str) -> None:
    configuration.load(config_files=[])
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        directory.chmod(0o755)
        (directory / 'placement.conf').touch()
        (directory / locked).chmod(0)
        if is_root := os.geteuid() == 0:
            # Root may read every file.
            os.seteuid(65534)
        try:
            monkeypatch.setenv('OS_PLACEMENT_CONFIG_DIR', name)
            with pytest.raises(exception.ConfigurationInvalid, match=f'^{re.escape(message.format(directory=name))}$'):
                configuration.load()
        finally:
            if is_root:
                os.seteuid(0)
            (directory / locked).chmod(0o700)


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


def test_every_option_of_the_service_has_a_help_text() -> None:
    unexplained = [
        f'[{group}] {option.name}'
        for group, options in configuration.list_opts()
        for option in options
        if not option.help or len(option.help) < 20
    ]
    ours = ('[api]', '[placement]', '[placement_database]')
    assert [name for name in unexplained if name.startswith(ours)] == []
