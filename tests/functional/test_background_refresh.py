"""The refresh of a cache that nobody searches."""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from placement.cache.background_refresh import BackgroundRefresh
from placement.cache.refresh import ProviderCache
from placement.db import change_log, change_log_slots, tables
from placement.db.api import Database
from placement.web.authentication import RequestContext
from tests.support import applications
from tests.support.cache_equality import assert_same
from tests.support.event_hooks import listening
from tests.support.objects import claim, create_provider
from tests.support.waiting import wait_until

SECONDS = 60


@pytest.fixture
def provider_cache(db: Database) -> ProviderCache:
    provider_cache = ProviderCache(db)
    provider_cache.up_to_date()
    return provider_cache


@pytest.fixture
def run() -> Iterator[Callable[[ProviderCache, float], BackgroundRefresh]]:
    """Starts a refresh in the background, which is stopped at the end."""
    with contextlib.ExitStack() as stack:

        def started(provider_cache: ProviderCache, interval: float) -> BackgroundRefresh:
            refresh = BackgroundRefresh(provider_cache, provider_cache._db.slots, interval)
            stack.callback(refresh.stop)
            refresh.start()
            return refresh

        yield started
    assert not running()


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == 'cache refresh']


def used(provider_cache: ProviderCache, uuid: str) -> int | None:
    """What the cache has, without a check."""
    assert provider_cache.state is not None
    provider = provider_cache.state.snapshot.find_provider(uuid)
    return provider.inventories['VCPU'].used if provider and 'VCPU' in provider.inventories else None


def test_a_cache_that_nobody_searches_is_loaded_and_refreshed(
    context: RequestContext, run: Callable[..., BackgroundRefresh]
) -> None:
    provider_cache = ProviderCache(context.db)
    run(provider_cache, 0.02)
    wait_until(lambda: provider_cache.is_loaded)
    hosts = [create_provider(context, VCPU=8) for _ in range(5)]
    wait_until(lambda: used(provider_cache, hosts[-1].uuid) == 0)
    for host in hosts:
        claim(context, {host.uuid: {'VCPU': 3}})
    wait_until(lambda: used(provider_cache, hosts[-1].uuid) == 3)
    assert provider_cache.state is not None
    assert_same(provider_cache.state.snapshot, ProviderCache(context.db).up_to_date())


def test_after_an_outage_the_cache_is_refreshed(
    context: RequestContext,
    run: Callable[..., BackgroundRefresh],
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = create_provider(context, VCPU=8)
    provider_cache = ProviderCache(context.db)
    provider_cache.up_to_date()
    with applications.database(tmp_path / 'missing' / 'placement.sqlite') as unavailable:
        provider_cache._db = unavailable
        run(provider_cache, 0.01)
        wait_until(lambda: 'The cache cannot be refreshed in the background' in caplog.text)
        # Further turns log nothing.
        time.sleep(0.1)
        assert caplog.text.count('in the background') == 1
        provider_cache._db = context.db
        claim(context, {host.uuid: {'VCPU': 1}})
        wait_until(lambda: used(provider_cache, host.uuid) == 1)


def test_a_search_does_not_wait_for_a_check_in_the_background(
    provider_cache: ProviderCache, db: Database, run: Callable[..., BackgroundRefresh]
) -> None:
    """A connection of the background thread that does not answer is not that of a search."""
    waiting, answered = threading.Event(), threading.Event()

    def wait(*_arguments: Any) -> None:
        if threading.current_thread() in running():
            waiting.set()
            assert answered.wait(SECONDS)

    with listening(db.engine, 'before_cursor_execute', wait):
        background = run(provider_cache, 0.01)
        assert waiting.wait(SECONDS)
        assert provider_cache.up_to_date() is provider_cache.up_to_date()
        started = time.monotonic()
        background.stop()
        assert time.monotonic() - started < 5
        answered.set()
        for thread in running():
            thread.join(SECONDS)


def test_no_write_waits_for_the_deletion_of_old_log_entries(
    provider_cache: ProviderCache,
    db: Database,
    run: Callable[..., BackgroundRefresh],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_log_slots, 'TRIM_INTERVAL_TRANSACTIONS', 5)
    monkeypatch.setattr(change_log_slots, 'KEPT_TRANSACTIONS', 20)
    deleting: set[str] = set()

    def watch(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith(f'DELETE FROM {tables.change_log.name}'):
            deleting.add(threading.current_thread().name)

    def entry_count() -> int:
        return db.fetch_all(sa.select(sa.func.count()).select_from(tables.change_log))[0][0]

    with listening(db.engine, 'before_cursor_execute', watch):
        run(provider_cache, 0.01)
        for _ in range(40):
            db.write(change_log.record_names)
        wait_until(lambda: entry_count() < 25)
    assert deleting == {'cache refresh'}


def test_nothing_runs_unless_it_is_started(app: Any, provider_cache: ProviderCache) -> None:
    """Not in an application in a process of its own, and not with an interval of 0."""
    assert app.background_refresh is not None
    BackgroundRefresh(provider_cache, app.db.slots, 0).start()
    assert not running()
