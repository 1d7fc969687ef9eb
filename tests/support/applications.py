"""Applications and databases in the process of the test, opened as a process of the service opens them."""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from placement import conf as placement_conf
from placement import deploy, policies
from placement.cache.refresh import ProviderCache
from placement.conf.options import MICROVERSION_CHOICES
from placement.db.api import Database
from placement.web.authentication import RequestContext
from placement.web.microversion import parse_version_string
from placement.web.policy import Enforcer

#: The newest microversion, and the options ``[placement]`` of a service that serves every one.
NEWEST_MICROVERSION = MICROVERSION_CHOICES[-1]
EVERY_MICROVERSION = {'max_microversion': NEWEST_MICROVERSION}
#: The same microversion as the parser of searches takes it.
NEWEST_VERSION = parse_version_string(NEWEST_MICROVERSION)

#: The URL of a database, or a SQLite file.
Place = str | sa.URL | pathlib.Path


def options(place: Place, **sections: Mapping[str, Any]) -> cfg.ConfigOpts:
    """Options for a database that is synchronized at the start, and ``noauth2``; without file or environment.

    :param sections: options by group, which replace those.
    """
    if isinstance(place, sa.URL):
        connection = place.render_as_string(hide_password=False)
    else:
        connection = f'sqlite:///{place}' if isinstance(place, pathlib.Path) else place
    overrides: dict[str, dict[str, Any]] = {
        'placement_database': {'connection': connection, 'sync_on_startup': True},
        'api': {'auth_strategy': 'noauth2'},
    }
    for group, values in sections.items():
        overrides.setdefault(group, {}).update(values)
    return placement_conf.load(config_files=[], overrides=overrides)


@contextlib.contextmanager
def application(place: Place, **sections: Mapping[str, Any]) -> Iterator[deploy.Application]:
    """The whole WSGI application on a database, closed at the end; takes what ``options`` takes."""
    app = deploy.loadapp(options(place, **sections))
    try:
        yield app
    finally:
        app.db.dispose()


@contextlib.contextmanager
def database(place: Place, **settings: Any) -> Iterator[Database]:
    """A database, not synchronized, closed at the end.

    :param settings: options of ``[placement_database]``.
    """
    db = Database(options(place, placement_database=settings))
    try:
        yield db
    finally:
        db.dispose()


@functools.cache
def _defaults() -> tuple[cfg.ConfigOpts, Enforcer]:
    """The default options and policy, which take longer to make than most requests."""
    conf = options('sqlite://')
    return conf, Enforcer(conf, policies.list_rules())


def administrator(db: Database, conf: cfg.ConfigOpts | None = None) -> RequestContext:
    """The context of a request that an administrator makes to a process with this database, and with default policy.

    :param conf: the options of that process; None for the defaults.
    """
    default_conf, policy = _defaults()
    return RequestContext(
        conf=conf or default_conf,
        db=db,
        policy=policy,
        provider_cache=ProviderCache(db),
        explain_empty=lambda _query, _candidates: None,
        roles=['admin'],
        user_id='admin',
        project_id='admin',
    )
