"""The application: the pipeline that every request passes, in one list."""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from wsgiref.types import WSGIApplication

import sqlalchemy as sa
from oslo_config import cfg
from oslo_db import exception as db_exc
from oslo_log import log
from oslo_middleware import base, cors, http_proxy_to_wsgi

from placement import conf as configuration
from placement import exception, handler, policies
from placement.cache.background_refresh import BackgroundRefresh
from placement.cache.refresh import CacheState, ProviderCache
from placement.conf import unknown
from placement.db import errors, migration
from placement.db.api import Database
from placement.db.health import TimedCheck
from placement.ops.empty_searches import EmptySearches
from placement.search.budget import Limit
from placement.web import authentication, error_responses, health_check, http, operation, policy, request_log

LOG = log.getLogger(__name__)

Middleware = Callable[[WSGIApplication], WSGIApplication]


class State(NamedTuple):
    """What an application of a forked process takes over from its parent."""

    #: None if the cache could not be loaded.
    cache: CacheState | None
    policy: policy.LoadedPolicy


class Application(request_log.RequestIds):
    """The WSGI application of the service, with the database and the provider cache that it uses.

    It is itself the outermost middleware.

    :param application: the next middleware.
    :param db: the database; ``db.dispose()`` closes its connections.
    :param provider_cache: answers searches.
    :param enforcer: enforces the policy.
    :param refresh_interval: the interval of ``background_refresh``, which a process that serves may start.
    """

    def __init__(
        self,
        application: WSGIApplication,
        db: Database,
        provider_cache: ProviderCache,
        enforcer: policy.Enforcer,
        refresh_interval: float,
    ) -> None:
        super().__init__(application)
        self._enforcer = enforcer
        self.db = db
        self.provider_cache = provider_cache
        self.background_refresh = BackgroundRefresh(provider_cache, db.slots, refresh_interval)

    @property
    def state(self) -> State:
        """The state for the applications of forked processes."""
        return State(self.provider_cache.state, self._enforcer.loaded)


def loadapp(conf: cfg.ConfigOpts, state: State | None = None) -> Application:
    """Build an application. Several with different configurations can live in one process.

    :param conf: made by ``placement.conf.load``.
    :param state: of an application with the same configuration, in the process from which this one was forked.
    :raises ConfigurationInvalid: the configuration or the policy file is invalid, or [placement_database]
        sync_on_startup is set and the schema cannot be brought up to date.
    :raises DatabaseUnavailable: sync_on_startup is set and the database cannot be reached.
    """
    configuration.register_middleware(conf)
    for line in unknown.list_unknown(conf):
        configuration.log_once(LOG, log.WARNING, f'This service does not have the option {line}')
    db = Database(conf)
    enforcer = policy.Enforcer(conf, policies.list_rules(), state and state.policy)
    provider_cache = ProviderCache(db, state=state and state.cache)
    declarations = handler.declarations(conf.placement.max_microversion)
    operations = [(path, method) for path, methods in declarations.items() for method in methods]
    db.metrics.initialize(operations, [limit.value for limit in Limit])
    application: WSGIApplication = operation.Dispatcher(declarations)
    for middleware in reversed(_pipeline(conf, db, enforcer, provider_cache)):
        application = middleware(application)
    # After everything else, so that an invalid configuration is reported before a connection to the database is made.
    if conf.placement_database.sync_on_startup:
        _sync(db)
    provider_cache.load()
    if provider_cache.is_loaded:
        _check_database(db)
    return Application(application, db, provider_cache, enforcer, conf.placement.cache_refresh_interval)


def _check_database(db: Database) -> None:
    """Insert the standard names that an upgrade of os-resource-classes or os-traits has added.

    Log once if that is impossible, or if the schema belongs to another release: the service often works all the same.
    """
    try:
        migration.check_revision(db.engine)
        db.insert_standard_names()
    except migration.WrongSchema as error:
        configuration.log_once(LOG, log.WARNING, str(error))
    except exception.DatabaseReadOnly:
        # placement-status upgrade check has the finding.
        LOG.warning('The database is read-only, so the standard names that it lacks were not inserted.')
    except (*errors.DATABASE_ERRORS, exception.ConcurrentProviderUpdate):
        # The next request reports it.
        pass


