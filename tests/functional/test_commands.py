"""What all commands have in common: the release, messages about what cannot be used, the log, and completion."""

from __future__ import annotations

import logging
import os
import pathlib
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest
from alembic import script
from oslo_config import cfg

from placement import exception, release
from placement.cmd import api, manage, status
from placement.cmd.command import run_command
from placement.cmd.parser import OUTPUT_CLOSED, CommandParser
from placement.db import migration
from placement.db.api import Database
from tests.support import preforked
from tests.support.fixtures import PointCommandsAt, Printed

MAIN = {'placement-api': api.main, 'placement-manage': manage.main, 'placement-status': status.main}
MANAGE = ('db version', 'db sync', 'db invalidate-caches', 'db adopt', 'db leave', 'db online_data_migrations', 'tree')
#: Command lines, and their exit codes after a failure.
COMMANDS = [
    *((f'placement-manage {command}', manage.FAILED) for command in MANAGE),
    ('placement-status upgrade check', status.FAILED),
    ('placement-api --bind 127.0.0.1:0', 1),
]


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """Remove the handlers of the log that a command sets up. They write to the standard error of its test."""
    log = logging.getLogger()
    handlers = log.handlers.copy()
    yield
    for handler in [handler for handler in log.handlers if handler not in handlers]:
        log.removeHandler(handler)


