"""After random writes, a cache that was refreshed step by step equals one that is loaded from the tables."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from placement import deploy
from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import Snapshot
from placement.cmd import manage, manage_audit
from placement.db import change_log, errors
from tests.support import corruption
from tests.support.applications import NEWEST_MICROVERSION
from tests.support.cache_equality import assert_same, compare
from tests.support.cache_histories import History, Universe, sender
from tests.support.fixtures import PointCommandsAt

STEPS = 150


@pytest.fixture
def conf(conf: cfg.ConfigOpts) -> cfg.ConfigOpts:
    """The options of a service that serves every microversion."""
    conf.set_override('max_microversion', NEWEST_MICROVERSION, 'placement')
    return conf


@pytest.fixture
def other(conf: cfg.ConfigOpts, app: Any) -> Iterator[Any]:
    """Another application on the same database."""
    application = deploy.loadapp(conf)
    yield application
    application.db.dispose()


class Divided(ProviderCache):
    """A cache with small partitions, so that few providers make many of them."""

    def _load(self, tx: sa.Connection) -> Any:
        loaded = super()._load(tx)
        state = Snapshot.build(loaded.snapshot.names, loaded.snapshot.providers(), size=2)
        return dataclasses.replace(loaded, snapshot=state)


@pytest.mark.parametrize('seed', range(4))
def test_caches_follow_random_histories(app: Any, other: Any, seed: int) -> None:
    """Two applications write and are searched at times; both caches and a third one are always right."""
    choose = random.Random(seed)
    universe = Universe(seed)
    histories = [History(sender(application), universe, f'{seed}-{application is app}') for application in (app, other)]
    histories[0].populate()
    idle = Divided(app.db)
    idle.up_to_date()
    for _ in range(STEPS):
        choose.choice(histories).step()
        if choose.random() < 0.2:
            compare(app.provider_cache, app.db)
        if choose.random() < 0.05:
            compare(other.provider_cache, other.db)
        if choose.random() < 0.02:
            compare(idle, app.db)
    for provider_cache in (app.provider_cache, other.provider_cache, idle):
        compare(provider_cache, app.db)
    assert [history.errors for history in histories] == [[], []]


def test_a_snapshot_stays_as_it_was_when_others_are_made_of_it(app: Any) -> None:
    """A search may still read it, before or after another one reads the later snapshot."""
    history = History(sender(app), Universe(0), 0)
    history.populate()
    for _ in range(30):
        snapshot, same_time = app.provider_cache.up_to_date(), ProviderCache(app.db).up_to_date()
        for _ in range(4):
            history.step()
        later = app.provider_cache.up_to_date()
        assert_same(snapshot, same_time)
        list(later.providers())
        assert_same(snapshot, same_time)


@pytest.mark.parametrize('name', [name for name, planted in corruption.ALL.items() if planted.after])
def test_repairs_are_logged(app: Any, conf: cfg.ConfigOpts, point_commands_at: PointCommandsAt, name: str) -> None:
    url = point_commands_at(conf.placement_database.connection)
    app.provider_cache.up_to_date()
    corruption.plant(url, *corruption.SOUND, *corruption.ALL[name].statements)
    app.db.write(change_log.record_reload)
    # An inventory without its class cannot be loaded.
    with contextlib.suppress(errors.IncompleteDatabase):
        app.provider_cache.up_to_date()
    assert manage.main(['audit', '--repair']) == manage_audit.REPAIRED
    compare(app.provider_cache, app.db)