def _sync(db: Database) -> None:
    try:
        db.sync()
    except Exception as error:
        db.dispose()
        if not isinstance(error, (sa.exc.SQLAlchemyError, db_exc.DBError)):
            raise
        reason = str(error.__cause__ or error).splitlines()[0]
        raise exception.ConfigurationInvalid(reason=f'The database cannot be used: {reason}') from error


def _pipeline(
    conf: cfg.ConfigOpts, db: Database, enforcer: policy.Enforcer, provider_cache: ProviderCache
) -> list[Middleware]:
    """Return the middleware between the ``Application`` and the dispatcher, outermost first.

    The order decides which of several errors is reported (api-ref/rules.md#the-order-of-checks).
    """
    database_check = TimedCheck(db, functools.partial(health_check.database_check, provider_cache=provider_cache))
    make_context = functools.partial(
        authentication.RequestContext,
        conf=conf,
        db=db,
        policy=enforcer,
        provider_cache=provider_cache,
        explain_empty=EmptySearches(conf, db.metrics).add,
    )
    uses_keystone = conf.api.auth_strategy == 'keystone'
    identify = authentication.TokenValidator(conf, db.metrics) if uses_keystone else authentication.trust_token
    pipeline: list[Middleware | None] = [
        functools.partial(
            health_check.HealthCheck,
            path=conf.healthcheck.path,
            check=database_check.problem,
            is_read_only=lambda: db.availability.is_read_only,
        )
        if conf.healthcheck.path
        else None,
        functools.partial(request_log.RequestMetrics, metrics=db.metrics) if conf.metrics.bind else None,
        _profiler_middleware(conf, db),
        functools.partial(http_proxy_to_wsgi.HTTPProxyToWSGI, conf=conf)
        if conf.oslo_middleware.enable_proxy_headers_parsing
        else None,
        request_log.RequestLog,
        functools.partial(cors.CORS, conf=conf) if conf.cors.allowed_origin else None,
        _Preflight if conf.cors.allowed_origin else None,
        functools.partial(authentication.Authentication, make_context=make_context, identify=identify),
        functools.partial(error_responses.FaultHandler, newest=conf.placement.max_microversion),
        functools.partial(http.BodyHeaders, max_size=conf.api.max_request_body_size),
    ]
    return [middleware for middleware in pipeline if middleware is not None]


def _profiler_middleware(conf: cfg.ConfigOpts, db: Database) -> Middleware | None:
    """Set up osprofiler if it is enabled. Return its middleware, which traces requests that are signed with a key."""
    if 'profiler' not in conf or not conf.profiler.enabled:
        return None
    import osprofiler.initializer
    import osprofiler.notifier
    import osprofiler.sqlalchemy
    import osprofiler.web

    # A process that was forked makes connections of its own.
    osprofiler.notifier.clear_notifier_cache()
    try:
        osprofiler.initializer.init_from_conf(
            conf, {}, project='placement', service='placement', host=socket.gethostname()
        )
    except Exception as error:  # Each driver of osprofiler raises its own exceptions.
        LOG.warning('Requests are not traced, because [profiler] connection_string cannot be used: %s', error)
        return None
    notify = osprofiler.notifier.get()

    def notify_without_failing(info: dict[str, Any]) -> None:
        try:
            notify(info)
        except Exception as error:  # A request does not fail because its trace cannot be sent.
            LOG.warning('A part of a trace could not be sent: %s', error)

    osprofiler.notifier.set(notify_without_failing)
    if conf.profiler.trace_sqlalchemy:
        osprofiler.sqlalchemy.add_tracing(sa, db.engine, 'db')
    return osprofiler.web.WsgiMiddleware.factory(None, **dict(conf.profiler))


class _Preflight:
    """WSGI middleware between CORS and authentication: answers OPTIONS, which needs no token. CORS adds its headers."""

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ['REQUEST_METHOD'] == 'OPTIONS':
            return base.NoContentTypeResponse()(environ, start_response)
        return self._application(environ, start_response)
