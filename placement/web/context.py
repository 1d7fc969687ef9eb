"""The context of a request: the caller's identity, the application's parts, and the ids that log lines carry."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from oslo_config import cfg
from oslo_context import context
from oslo_middleware import request_id

from placement import exception
from placement.cache.refresh import ProviderCache
from placement.db.api import Database
from placement.web import authentication, policy
from placement.web.wsgi import WSGIApplication

ENVIRON_KEY = 'placement.context'
#: Seconds between two lines of the log about the same empty search.
LOG_INTERVAL_SECONDS = 60.0
#: Maximum number of queries that are remembered. When there are more, the query that was logged longest ago is removed.
_MAX_QUERIES = 1000


class EmptySearches:
    """Remembers which empty searches of one process were logged, and counts those that were not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By query, oldest line first: when it was last logged, and how many searches were not logged since.
        self._logged: dict[str, tuple[float, int]] = {}

    def count(self, query: str) -> int | None:
        """Count a search that found nothing.

        :returns: None when the query was logged less than ``LOG_INTERVAL_SECONDS`` ago, so that this search shall not
            be logged; else how many searches with this query were not logged since the last line.
        """
        now = time.monotonic()
        with self._lock:
            logged_at, suppressed = self._logged.get(query, (-LOG_INTERVAL_SECONDS, 0))
            if now - logged_at < LOG_INTERVAL_SECONDS:
                self._logged[query] = logged_at, suppressed + 1
                return None
            # Removed first, so that it becomes the last entry.
            self._logged.pop(query, None)
            self._logged[query] = now, 0
            if len(self._logged) > _MAX_QUERIES:
                del self._logged[next(iter(self._logged))]
            return suppressed


class RequestContext(context.RequestContext):
    """The identity of a caller, and the parts of the application that serve the request.

    :param conf: the application's configuration.
    :param db: the application's database.
    :param enforcer: the application's policy; None makes one from ``conf`` when it is first needed.
    :param provider_cache: the application's cache; None creates one from ``db`` when it is first needed.
    :param empty_searches: which empty searches the application has logged; None makes an empty record.
    :param identity: arguments of ``oslo_context.context.RequestContext``: ``user_id``, ``project_id``, ``roles``, ...
    """

    def __init__(
        self,
        *,
        conf: cfg.ConfigOpts,
        db: Database,
        enforcer: policy.Enforcer | None = None,
        provider_cache: ProviderCache | None = None,
        empty_searches: EmptySearches | None = None,
        **identity: Any,
    ) -> None:
        super().__init__(**identity)
        self.conf = conf
        self.db = db
        self._enforcer = enforcer
        self._provider_cache = provider_cache
        self.empty_searches = empty_searches or EmptySearches()

    @property
    def provider_cache(self) -> ProviderCache:
        """The providers in memory, from which searches are answered."""
        if self._provider_cache is None:
            self._provider_cache = ProviderCache(self.db)
        return self._provider_cache

    @property
    def policy(self) -> policy.Enforcer:
        """The policy that ``can`` enforces."""
        if self._enforcer is None:
            self._enforcer = policy.Enforcer(self.conf)
        return self._enforcer

    def can(self, rule: str, target: Mapping[str, Any] | None = None) -> None:
        """Check that a policy rule allows the caller an operation.

        :param rule: name of the rule, such as ``placement:traits:list``.
        :param target: attributes of the object of the operation; by default the caller's own project and user.
        :raises PolicyNotAuthorized: the rule does not allow it.
        """
        if target is None:
            target = {'project_id': self.project_id, 'user_id': self.user_id}
        if not self.policy.allows(rule, target, self):
            raise exception.PolicyNotAuthorized(action=rule)


class ContextMiddleware:
    """WSGI middleware that makes the context from the identity that authentication established."""

    def __init__(
        self,
        application: WSGIApplication,
        conf: cfg.ConfigOpts,
        db: Database,
        enforcer: policy.Enforcer,
        provider_cache: ProviderCache,
    ) -> None:
        self._application = application
        self._conf = conf
        self._db = db
        self._enforcer = enforcer
        self._provider_cache = provider_cache
        self._empty_searches = EmptySearches()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Put the context into ``environ['placement.context']`` and pass the request on."""
        environ[ENVIRON_KEY] = RequestContext(
            conf=self._conf,
            db=self._db,
            enforcer=self._enforcer,
            provider_cache=self._provider_cache,
            empty_searches=self._empty_searches,
            request_id=environ[request_id.ENV_REQUEST_ID],
            global_request_id=environ.get(request_id.GLOBAL_REQ_ID),
            **environ.get(authentication.IDENTITY, {}),
        )
        return self._application(environ, start_response)