@pytest.mark.parametrize('main', MAIN.values())
def test_version(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(['--version'])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f'placement {release()}\n'


@pytest.mark.parametrize(
    'command',
    [f'{name} {argument}' for name in ('api', 'manage', 'status') for argument in ('--version', '--help', '--wrong')]
    + [
        'manage',
        'manage tree --help',
        'manage audit --except wrong',
        'manage tree --debu',
        'status upgrade check --wrong',
    ],
)
def test_texts_of_the_parser_need_no_slow_imports(command: str) -> None:
    # The imports take most of the time of a command.
    libraries = {'alembic', 'gunicorn', 'jinja2', 'numpy', 'oslo_config', 'oslo_db', 'oslo_log', 'rich', 'sqlalchemy'}
    name, *arguments = command.split()
    code = f"""
import sys
from placement.cmd import {name}
try:
    {name}.main({arguments})
except SystemExit:
    sys.exit(', '.join({libraries}.intersection(sys.modules)) or 0)
"""
    ended = subprocess.run([sys.executable, '-c', code], check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(('group', 'expected'), [('API', ''), ('PROFILER', 'osprofiler')])
def test_commands_import_only_what_they_use(
    group: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    if expected:
        pytest.importorskip(expected)
    monkeypatch.setenv(f'OS_{group}__ENABLED', 'false')
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__CONNECTION', f'sqlite:///{tmp_path}/placement.sqlite')
    code = """
import sys
from placement.cmd import manage
manage.main(['db', 'version'])
manage.main(['tree'])
print(*{'alembic', 'jsonschema', 'osprofiler'}.intersection(sys.modules))
"""
    ended = subprocess.run([sys.executable, '-c', code], check=True, capture_output=True, text=True, timeout=120)
    assert ended.stdout == f'None\n{expected}\n'


@pytest.mark.parametrize('command', ['manage db sync', 'manage db version', 'manage audit', 'status upgrade check'])
def test_commands_without_a_search_need_no_slow_imports(command: str, url: str) -> None:
    libraries = {'alembic', 'jinja2', 'jsonschema', 'keystonemiddleware', 'numpy', 'os_traits', 'webob'}
    name, *arguments = command.split()
    if command in ('manage db sync', 'status upgrade check'):
        # They look for missing standard names.
        libraries -= {'os_traits'}
    code = f"""
import sys
from placement.cmd import {name}
{name}.main({arguments})
print({libraries} & {{*sys.modules}})
"""
    environment = {**os.environ, 'OS_PLACEMENT_DATABASE__CONNECTION': url}
    command_line = [sys.executable, '-c', code]
    ended = subprocess.run(command_line, check=True, capture_output=True, text=True, timeout=120, env=environment)
    assert ended.stdout.splitlines()[-1] == 'set()'


@pytest.mark.parametrize('command', ['openapi', 'db version'])
def test_commands_do_not_look_for_garbage_while_they_start(command: str, url: str) -> None:
    code = f"""
import gc
from placement.cmd import manage
before = gc.get_stats()[2]['collections']
manage.main({command.split()})
print(gc.get_stats()[2]['collections'] - before, gc.isenabled(), gc.get_freeze_count() > 10_000)
"""
    environment = {**os.environ, 'OS_PLACEMENT_DATABASE__CONNECTION': url}
    command_line = [sys.executable, '-c', code]
    ended = subprocess.run(command_line, check=True, capture_output=True, text=True, timeout=120, env=environment)
    assert ended.stdout.splitlines()[-1] == '0 True True'


def test_each_command_has_a_function() -> None:
    def functions(parser: CommandParser) -> Iterator[str]:
        if parser._commands is None:
            yield parser.get_default('run')
        else:
            for command in parser._commands.choices.values():
                yield from functions(command)

    paths = list(functions(manage._parser()))
    assert len(paths) > 15
    assert all(callable(pkgutil.resolve_name(f'placement.cmd.{path}')) for path in paths)


def test_revisions_are_those_of_alembic() -> None:
    scripts = script.ScriptDirectory.from_config(migration._config())
    assert migration.head() == scripts.get_current_head()
    with pytest.raises(migration.UnknownRevision) as unknown:
        migration._resolve('none')
    assert unknown.value.known == ', '.join(reversed([revision.revision for revision in scripts.walk_revisions()]))


def test_online_data_migrations_need_the_schema(
    tmp_path: pathlib.Path,
    point_commands_at: PointCommandsAt,
    capsys: pytest.CaptureFixture[str],
    printed: Printed,
) -> None:
    point_commands_at(f'sqlite:///{tmp_path}/placement.sqlite')
    command = ['db', 'online_data_migrations', '--max-count', '50']
    assert manage.main(command) == manage.FAILED
    captured = capsys.readouterr()
    assert captured.out == ''
    assert 'The database does not have the tables of this service. Create them with' in captured.err
    assert captured.err.endswith('placement-manage db sync\n')
    assert f'at revision {migration.head()},' in printed('db', 'sync')
    assert printed(*command).startswith('There is nothing to do: ')


@pytest.mark.parametrize('count', ['0', '-1'])
def test_max_count_is_positive(url: str, count: str, failed: Printed) -> None:
    error = failed('db', 'online_data_migrations', '--max-count', count)
    assert error == f'placement-manage: --max-count must be at least 1, not {count}.\n'


def test_the_version_of_an_empty_database_is_none(
    tmp_path: pathlib.Path, point_commands_at: PointCommandsAt, printed: Printed
) -> None:
    point_commands_at(f'sqlite:///{tmp_path}/placement.sqlite')
    assert printed('db', 'version') == 'None\n'
    printed('db', 'sync')
    assert printed('db', 'version') == f'{migration.head()}\n'


def test_a_revision_of_another_service_is_not_recorded(url: str, printed: Printed, failed: Printed) -> None:
    """Scripts that move data record it. A revision that looks like one of ours has to exist."""
    assert 'no revision 158782c7f38c, so nothing was recorded' in printed('db', 'stamp', '158782c7f38c')
    assert printed('db', 'version') == f'{migration.head()}\n'
    assert 'There is no schema revision 999.' in failed('db', 'stamp', '999')
    assert printed('db', 'version') == f'{migration.head()}\n'


@pytest.mark.parametrize(('command', 'code'), COMMANDS)
@pytest.mark.parametrize(
    ('connection', 'message'),
    [
        ('', 'connection is not set'),
        ('sqlite://user:pass@word:secret@host/database', 'the port is not a number'),
        ('sqlite:////nonexistent/directory/file', 'The database is not available at the moment. unable to open'),
        ('sqlite:///{directory}/text', 'file is not a database'),
        ('sqlite:///{directory}/file?timeout=long', 'connection cannot be used: timeout must be a number of seconds'),
    ],
)
def test_a_failure_is_one_line(
    command: str,
    code: int,
    connection: str,
    message: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    point_commands_at: PointCommandsAt,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / 'text').write_text('This is not a file of SQLite. ' * 10)
    point_commands_at(connection.format(directory=tmp_path))
    monkeypatch.setenv('OS_API__AUTH_STRATEGY', 'noauth2')
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP', 'true')
    program, *arguments = command.split()
    assert MAIN[program](arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ''
    (line,) = captured.err.splitlines()
    assert line.startswith(f'{program}: ')
    assert message.format(directory=tmp_path) in line
    assert 'secret' not in line
    # Without a log, Python would print such records on standard error.
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    'command',
    ['status upgrade check', 'manage tree', 'manage --print-completion bash', 'manage db version'],
)
def test_output_that_nobody_reads_is_not_an_error(command: str, url: str, tmp_path: pathlib.Path) -> None:
    """As after ``| head``: without a traceback, and with the exit code that shells have for it."""
    module, *arguments = command.split()
    environ = os.environ | {'OS_PLACEMENT_DATABASE__CONNECTION': url, 'OS_PLACEMENT_CONFIG_DIR': str(tmp_path)}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        line = [sys.executable, '-m', f'placement.cmd.{module}', *arguments]
        ended = subprocess.run(line, env=environ, stdout=writer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (OUTPUT_CLOSED, b'')


def test_an_interrupt_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    assert run_command('placement-status', status.FAILED, interrupted) == status.FAILED
    assert capsys.readouterr().err == 'placement-status: interrupted\n'


def test_the_reason_of_a_failure_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    def failed() -> int:
        raise exception.ConfigurationInvalid(reason='the name host\x1b[31m\nforged is unknown')

    assert run_command('placement-status', status.FAILED, failed) == status.FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(r'the name host\x1b[31m forged is unknown')


@pytest.mark.parametrize('main', [manage.main, status.main])
@pytest.mark.parametrize(('position', 'option'), [(0, '--config-file'), (1, '--config-dir'), (2, '--config-file')])
def test_the_configuration_may_be_given_anywhere(
    main: Callable[[list[str]], int],
    position: int,
    option: str,
    conf: cfg.ConfigOpts,
    db: Database,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert migration.recorded_revision(db.engine)
    monkeypatch.delenv('OS_PLACEMENT_DATABASE__CONNECTION', raising=False)
    monkeypatch.setenv('OS_PLACEMENT_CONFIG_DIR', str(tmp_path))
    path = tmp_path / 'given.conf'
    path.write_text(f'[placement_database]\nconnection = {conf.placement_database.connection}\n')
    arguments = ['db', 'version'] if main is manage.main else ['upgrade', 'check', '--json']
    arguments[position:position] = [option, str(path if option == '--config-file' else tmp_path)]
    assert main(arguments) == 0


def test_files_of_the_configuration_are_merged_in_their_order(
    conf: cfg.ConfigOpts, db: Database, tmp_path: pathlib.Path, printed: Printed
) -> None:
    """Before the name of the command and after it, and with directories between them."""
    assert migration.recorded_revision(db.engine)
    values = ('sqlite://', 'oracle://host/database', conf.placement_database.connection)
    files = [tmp_path / name for name in ('first.conf', 'directory/second.conf', 'third.conf')]
    files[1].parent.mkdir()
    for path, connection in zip(files, values, strict=True):
        path.write_text(f'[placement_database]\nconnection = {connection}\n')
    words = ['--config-file', str(files[0]), 'db', f'--config-dir={files[1].parent}', 'version', '--config-file']
    assert printed(*words, str(files[2])) == f'{migration.head()}\n'


@pytest.mark.parametrize(
    'words',
    [
        *('--use-syslog', '--use-journal', '--debug', '--verbose', '--log-file {0}/command.log', '--log-dir {0}'),
        '--use-syslog --debug',
    ],
)
@pytest.mark.parametrize('program', ['placement-manage', 'placement-status'])
def test_options_of_every_openstack_command_are_accepted_anywhere(
    program: str, words: str, conf: cfg.ConfigOpts, db: Database, tmp_path: pathlib.Path
) -> None:
    assert migration.recorded_revision(db.engine)
    command = ['db', 'version'] if program == 'placement-manage' else ['upgrade', 'check']
    environ = {
        'OS_PLACEMENT_DATABASE__CONNECTION': conf.placement_database.connection,
        'OS_API__AUTH_STRATEGY': 'noauth2',
        'OS_PLACEMENT_CONFIG_DIR': str(tmp_path),
    }
    options = words.format(tmp_path).split()
    has_log = '--debug' in options or ('--use-journal' in options and not find_spec('systemd'))
    for arguments in ([*options, *command], [*command, *options]):
        ended = preforked.run(program, arguments, os.environ | environ)
        assert ended.returncode == 0
        # Without the package for the journal, the log is on standard error. The output of the command is never in it.
        assert bool(ended.stderr) == has_log
        assert ended.stdout == f'{migration.head()}\n' or ended.stdout.startswith('+--')
    # The file in a directory has the name of the program, which is another one here.
    assert len([*tmp_path.glob('*.log')]) == ('{0}' in words)


@pytest.mark.parametrize(('program', 'position'), [('placement-manage', 0), ('placement-status', 1)])
def test_the_log_may_be_asked_for_anywhere(
    program: str, position: int, conf: cfg.ConfigOpts, db: Database, tmp_path: pathlib.Path
) -> None:
    """As oslo.log's options of the commands of other services. In a process of its own, whose log is set up."""
    assert migration.recorded_revision(db.engine)
    file = tmp_path / 'command.log'
    arguments = ['db', 'sync'] if program == 'placement-manage' else ['upgrade', 'check']
    arguments[position:position] = ['--log-file', str(file), '-d' if position else '--debug']
    environ = {
        'OS_PLACEMENT_DATABASE__CONNECTION': conf.placement_database.connection,
        'OS_API__AUTH_STRATEGY': 'noauth2',
        'OS_PLACEMENT_CONFIG_DIR': str(tmp_path),
    }
    ended = preforked.run(program, arguments, os.environ | environ)
    assert (ended.returncode, ended.stderr) == (0, '')
    assert f' DEBUG placement.cmd.command [-] placement {release()}, ' in file.read_text()


def test_manage_finds_the_database_of_dev_in_its_directory(
    db: Database,
    conf: cfg.ConfigOpts,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failed: Printed,
) -> None:
    monkeypatch.setenv('OS_PLACEMENT_CONFIG_DIR', str(tmp_path))
    monkeypatch.delenv('OS_PLACEMENT_DATABASE__CONNECTION', raising=False)
    monkeypatch.chdir(tmp_path)
    assert manage.main(['tree']) == manage.FAILED
    assert 'placement-dev.sqlite' in capsys.readouterr().err
    stored = pathlib.Path(conf.placement_database.connection.removeprefix('sqlite:///'))
    (tmp_path / 'placement-dev.sqlite').symlink_to(stored)
    assert manage.main(['tree']) == 0
    captured = capsys.readouterr()
    assert captured.out == 'No resource providers are stored.\n'
    assert captured.err == (
        f'placement-manage: no database is configured, so {tmp_path}/placement-dev.sqlite is used\n'
    )
    # With a configuration that names no database, this one is not used.
    (tmp_path / 'placement.conf').write_text('[placement_database]\n')
    assert '[placement_database] connection is not set' in failed('tree')


@pytest.mark.skipif(shutil.which('bash') is None, reason='there is no bash')
@pytest.mark.parametrize(
    ('line', 'word'),
    [
        ('placement-manage cap', 'capacity'),
        ('placement-manage db inv', 'invalidate-caches'),
        ('placement-manage consumer --format j', 'json'),
        ('placement-manage --config-file plac', 'placement.conf'),
        ('placement-status upgrade ch', 'check'),
        ('placement-api --dev --database plac', 'placement.conf'),
    ],
)
def test_bash_completes(line: str, word: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / 'placement.conf').touch()
    program, *_, typed = line.split()
    with pytest.raises(SystemExit):
        MAIN[program](['--print-completion', 'bash'])
    function = f'_shtab_{program.replace("-", "_")}'
    script = f"""{capsys.readouterr().out}
        COMP_WORDS=({line}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        {function} {program} {typed}
        echo "${{COMPREPLY[@]}}" """
    ended = subprocess.run(['bash', '-c', script], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert ended.stdout.split() == [word], ended.stderr
