"""[server]: limits and timeouts of placement-api for its clients. Other WSGI servers have settings of their own."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup('server', title='The HTTP server of placement-api')

OPTS = [
    cfg.IntOpt(
        'request_read_timeout',
        default=30,
        min=1,
        help='Seconds within which a request must arrive, from its first byte to its last; otherwise it is answered'
        ' with 408. A connection is also closed when for so many seconds its client receives nothing of a response, or'
        ' sends nothing after it has connected.',
    ),
    cfg.IntOpt(
        'keepalive_timeout',
        default=60,
        min=1,
        help='Seconds that a connection may be idle after a response. Keep it above the idle timeouts of clients and of'
        ' proxies in front, so that none sends a request on a connection that is being closed.',
    ),
    cfg.IntOpt(
        'max_connections',
        default=2000,
        min=100,
        help='Most connections that one worker process keeps open. When there is one more, those that have waited'
        ' longest, because they are idle or their clients are slow, are closed. A connection occupies no thread before'
        ' all of its request has arrived.',
    ),
    cfg.IntOpt(
        'graceful_timeout',
        default=30,
        min=2,
        help='Seconds that requests in flight have to finish when the service is stopped or reads its configuration'
        ' again. Requests that take longer are aborted.',
    ),
]
