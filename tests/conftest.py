"""For every test: a check that writes note their changes in the log, and the division of a run between processes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support import log_watch, opt_in

# Some hundred processes are started: each would compile all modules of ours again if none kept what it compiled.
os.environ.pop('PYTHONDONTWRITEBYTECODE', None)
sys.dont_write_bytecode = False

# What a shell starts in the background ignores SIGINT, and so would every command that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: The largest number of examples for generated tests: ``pytest --hypothesis-profile thorough``.
settings.register_profile('thorough')


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which tests do not run."""
    missing = sorted(opt_in.NEEDS - opt_in.requested(config))
    return f'tests that need {", ".join(missing)} are not requested (pytest -m NAME)' if missing else None


def pytest_xdist_auto_num_workers() -> int:
    """The number of processes of ``-n auto``. Many tests wait for servers, and some start processes of their own."""
    return min(max(os.cpu_count() or 2, 2), 4)


# After the hooks in directories of tests that need programs, which mark them.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that need what was not requested.

    Tests that share a server, a database or earlier requests run in one process; needs ``--dist loadgroup``.
    """
    opt_in.deselect_unrequested(config, items)
    for item in items:
        assert isinstance(item, pytest.Function)
        shared = [one for one in item._fixtureinfo.name2fixturedefs.values() if one[-1].scope == 'module']
        values = item.callspec.params if hasattr(item, 'callspec') else {}
        if shared:
            parts = [getattr(values[name], 'name', '') for name in ('suite', 'setting') if name in values]
            item.add_marker(pytest.mark.xdist_group('-'.join([item.path.stem, *parts])))


@pytest.fixture(scope='session', autouse=True)
def watch() -> Iterator[log_watch.Watch]:
    """Checks what every transaction of this process changes, and whether it is recorded in the change log."""
    watching = log_watch.Watch()
    with watching.on_all_engines():
        yield watching


@pytest.fixture(autouse=True)
def _nothing_forgotten(watch: log_watch.Watch) -> Iterator[None]:
    """Fail the test if a write did not note a provider that it changed."""
    yield
    forgotten = watch.forgotten.copy()
    watch.forgotten.clear()
    assert not forgotten, '\n'.join(forgotten)
