"""[healthcheck]: paths that load balancers ask whether this process can serve."""

from __future__ import annotations

from oslo_config import cfg, types

GROUP = 'healthcheck'

OPTS = [
    cfg.Opt(
        'path',
        type=types.String(regex=r'^(/[A-Za-z0-9_.-]+)+$'),
        sample_default='/healthcheck',
        help='Path, below the mount prefix, that answers 200 while the process is alive; followed by /ready, it answers'
        ' 200 while the database can be used and 503 while it cannot. Neither needs a token. Unset: neither exists.',
    ),
]
