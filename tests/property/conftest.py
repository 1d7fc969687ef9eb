"""Fixtures of the tests on generated input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from placement import conf as placement_conf
from placement import deploy
from tests.property.hostile_client import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An attacked application with a database of its own."""
    database = tmp_path / 'placement.sqlite'
    overrides: dict[str, dict[str, Any]] = {
        'placement_database': {'connection': f'sqlite:///{database}', 'sync_on_startup': True},
        'api': {'auth_strategy': 'noauth2'},
    }
    app = deploy.loadapp(placement_conf.load(environ={}, overrides=overrides))
    world = World(app, str(database))
    yield world
    world.close()
    app.db.dispose()
