"""``placement.wsgi:application`` for any WSGI server. Importing this module builds the application."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from wsgiref.types import WSGIApplication

from oslo_log import log
from webob import exc

from placement import conf as configuration
from placement import deploy, exception
from placement.web import error_responses, keystone, request_log

LOG = log.getLogger(__name__)

#: How long the start waits for Keystone, which need not be available.
_KEYSTONE_SECONDS = 3


def init_application() -> deploy.Application | WSGIApplication:
    """Load the configuration from the default places, set up logging, and build the application of this process.

    uWSGI would start processes without an application again and again, and clients would get no response. There the
    application responds with 500, if the configuration is invalid.

    :raises SystemExit: the application cannot be built. One line on standard error has the reason.
    """
    has_log = False
    try:
        conf = configuration.load()
        configuration.set_up_log(conf)
        has_log = True
        if conflict := configuration.package_conflict():
            LOG.warning(conflict)
        if (conf.metrics.bind or conf.metrics.page) and 'PROMETHEUS_MULTIPROC_DIR' not in os.environ:
            LOG.warning(
                'Nothing serves [metrics] bind and page: set PROMETHEUS_MULTIPROC_DIR in the environment of the server,'
                ' and run "python -m placement.cmd.exporter" beside it (deployment.md)'
            )
        application = deploy.loadapp(conf)
        # Not in a thread, because uWSGI runs none by default.
        is_ready = conf.api.auth_strategy != 'keystone' or keystone.ask_keystone(conf, LOG, _KEYSTONE_SECONDS)
        LOG.info('%s, %s', configuration.describe(conf), 'ready' if is_ready else 'started, but not ready')
        return application
    except exception.PlacementError as error:
        line = f'placement: {error.for_operators}'
        # The database may become available, so another start makes sense then.
        if 'uwsgi' not in sys.modules or not isinstance(error, exception.ConfigurationInvalid):
            sys.exit(line)
    if has_log:
        LOG.error(line)
    else:
        sys.stderr.write(f'{line}\n')
    reason = 'The service cannot start with its configuration. The log of its start has the reason.'
    respond = functools.partial(error_responses.respond, exc.HTTPInternalServerError(reason))
    return request_log.RequestIds(request_log.RequestLog(respond))


application = init_application()
if isinstance(application, deploy.Application):
    # This frees the slots of the change log for other processes.
    atexit.register(application.db.dispose)
