"""Authentication: identifies the caller, and makes the context of the request.

With Keystone, identity headers from a client are never trusted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from wsgiref.types import WSGIApplication

import webob
from oslo_config import cfg
from oslo_context import context
from oslo_log import log
from oslo_middleware import request_id
from webob import exc

from placement import exception
from placement.cache.refresh import ProviderCache
from placement.db.api import Database
from placement.observability import KEYSTONE
from placement.search.selection import AllocationCandidates
from placement.web import error_responses, request_log
from placement.web.keystone import GROUP, check_token_cache
from placement.web.policy import Enforcer

if TYPE_CHECKING:
    from placement.observability.metrics import Metrics

LOG = log.getLogger(__name__)

#: Key of the WSGI environment with the ``RequestContext``.
ENVIRON_KEY = 'placement.context'

_UNAUTHORIZED = 'Authentication required'
_UNAVAILABLE = 'The identity service is not available at the moment.'
#: Seconds after which a client may retry when Keystone is unavailable.
_RETRY_AFTER = '5'

#: The application that keystonemiddleware wraps. Its response means that the token is valid.
_ACCEPTED = webob.Response(status=exc.HTTPNoContent.code)


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


class _SharedTokenCache:
    """The token cache of keystonemiddleware on memcached. It checks whether memcached keeps the tokens.

    If memcached is unavailable, Keystone validates the token of every request, and keystonemiddleware logs nothing.
    """

    def __init__(self, cache: Any, servers: Sequence[str], metrics: Metrics) -> None:
        self._cache = cache
        self._servers = ', '.join(servers)
        self._metrics = metrics
        self._is_working = True

    def initialize(self, environ: dict[str, Any]) -> None:
        """Connect to memcached."""
        self._cache.initialize(environ)

    def get(self, token: str) -> Any:
        """Return Keystone's data about a token; None if it is not in the cache."""
        return self._cache.get(token)

    def set(self, token: str, data: Any) -> None:
        """Store Keystone's data about a token, and read it again."""
        self._cache.set(token, data)
        was_working, self._is_working = self._is_working, self._cache.get(token) is not None
        if not self._is_working:
            self._metrics.tokens_not_cached.inc()
        if was_working and not self._is_working:
            LOG.warning('memcached (%s) does not keep tokens, so Keystone validates each of them again', self._servers)
        elif self._is_working and not was_working:
            LOG.info('memcached keeps tokens again')


