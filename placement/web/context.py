"""The context of a request: the caller's identity, the parts of the application, and the ids in log lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.types import WSGIApplication

from oslo_config import cfg
from oslo_context import context
from oslo_middleware import request_id

from placement.cache.refresh import ProviderCache
from placement.db.api import Database
from placement.search.selection import AllocationCandidates
from placement.web.policy import Enforcer

ENVIRON_KEY = 'placement.context'


class RequestContext(context.RequestContext):
    """The identity of a caller, and the parts of the application that serve the request.

    :param policy: the policy that operations enforce (``operation.RequiresPolicy``).
    :param provider_cache: the providers in memory, for searches.
    :param explain_empty: lets the log explain why a search found nothing, for a quoted query string and its result.
    :param identity: arguments of ``oslo_context.context.RequestContext``: ``user_id``, ``project_id``, ``roles``, ...
    """

    def __init__(
        self,
        *,
        conf: cfg.ConfigOpts,
        db: Database,
        policy: Enforcer,
        provider_cache: ProviderCache,
        explain_empty: Callable[[str, AllocationCandidates], None],
        **identity: Any,
    ) -> None:
        super().__init__(**identity)
        self.conf = conf
        self.db = db
        self.policy = policy
        self.provider_cache = provider_cache
        self.explain_empty = explain_empty


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
