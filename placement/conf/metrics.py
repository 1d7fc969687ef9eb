"""[metrics]: the address on which Prometheus reads the metrics of the service, and what they include."""

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
    cfg.Opt(
        'aggregates',
        type=types.List(types.String(regex=r'^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$')),
        default=[],
        sample_default='7d2c5d6a-0f6b-4a1e-9b7e-6f0c7a3b1d55',
        help='UUIDs of aggregates for each of which there are also metrics of inventories, usage, resource providers,'
        ' trees, consumers and allocations. Each aggregate adds several time series for each resource class.',
    ),
    cfg.IntOpt(
        'inventory_refresh_interval',
        default=60,
        min=0,
        help='Seconds for which the sums over all inventories and the numbers of providers, consumers and allocations'
        ' are kept before a scrape reads them from the database again.',
    ),
    cfg.IntOpt(
        'allocation_refresh_interval',
        default=600,
        min=-1,
        help='Seconds for which the number of usage mismatches, and the numbers of consumers and allocations in each'
        ' aggregate, are kept before a scrape reads them from the database again, which reads all allocations. -1:'
        ' they are never read.',
    ),
    cfg.BoolOpt(
        'page',
        default=False,
        help='Whether the web page of "placement-manage page" is also served on this address, at /page. It changes'
        ' nothing, but shows every provider, allocation, project and user to whoever can reach the address.',
    ),
]
