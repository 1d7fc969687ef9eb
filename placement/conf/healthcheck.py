"""[healthcheck]: paths that load balancers ask whether this process can serve."""

from __future__ import annotations

from oslo_config import cfg, types

GROUP = 'healthcheck'

OPTS = [
    cfg.Opt(
        'path',
        type=types.String(regex=r'^(/[A-Za-z0-9_.-]+)+$'),
        sample_default='/healthcheck',
        help="""
Path, below the mount prefix, that answers 200 while the process is alive. The same path followed by /ready answers 200
while the database can be used and 503 while it cannot. Both need no token.

Not set: both paths are unknown, as the API has no such resources.
""",
    ),
]
