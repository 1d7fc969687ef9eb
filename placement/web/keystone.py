"""Checks whether Keystone can validate tokens for the service: when it starts, and for ``placement-status``."""

from __future__ import annotations

import importlib
import logging
import warnings

from oslo_config import cfg
from oslo_log import log

from placement import conf as configuration
from placement import exception

#: The section of the configuration that keystonemiddleware reads.
GROUP = 'keystone_authtoken'

#: How long a check waits for Keystone, unless http_connect_timeout is set.
_CHECK_SECONDS = 10

_NO_AUTH_TYPE = '[{}] has no auth_type. The service does not start without it.'


def check_token_cache(conf: cfg.ConfigOpts) -> None:
    """Make sure that the packages for sharing validated tokens over memcached are installed.

    keystonemiddleware imports them when it validates a token. Without them, every request would fail with 503.

    :raises ConfigurationInvalid: [keystone_authtoken] memcached_servers needs a package that is not installed.
    """
    if not configuration.is_group_set(conf, GROUP):
        return
    from keystonemiddleware import opts as keystone_opts

    for group, options in keystone_opts.list_auth_token_opts():
        conf.register_opts(options, group=group)
    section = conf[GROUP]
    if not section.memcached_servers:
        return
    # Until the oldest supported OpenStack release is 2026.1: keystonemiddleware 10.9 has no TLS here.
    binary = section.memcache_sasl_enabled or getattr(section, 'memcache_tls_enabled', False)
    needed = {'bmemcached': 'python-binary-memcached'} if binary else {'memcache': 'python-memcached'}
    if section.memcache_security_strategy == 'ENCRYPT':
        needed['cryptography'] = 'cryptography'
    try:
        for module in needed:
            importlib.import_module(module)
    except ImportError as error:
        missing = needed[module]
        reason = f'[{GROUP}] memcached_servers is set, but needs a package that is missing: pip install {missing}'
        raise exception.ConfigurationInvalid(reason=reason) from error
    # If eventlet is installed, oslo.cache imports it to find out whether it is in use.
    warnings.filterwarnings('ignore', r'\s*Eventlet is deprecated')


def ask_keystone(
    conf: cfg.ConfigOpts, logger: logging.LoggerAdapter[logging.Logger], timeout: float | None = None
) -> bool:
    """Return whether Keystone accepts the user of the service. If not, log an error, or a warning if it did not say.

    :param logger: the log for the line.
    :param timeout: as for ``find_credentials_problem``.
    """
    problem = find_credentials_problem(conf, timeout)
    if problem is not None:
        is_certain, details = problem
        logger.log(log.ERROR if is_certain else log.WARNING, '%s', details)
    return problem is None


def find_credentials_problem(conf: cfg.ConfigOpts, timeout: float | None = None) -> tuple[bool, str] | None:
    """Ask Keystone once for a token of the service's own user, without which no token can be validated.

    :param timeout: the seconds to wait for each response; by default http_connect_timeout, or ten.
    :returns: None if Keystone gives a token. Otherwise whether the configuration is wrong for certain, and a sentence.
    """
    if not configuration.is_group_set(conf, GROUP):
        # A command may have a configuration of its own, with the database only. The imports below take long.
        return False, _NO_AUTH_TYPE.format(GROUP)
    from keystoneauth1 import exceptions, loading
    from keystonemiddleware import opts as keystone_opts

    for group, options in keystone_opts.list_auth_token_opts():
        conf.register_opts(options, group=group)
    loading.register_auth_conf_options(conf, GROUP)
    section = conf[GROUP]
    consequence = 'so requests with a token get 503.'
    try:
        plugin = loading.load_auth_from_conf_options(conf, GROUP)
        if plugin is None:
            return False, _NO_AUTH_TYPE.format(section.auth_section or GROUP)
        session = loading.session.Session().load_from_options(
            insecure=section.insecure,
            cacert=section.cafile,
            cert=section.certfile,
            key=section.keyfile,
            timeout=timeout or section.http_connect_timeout or _CHECK_SECONDS,
        )
        plugin.get_token(session)
    except (
        exceptions.ConnectFailure,
        exceptions.ConnectTimeout,
        exceptions.DiscoveryFailure,
        exceptions.HttpServerError,
    ) as error:
        return False, f'Keystone cannot be asked, {consequence} {" ".join(str(error).split())}'
    except exceptions.HTTPClientError as error:
        return True, f'Keystone rejects the user in [{GROUP}], {consequence} {" ".join(str(error).split())}'
    except Exception as error:  # The libraries have no common base exception.
        return True, f'[{GROUP}] cannot be used: {" ".join(str(error).split())}'
    return None
