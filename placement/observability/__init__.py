"""The metrics of the service: the counted events, and the registries with the counts."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, cast

from oslo_config import cfg

if TYPE_CHECKING:
    # The first import of prometheus_client reads PROMETHEUS_MULTIPROC_DIR, which determines where values are stored.
    from placement.observability.metrics import Metrics

#: The phases of a request: waiting for a connection to the database, for the database, and for the validation of a
#: token.
CONNECTION, DATABASE, KEYSTONE = PHASES = ('connection', 'database', 'keystone')

#: The ``result`` of a claim that succeeded.
ACCEPTED = 'accepted'


class _NoMetrics(contextlib.nullcontext[None]):
    """Has every metric and method of ``Metrics``: itself, which does nothing when it is called or entered."""

    def __getattr__(self, name: str) -> _NoMetrics:
        # Python calls this only if the object does not have the attribute yet.
        self.__dict__[name] = self
        return self

    def __call__(self, *_args: object, **_options: object) -> _NoMetrics:
        return self


def create(conf: cfg.ConfigOpts) -> Metrics:
    """Make the metrics of one application. Unless ``[metrics] bind`` is set, they count nothing.

    A service without metrics does not import prometheus_client.
    """
    if not conf.metrics.bind:
        return cast('Metrics', _NoMetrics())
    from placement.observability.metrics import Metrics

    return Metrics()
