"""What the service counts, and where the counts are kept."""

from __future__ import annotations

from oslo_config import cfg

from placement.observability.metrics import Metrics


def create(conf: cfg.ConfigOpts) -> Metrics:
    """The counters of one application: real ones when ``[metrics] bind`` is set, else some that do nothing.

    The import is here because the library decides how it stores values when it is first imported, from
    ``PROMETHEUS_MULTIPROC_DIR``, and a service without metrics need not load it.
    """
    if not conf.metrics.bind:
        return Metrics()
    from placement.observability.prometheus import PrometheusMetrics

    return PrometheusMetrics()
