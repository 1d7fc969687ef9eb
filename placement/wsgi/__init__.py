"""``placement.wsgi:application`` for any WSGI server. Importing this module builds it from file and environment."""

from __future__ import annotations

import atexit
import sys

from oslo_config import cfg
from oslo_log import log

from placement import conf as configuration
from placement import deploy, exception, package_conflict

LOG = log.getLogger(__name__)


def init_application(conf: cfg.ConfigOpts | None = None) -> deploy.Application:
    """Set up logging and build the application of this process.

    :param conf: made by ``placement.conf.load``; None loads from the default places.
    :raises SystemExit: the application cannot be built; the reason goes to standard error in one line.
    """
    try:
        if conf is None:
            conf = configuration.load()
        log.setup(conf, 'placement')
        if conflict := package_conflict.describe():
            LOG.warning(conflict)
        return deploy.loadapp(conf)
    except (exception.PlacementError, log.LogConfigError) as error:
        reason = error.for_operators if isinstance(error, exception.PlacementError) else error
        sys.exit(f'placement: {reason}')


application = init_application()
# Frees its slots of the change log for other processes.
atexit.register(application.db.dispose)
