"""Applications and databases in the process of the test, opened as a process of the service opens them."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from placement import conf as placement_conf
from placement import deploy
from placement.conf.options import MAX_MICROVERSIONS
from placement.db.api import Database
from placement.web.context import RequestContext

#: The newest microversion, and the options ``[placement]`` of a service that serves every one.
NEWEST_MICROVERSION = MAX_MICROVERSIONS[-1]
EVERY_MICROVERSION = {'max_microversion': NEWEST_MICROVERSION}

#: The URL of a database, or a SQLite file.
Place = str | sa.URL | pathlib.Path


def options(place: Place, **more: Mapping[str, Any]) -> cfg.ConfigOpts:
    """Options for a database that is synchronised at the start, and ``noauth2``; without file or environment.

    :param more: options by group, which come first.
    """
    if isinstance(place, sa.URL):
        connection = place.render_as_string(hide_password=False)
    else:
        connection = f'sqlite:///{place}' if isinstance(place, pathlib.Path) else place
    overrides: dict[str, dict[str, Any]] = {
        'placement_database': {'connection': connection, 'sync_on_startup': True},
        'api': {'auth_strategy': 'noauth2'},
    }
    for group, values in more.items():
        overrides.setdefault(group, {}).update(values)
    return placement_conf.load(environ={}, config_files=[], overrides=overrides)


@contextlib.contextmanager
def application(place: Place, **more: Mapping[str, Any]) -> Iterator[deploy.Application]:
    """The whole WSGI application on a database, closed at the end; takes what ``options`` takes."""
    made = deploy.loadapp(options(place, **more))
    try:
        yield made
    finally:
        made.db.dispose()


@contextlib.contextmanager
def database(place: Place, **more: Any) -> Iterator[Database]:
    """A database, not synchronised, closed at the end.

    :param more: options of ``[placement_database]``.
    """
    made = Database(options(place, placement_database=more))
    try:
        yield made
    finally:
        made.dispose()


def administrator(db: Database, conf: cfg.ConfigOpts | None = None) -> RequestContext:
    """The context of a request that an administrator makes to a process with this database.

    :param conf: the options of that process; None for the defaults.
    """
    conf = conf or options(db.engine.url)
    return RequestContext(conf=conf, db=db, roles=['admin'], user_id='admin', project_id='admin')
