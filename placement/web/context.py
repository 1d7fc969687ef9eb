"""The context of a request: the caller's identity, the parts of the application, and the ids in log lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any
from wsgiref.types import WSGIApplication

from oslo_config import cfg
from oslo_context import context
from oslo_middleware import request_id

from placement import exception
from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import Snapshot
from placement.db.api import Database
from placement.search.budget import Limit, SearchBudget
from placement.search.request import CandidateRequest
from placement.web.policy import Enforcer

ENVIRON_KEY = 'placement.context'

#: Explains in one line why a search found nothing (``ops.explain.empty_searches.explain_empty``).
ExplainEmpty = Callable[[Snapshot, CandidateRequest, SearchBudget, Collection[Limit]], str]

#: Seconds between two lines of the log about the same empty search.
LOG_INTERVAL_SECONDS = 60.0
#: Maximum number of queries to remember. If there are more, the query with the oldest log line is forgotten.
_MAX_QUERIES = 1000


class EmptySearches:
    """Remembers which empty searches of one process were logged, and counts searches that were not.

    :param explain: returns the log line; None to log nothing.
    """

    def __init__(self, explain: ExplainEmpty | None) -> None:
        self.explain = explain
        self._lock = threading.Lock()
        #: By hash of the query, oldest line first: when it was last logged, and the searches not logged since then.
        self._logged: dict[int, tuple[float, int]] = {}

    def count_search(self, query: str) -> int | None:
        """Count a search that found nothing.

        :returns: None if the query was logged less than ``LOG_INTERVAL_SECONDS`` ago, so that this search must not be
            logged. Otherwise the number of searches with this query that were not logged since then.
        """
        now = time.monotonic()
        key = hash(query)
        with self._lock:
            logged_at, suppressed = self._logged.get(key, (-LOG_INTERVAL_SECONDS, 0))
            if now - logged_at < LOG_INTERVAL_SECONDS:
                self._logged[key] = logged_at, suppressed + 1
                return None
            # Removing the entry first makes the new one the last.
            self._logged.pop(key, None)
            self._logged[key] = now, 0
            if len(self._logged) > _MAX_QUERIES:
                del self._logged[next(iter(self._logged))]
            return suppressed


class RequestContext(context.RequestContext):
    """The identity of a caller, and the parts of the application that serve the request.

    :param policy: the policy that ``can`` enforces.
    :param provider_cache: the providers in memory, for searches.
    :param empty_searches: the empty searches that the application has logged.
    :param identity: arguments of ``oslo_context.context.RequestContext``: ``user_id``, ``project_id``, ``roles``, ...
    """

    def __init__(
        self,
        *,
        conf: cfg.ConfigOpts,
        db: Database,
        policy: Enforcer,
        provider_cache: ProviderCache,
        empty_searches: EmptySearches,
        **identity: Any,
    ) -> None:
        super().__init__(**identity)
        self.conf = conf
        self.db = db
        self.policy = policy
        self.provider_cache = provider_cache
        self.empty_searches = empty_searches

    def can(self, rule: str, target: Mapping[str, Any] | None = None) -> None:
        """Check that a policy rule allows the caller to perform an operation.

        :param rule: the name of the rule, such as ``placement:traits:list``.
        :param target: attributes of the object of the operation; by default the caller's own project and user.
        :raises PolicyNotAuthorized: the rule does not allow it.
        """
        if target is None:
            target = {'project_id': self.project_id, 'user_id': self.user_id}
        if not self.policy.allows(rule, target, self):
            raise exception.PolicyNotAuthorized(action=rule)


def with_request_id(application: WSGIApplication) -> WSGIApplication:
    """Give each request an id for its response, and a context with only ids for log lines.

    Without this, a thread would keep the context of the previous request, with its user.
    """

    def start(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        context.RequestContext(
            request_id=environ[request_id.ENV_REQUEST_ID], global_request_id=environ.get(request_id.GLOBAL_REQ_ID)
        )
        return application(environ, start_response)

    wrapped: WSGIApplication = request_id.RequestId(start)
    return wrapped
