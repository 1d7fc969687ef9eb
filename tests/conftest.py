"""For every test: a check that writes note their changes in the log, and the division of a run between processes."""

from __future__ import annotations

import atexit
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings

from tests.support import log_watch

# Some hundred processes are started: each would compile all modules of ours again if none kept what it compiled.
os.environ.pop('PYTHONDONTWRITEBYTECODE', None)
sys.dont_write_bytecode = False

# What a shell starts in the background ignores SIGINT, and so would every command that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@sa.event.listens_for(sa.Pool, 'connect')
def _do_not_wait_for_the_disk(connection: Any, _record: object) -> None:
    """Let SQLite leave what it writes to the operating system. No test is about a failure of power."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute('PRAGMA synchronous = OFF')


# No test reads the files of a service that is installed on this machine.
os.environ['OS_PLACEMENT_CONFIG_DIR'] = tempfile.mkdtemp(prefix='placement-test-')
atexit.register(shutil.rmtree, os.environ['OS_PLACEMENT_CONFIG_DIR'], ignore_errors=True)


#: What a test may need, as markers of pytest (pyproject.toml): servers, programs or much time. It runs only when this
#: is requested, whatever this machine has; then what is missing lets it fail.
NEEDS = frozenset({'bench', 'postgresql', 'mariadb', 'mysql', 'galera', 'operations', 'deployers', 'page'})

# No generated test fails because the machine is slow. A failure is shown as it was generated: shrinking takes minutes.
settings.register_profile(
    'patient',
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
settings.load_profile('patient')
#: The largest number of examples for generated tests, and small failures: ``pytest --hypothesis-profile thorough``.
settings.register_profile('thorough', settings.get_profile('patient'), phases=tuple(Phase))


def _requested(config: pytest.Config) -> set[str]:
    """What the tests of this run may need: the words in ``pytest -m``."""
    return set(re.findall(r'(?<!\bnot )\b\w+', config.option.markexpr)) & NEEDS


def pytest_configure(config: pytest.Config) -> None:
    """Start the MySQL server on which the tests of MariaDB run instead, if ``mysql`` is requested.

    Processes of xdist, which start after this, get its URL through the environment.
    """
    if 'mysql' not in _requested(config) or hasattr(config, 'workerinput'):
        return
    if 'mariadb' in _requested(config):
        raise pytest.UsageError('One run cannot be on both MariaDB and MySQL: request one of them.')
    from tests.support import local_servers

    config.add_cleanup(local_servers.replace_mariadb_by_mysql())


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which tests do not run."""
    missing = sorted(NEEDS - _requested(config))
    return f'tests that need {", ".join(missing)} are not requested (pytest -m NAME)' if missing else None


# Also without pytest-xdist (``-p no:xdist``) this file can be read.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """The number of processes of ``-n auto``. Many tests wait for servers, and some start processes of their own."""
    return min(len(os.sched_getaffinity(0)) + 1, 4)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Group tests that share a server, a database or earlier requests: with ``--dist loadgroup`` one process runs them.

    xdist reads the groups in ``pytest_collection_modifyitems``.
    """
    assert isinstance(item, pytest.Function)
    if item.get_closest_marker('mariadb'):
        # With ``pytest -m mysql`` it runs on MySQL instead.
        item.add_marker('mysql')
    if any(definitions[-1].scope == 'module' for definitions in item._fixtureinfo.name2fixturedefs.values()):
        values = item.callspec.params if hasattr(item, 'callspec') else {}
        parts = [getattr(values[name], 'name', '') for name in ('suite', 'setting') if name in values]
        item.add_marker(pytest.mark.xdist_group('-'.join([item.path.stem, *parts])))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that need what was not requested."""
    requested = _requested(config)
    selected: list[pytest.Item] = []
    deselected: list[pytest.Item] = []
    for item in items:
        needs = {mark.name for mark in item.iter_markers()} & NEEDS
        (selected if not needs or needs & requested else deselected).append(item)
    config.hook.pytest_deselected(items=deselected)
    items[:] = selected


@pytest.fixture(scope='session', autouse=True)
def _nothing_of_this_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run all tests in an empty directory, with an empty home and without a configuration of the machine.

    Commands read the database of ``placement-api --dev`` in the working directory, and clients files there and in the
    home. What was installed or cached stays in its place, because that costs minutes.
    """
    home = pathlib.Path.home()
    empty = tmp_path_factory.mktemp('empty')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('XDG_CACHE_HOME', os.environ.get('XDG_CACHE_HOME') or str(home / '.cache'))
        patch.setenv('GIT_CONFIG_GLOBAL', os.environ.get('GIT_CONFIG_GLOBAL') or str(home / '.gitconfig'))
        for name in ('directory', 'home', 'configuration'):
            (empty / name).mkdir()
        patch.setenv('HOME', str(empty / 'home'))
        patch.setenv('OS_PLACEMENT_CONFIG_DIR', str(empty / 'configuration'))
        patch.chdir(empty / 'directory')
        yield


@pytest.fixture(scope='session', autouse=True)
def watch() -> Iterator[log_watch.Watch]:
    """Checks what every transaction of this process changes, and whether it is recorded in the change log."""
    watching = log_watch.Watch()
    with watching.on_all_engines():
        yield watching


@pytest.fixture(autouse=True)
def _nothing_unrecorded(watch: log_watch.Watch) -> Iterator[None]:
    """Fail the test if a write did not note a provider that it changed."""
    yield
    unrecorded = watch.unrecorded.copy()
    watch.unrecorded.clear()
    assert not unrecorded, '\n'.join(unrecorded)