class Authentication:
    """WSGI middleware that identifies the caller, and puts its context into ``environ[ENVIRON_KEY]``.

    The version document needs no token. Rejected requests are answered here.

    :param make_context: makes the context from the ids of the request and from the identity.
    :param identify: returns the identity of the caller, as arguments of ``oslo_context.context.RequestContext``. It
        raises HTTPError if the caller is not authenticated, or Keystone is unavailable.
    """

    def __init__(
        self,
        application: WSGIApplication,
        make_context: Callable[..., RequestContext],
        identify: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        self._application = application
        self._make_context = make_context
        self._identify = identify

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        identity: dict[str, Any] = {}
        # Below a mount prefix, the path of the version document may be empty.
        if environ.get('PATH_INFO', '') not in ('', '/'):
            try:
                identity = self._identify(environ)
            except exc.HTTPError as error:
                return error_responses.respond(error, environ, start_response)
        environ[ENVIRON_KEY] = self._make_context(
            request_id=environ[request_id.ENV_REQUEST_ID],
            global_request_id=environ.get(request_id.GLOBAL_REQ_ID),
            **identity,
        )
        return self._application(environ, start_response)


def trust_token(environ: dict[str, Any]) -> dict[str, Any]:
    """Take the token, ``USER`` or ``USER:PROJECT``, as the identity without validation (noauth2).

    ``X-Roles`` and ``X-Project-Id`` give the caller other roles and another project, and ``OpenStack-System-Scope``
    makes it system-scoped, so that policy rules can be tested (api-ref/rules.md#authentication).
    """
    token = environ.get('HTTP_X_AUTH_TOKEN')
    if token is None:
        raise exc.HTTPUnauthorized(_UNAUTHORIZED)
    user, _colon, project = token.partition(':')
    roles = ['admin'] if user == 'admin' else []
    if 'HTTP_X_ROLES' in environ:
        roles = [role.strip() for role in environ['HTTP_X_ROLES'].split(',') if role.strip()]
    if environ.get('HTTP_OPENSTACK_SYSTEM_SCOPE'):
        # A token of Keystone has one scope, so a system-scoped token has no project.
        scope = {'project_id': None, 'system_scope': environ['HTTP_OPENSTACK_SYSTEM_SCOPE']}
    else:
        scope = {'project_id': environ.get('HTTP_X_PROJECT_ID') or project or user}
    return {'user_id': user, 'roles': roles, **scope}


class TokenValidator:
    """Identifies the caller by a token that keystonemiddleware validates.

    keystonemiddleware does not wrap the service, but only ``_ACCEPTED``. So its response only tells whether the token
    is valid, and clients get an error document like any other.

    :param metrics: measures the time of the validation.
    :raises ConfigurationInvalid: [keystone_authtoken] is missing or invalid.
    """

    def __init__(self, conf: cfg.ConfigOpts, metrics: Metrics) -> None:
        # This import takes a tenth of a second, and noauth2 does not need it.
        from keystoneauth1 import loading
        from keystonemiddleware import auth_token

        self._metrics = metrics
        loading.register_auth_conf_options(conf, GROUP)
        name = conf[GROUP].auth_section or GROUP
        if not conf[name].auth_type:
            reason = f'[{name}] is missing from the configuration, or has no auth_type, so no token can be validated.'
            raise exception.ConfigurationInvalid(reason=reason)
        # With delay_auth_decision, a token would count as invalid if Keystone is unavailable.
        try:
            self._validate = auth_token.AuthProtocol(
                _ACCEPTED, {'oslo_config_config': conf, 'delay_auth_decision': False}
            )
        except cfg.NoSuchOptError as error:
            # The error does not contain the name after the dollar sign, because that may be part of a password.
            reason = 'a value refers to an option or a group that does not exist; write a dollar sign as $$.'
            raise exception.ConfigurationInvalid(reason=f'[keystone_authtoken] cannot be used: {reason}') from error
        except Exception as error:  # The libraries have no common base exception.
            raise exception.ConfigurationInvalid(reason=f'[keystone_authtoken] cannot be used: {error}') from error
        check_token_cache(conf)
        section = conf[GROUP]
        if section.memcached_servers and section.token_cache_time >= 0:
            # There is no public name for the token cache. This one was read in keystonemiddleware 10.9.1 to 13.0.1.
            cache = self._validate._token_cache  # noqa: SLF001
            self._validate._token_cache = _SharedTokenCache(cache, section.memcached_servers, metrics)  # noqa: SLF001

    def __call__(self, environ: dict[str, Any]) -> dict[str, Any]:
        """Return the identity in the token.

        :raises HTTPError: the token is invalid, or Keystone is unavailable.
        """
        started = time.perf_counter()
        try:
            with self._metrics.phase(KEYSTONE):
                response = webob.Request(environ).get_response(self._validate)
        except Exception as error:  # No failure of the request to Keystone is the caller's fault.
            LOG.error('The token could not be validated: %s: %s', type(error).__name__, ' '.join(str(error).split()))
            LOG.debug('Traceback of the failed validation', exc_info=True)
            raise exc.HTTPServiceUnavailable(_UNAVAILABLE, {'Retry-After': _RETRY_AFTER}) from error
        finally:
            environ[request_log.KEYSTONE_SECONDS_KEY] = time.perf_counter() - started
        if response.status_code >= exc.HTTPInternalServerError.code:
            raise exc.HTTPServiceUnavailable(_UNAVAILABLE, {'Retry-After': _RETRY_AFTER})
        headers = [(name, value) for name, value in response.headerlist if name.lower() == 'www-authenticate']
        identity = context.RequestContext.from_environ(environ, overwrite=False, auth_token=None)
        if response.status_code != exc.HTTPNoContent.code or not identity.user_id:
            raise exc.HTTPUnauthorized(_UNAUTHORIZED, headers)
        return {name: getattr(identity, name) for name in _IDENTITY_FIELDS}


#: The attributes of a token that policy rules can refer to. They contain neither the token nor the service catalog.
_IDENTITY_FIELDS = (
    'user_id',
    'user_domain_id',
    'project_id',
    'project_domain_id',
    'domain_id',
    'system_scope',
    'roles',
    'is_admin_project',
    'service_user_id',
    'service_user_domain_id',
    'service_project_id',
    'service_project_domain_id',
    'service_roles',
)
