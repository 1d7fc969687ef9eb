"""The metrics of the service: the counted events, and the registries that keep the counts."""

from __future__ import annotations

from oslo_config import cfg

from placement.observability.metrics import Metrics


def create(conf: cfg.ConfigOpts) -> Metrics:
    """Make the metrics of one application: real ones when ``[metrics] bind`` is set, else some that count nothing.

    prometheus_client is imported here because a service without metrics does not need it, and because it reads
    ``PROMETHEUS_MULTIPROC_DIR``, which decides where values are stored, when it is first imported.
    """
    if not conf.metrics.bind:
        return Metrics()
    from placement.observability.prometheus import PrometheusMetrics

    return PrometheusMetrics()
