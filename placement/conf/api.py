"""[api]: authentication, and the size of request bodies. [healthcheck]: the paths for load balancers."""

from __future__ import annotations

from oslo_config import cfg, types

GROUP = cfg.OptGroup('api', title='The HTTP API')

OPTS = [
    cfg.StrOpt(
        'auth_strategy',
        default='keystone',
        choices=[
            ('keystone', 'Tokens are validated by Keystone, as configured in [keystone_authtoken].'),
            (
                'noauth2',
                'For tests and development: the token is USER or USER:PROJECT, and user admin has the role admin.',
            ),
        ],
        help='How callers are authenticated. With noauth2 the service believes any name, so whoever can reach it can do'
        ' anything.',
    ),
    cfg.IntOpt(
        'max_request_body_size',
        default=1048576,
        min=1024,
        help='Longest request body that is read, in bytes. A longer one is answered with 413. One inventory record'
        ' takes about 150 bytes, one allocation about 100.',
    ),
]

HEALTHCHECK_GROUP = 'healthcheck'

HEALTHCHECK_OPTS = [
    cfg.Opt(
        'path',
        type=types.String(regex=r'^(/[A-Za-z0-9_.-]+)+$'),
        sample_default='/healthcheck',
        help='Path, below the mount prefix, that answers 200 while the process is alive; followed by /ready, it answers'
        ' 200 while the process can serve requests from the database and 503 while it cannot. Neither needs a token. If'
        ' unset, neither path exists.',
    ),
]
