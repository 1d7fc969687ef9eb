"""``placement.wsgi:application`` for any WSGI server. Importing this module builds the application."""

from __future__ import annotations

import atexit
import os
import sys

from oslo_log import log

from placement import conf as configuration
from placement import deploy, exception

LOG = log.getLogger(__name__)


def init_application() -> deploy.Application:
    """Load the configuration from the default places, set up logging, and build the application of this process.

    :raises SystemExit: the application cannot be built. One line on standard error has the reason.
    """
    try:
        conf = configuration.load()
        configuration.set_up_log(conf)
        if conflict := configuration.package_conflict():
            LOG.warning(conflict)
        if (conf.metrics.bind or conf.metrics.page) and 'PROMETHEUS_MULTIPROC_DIR' not in os.environ:
            LOG.warning(
                'Nothing serves [metrics] bind and page: set PROMETHEUS_MULTIPROC_DIR in the environment of the server,'
                ' and run "python -m placement.cmd.exporter" beside it (deployment.md)'
            )
        application = deploy.loadapp(conf)
        LOG.info('%s, ready', configuration.describe(conf))
        return application
    except exception.PlacementError as error:
        sys.exit(f'placement: {error.for_operators}')


application = init_application()
# This frees the slots of the change log for other processes.
atexit.register(application.db.dispose)
