"""Completion of command lines, in a real bash on a terminal."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pty
import shutil
import subprocess
from collections.abc import Callable

import pytest

from placement.cmd import api, manage, status

MAIN = {'placement-api': api.main, 'placement-manage': manage.main, 'placement-status': status.main}
BASH = shutil.which('bash')
pytestmark = pytest.mark.skipif(BASH is None, reason='there is no bash')


def _script(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(['--print-completion', 'bash'])
    assert ended.value.code == 0
    return capsys.readouterr().out


def _typed_in_bash(keys: str, directory: pathlib.Path, setup: str) -> str:
    """What an interactive bash prints when somebody types ``keys`` and leaves."""
    assert BASH is not None
    (directory / '.bashrc').write_text(setup)
    leader, follower = pty.openpty()
    settings = {'HOME': str(directory), 'PATH': os.environ['PATH'], 'TERM': 'dumb', 'INPUTRC': '/dev/null'}
    process = subprocess.Popen(
        [BASH, '--noprofile', '-i'], cwd=directory, stdin=follower, stdout=follower, stderr=follower, env=settings
    )
    os.close(follower)
    os.write(leader, f'{keys}\nexit\n'.encode())
    printed = b''
    with contextlib.suppress(OSError):  # A closed terminal raises this error.
        while piece := os.read(leader, 65536):
            printed += piece
    os.close(leader)
    process.wait(60)
    return printed.decode()


@pytest.mark.parametrize(
    ('keys', 'line'),
    [
        ('placement-manage cap\t--fo\tj\t', 'placement-manage capacity --format json'),
        ('placement-manage con\t--fo\tj\t', 'placement-manage consumer --format json'),
        ('placement-manage db inv\t', 'placement-manage db invalidate-caches'),
        ('placement-manage --config-f\tplac\ttree', 'placement-manage --config-file placement.conf tree'),
        ('placement-manage db sync --config-d\tetc\t', 'placement-manage db sync --config-dir etc/'),
        ('placement-status up\tch\t--form\tt\t', 'placement-status upgrade check --format text'),
        ('placement-api --dev --data\tplac\t', 'placement-api --dev --database placement.conf'),
    ],
)
def test_bash_completes(keys: str, line: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / 'placement.conf').touch()
    (tmp_path / 'etc').mkdir()
    program = line.split()[0]
    script = _script(MAIN[program], capsys)
    printed = _typed_in_bash(keys, tmp_path, f'{script}\n{program}() {{ echo "ran {program} $*"; }}\n')
    assert f'ran {line}' in [' '.join(text.split()) for text in printed.splitlines()], printed


@pytest.mark.parametrize('program', MAIN)
def test_the_scripts_are_valid(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert BASH is not None
    subprocess.run([BASH, '-n'], input=_script(MAIN[program], capsys), text=True, check=True)
