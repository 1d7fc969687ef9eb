"""For every test: a watch over the log of changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import log_watch


@pytest.fixture(scope='session', autouse=True)
def watch() -> Iterator[log_watch.Watch]:
    """Sees what every transaction of this process changes, and whether it is noted in the log of changes."""
    watching = log_watch.Watch()
    with watching.on_all_engines():
        yield watching


@pytest.fixture(autouse=True)
def _nothing_forgotten(watch: log_watch.Watch) -> Iterator[None]:
    """Fail the test in which a write forgot to note a provider that it changed."""
    yield
    forgotten = watch.forgotten.copy()
    watch.forgotten.clear()
    assert not forgotten, '\n'.join(forgotten)
