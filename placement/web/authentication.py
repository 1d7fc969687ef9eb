"""Authentication: who is asking. Identity that a client claims in headers is never believed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import webob
import webob.dec
from oslo_config import cfg
from oslo_context import context
from oslo_log import log
from oslo_middleware import request_id
from webob import exc

from placement import exception
from placement.observability.metrics import Metrics
from placement.observability.spending import KEYSTONE
from placement.web import request_log, wsgi_wrapper
from placement.web.wsgi_types import WSGIApplication

LOG = log.getLogger(__name__)

#: Where the identity is left in the environment: keyword arguments of ``oslo_context.context.RequestContext``.
IDENTITY = 'placement.identity'

#: The section of the configuration that is keystonemiddleware's.
_GROUP = 'keystone_authtoken'

_UNAUTHORIZED = 'Authentication required'
_UNAVAILABLE = 'The identity service cannot be asked at the moment.'
#: Seconds after which a client may try again when Keystone was away.
_RETRY_AFTER = '5'


def is_root(environ: dict[str, Any]) -> bool:
    """Whether the request is for the root, which needs no authentication: ``/`` or nothing below a mount prefix."""
    return environ.get('PATH_INFO', '') in ('', '/')


class _Authentication:
    """What both strategies share: the root is open, a refusal is an error document and a line in the log."""

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # Until the identity is known, log lines of this thread shall carry this request's id, not the last one's.
        context.RequestContext(request_id=environ[request_id.ENV_REQUEST_ID])
        environ.pop(IDENTITY, None)
        if not is_root(environ):
            try:
                environ[IDENTITY] = self._identify(environ)
            except exc.HTTPError as error:
                return request_log.RequestLog(wsgi_wrapper.answer(error))(environ, start_response)
        return self._application(environ, start_response)

    def _identify(self, environ: dict[str, Any]) -> dict[str, Any]:
        """Return the identity of the caller.

        :raises HTTPError: what the caller is told instead.
        """
        raise NotImplementedError


class NoAuth(_Authentication):
    """WSGI middleware that takes the token for the caller's name: ``USER`` or ``USER:PROJECT``."""

    def _identify(self, environ: dict[str, Any]) -> dict[str, Any]:
        token = environ.get('HTTP_X_AUTH_TOKEN')
        if token is None:
            raise exc.HTTPUnauthorized(_UNAUTHORIZED)
        user, _colon, project = token.partition(':')
        return {'user_id': user, 'project_id': project or user, 'roles': ['admin'] if user == 'admin' else []}


class KeystoneAuth(_Authentication):
    """WSGI middleware that has keystonemiddleware validate the token.

    keystonemiddleware gets a request of its own to pass or to refuse. That keeps its answers apart from the service's,
    so that they can be given as error documents.

    :param metrics: is told how long that takes.
    :raises ConfigurationInvalid: at start, when [keystone_authtoken] makes no sense.
    """

    def __init__(self, application: WSGIApplication, conf: cfg.ConfigOpts, metrics: Metrics) -> None:
        # Imported here because it takes a tenth of a second, which noauth2 need not wait for.
        from keystoneauth1 import loading
        from keystonemiddleware import auth_token

        super().__init__(application)
        self._metrics = metrics
        loading.register_auth_conf_options(conf, _GROUP)
        section = conf[_GROUP].auth_section or _GROUP
        if not conf[section].auth_type:
            reason = (
                f'[{section}] is missing from the configuration, or has no auth_type, so no token can be validated.'
            )
            raise exception.ConfigurationInvalid(reason=reason)
        # Deferring the decision would turn a Keystone that is away into a token that is bad.
        try:
            self._validate = auth_token.AuthProtocol(
                _accept, {'oslo_config_config': conf, 'delay_auth_decision': False}
            )
        except cfg.NoSuchOptError as error:
            # Its message is not repeated: what stands behind the dollar sign may be a part of a password.
            reason = 'it refers to an option or a group that does not exist; a dollar sign is written $$.'
            raise exception.ConfigurationInvalid(reason=f'[keystone_authtoken] cannot be used: {reason}') from error
        except Exception as error:  # The libraries that take part have no exception in common.
            raise exception.ConfigurationInvalid(reason=f'[keystone_authtoken] cannot be used: {error}') from error

    def _identify(self, environ: dict[str, Any]) -> dict[str, Any]:
        try:
            with self._metrics.spending(KEYSTONE):
                verdict = webob.Request(environ).get_response(self._validate)
        except Exception as error:  # Whatever failed in asking Keystone, the caller had no part in it.
            LOG.error('The token could not be validated: %s: %s', type(error).__name__, ' '.join(str(error).split()))
            LOG.debug('It failed here', exc_info=True)
            raise exc.HTTPServiceUnavailable(_UNAVAILABLE, {'Retry-After': _RETRY_AFTER}) from error
        if verdict.status_code >= exc.HTTPInternalServerError.code:
            raise exc.HTTPServiceUnavailable(_UNAVAILABLE, {'Retry-After': _RETRY_AFTER})
        headers = [(name, value) for name, value in verdict.headerlist if name.lower() == 'www-authenticate']
        identity = context.RequestContext.from_environ(environ, overwrite=False, auth_token=None)
        if verdict.status_code != exc.HTTPNoContent.code or not identity.user_id:
            raise exc.HTTPUnauthorized(_UNAUTHORIZED, headers)
        return {name: getattr(identity, name) for name in _KEPT}


#: What is kept of a token: whatever a policy rule can ask for. Not the token itself, nor the catalog.
_KEPT = (
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


@webob.dec.wsgify
def _accept(_req: webob.Request) -> webob.Response:
    return webob.Response(status=exc.HTTPNoContent.code)
