"""The warning when the reference service, whose package has the same name, is installed too."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys

import pytest

from placement.cmd import manage, status
from tests.support.fixtures import PointCommandsAt

SAID = 'openstack-placement 9.9.9 is installed as well. Both are the Python package "placement", and each overwrites'


@pytest.fixture
def beside(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, point_commands_at: PointCommandsAt) -> pathlib.Path:
    """A directory in which it is installed, on the path of this process; and a database."""
    metadata = tmp_path / 'site' / 'openstack_placement-9.9.9.dist-info' / 'METADATA'
    metadata.parent.mkdir(parents=True)
    metadata.write_text('Metadata-Version: 2.1\nName: openstack-placement\nVersion: 9.9.9\n')
    monkeypatch.syspath_prepend(tmp_path / 'site')
    point_commands_at(f'sqlite:///{tmp_path}/placement.sqlite')
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP', 'true')
    monkeypatch.setenv('OS_API__AUTH_STRATEGY', 'noauth2')
    return tmp_path / 'site'


def test_commands_warn_and_go_on(beside: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(['db', 'sync']) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith(f'placement-manage: warning: {SAID}')
    assert captured.err.count('\n') == 1
    assert status.main(['upgrade', 'check', '--format', 'json']) == 0
    assert capsys.readouterr().err.startswith(f'placement-status: warning: {SAID}')


@pytest.mark.parametrize('start', [['-c', 'import placement.wsgi'], ['-m', 'placement.cmd.api', '--bind', '{taken}']])
def test_the_service_warns(beside: pathlib.Path, start: list[str]) -> None:
    with socket.create_server(('127.0.0.1', 0)) as listener:
        taken = f'127.0.0.1:{listener.getsockname()[1]}'
        command = [sys.executable, *(word.format(taken=taken) for word in start)]
        environment = {**os.environ, 'PYTHONPATH': str(beside)}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == ('{taken}' in start)
    assert ended.stdout.count(SAID) == 1


def test_there_is_no_warning_otherwise(
    beside: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, 'path', [directory for directory in sys.path if directory != str(beside)])
    assert manage.main(['db', 'sync']) == 0
    assert capsys.readouterr().err == ''
