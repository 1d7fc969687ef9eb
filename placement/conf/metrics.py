"""[metrics]: whether the service counts what it does, and where Prometheus can read it."""

from __future__ import annotations

from oslo_config import cfg, types

GROUP = 'metrics'

OPTS = [
    cfg.Opt(
        'bind',
        type=types.String(regex=r'^(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):[0-9]{1,5}$'),
        sample_default='127.0.0.1:9178',
        help='Address and port, as HOST:PORT or [IPV6]:PORT, on which the metrics are served, away from the port of the'
        ' API. Unset: nothing is counted and nothing is served. placement-api starts a process that listens there and'
        ' ends with it. Under another WSGI server set the environment variable PROMETHEUS_MULTIPROC_DIR to an empty'
        ' directory for the server and for "python -m placement.cmd.exporter", and run the latter beside the'
        ' former. There is no authentication: use an address that only the monitoring reaches.',
    ),
]
