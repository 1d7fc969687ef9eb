"""[server]: what the clients of placement-api may take. Other WSGI servers have settings of their own."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup('server', title='The HTTP server of placement-api')

OPTS = [
    cfg.IntOpt(
        'client_timeout',
        default=30,
        min=1,
        help='Seconds within which a request must have come whole, from its first byte to its last; else the answer is'
        ' 408. Also the seconds after which a client is given up that takes nothing of its answer, or says nothing'
        ' after it has connected.',
    ),
    cfg.IntOpt(
        'keepalive_timeout',
        default=60,
        min=1,
        help='Seconds that a connection may be idle after an answer. Longer than the clients and proxies in front keep'
        ' theirs, so that none sends a request on a connection that is being closed.',
    ),
    cfg.IntOpt(
        'max_connections',
        default=2000,
        min=100,
        help='Most connections that one worker process keeps open. At this number a new connection is let in and those'
        ' that have waited longest, idle ones or clients that are slow, are closed instead. No connection takes a'
        ' thread before its request is there whole.',
    ),
    cfg.IntOpt(
        'graceful_timeout',
        default=30,
        min=2,
        help='Seconds that requests in flight have to finish when the service is stopped or reads its configuration'
        ' again. What takes longer is cut off.',
    ),
]
