"""[healthcheck]: the paths of the health checks for load balancers."""

from __future__ import annotations

from oslo_config import cfg, types

GROUP = 'healthcheck'

OPTS = [
    cfg.Opt(
        'path',
        type=types.String(regex=r'^(/[A-Za-z0-9_.-]+)+$'),
        sample_default='/healthcheck',
        help='Path, below the mount prefix, that answers 200 while the process is alive; followed by /ready, it answers'
        ' 200 while the process can serve requests from the database and 503 while it cannot. Neither needs a token. If'
        ' unset, neither path exists.',
    ),
]
