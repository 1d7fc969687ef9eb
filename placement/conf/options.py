"""The options of the service, by group. Those of libraries are registered by ``placement.conf``."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg, types

_API = [
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
        help='How callers are authenticated. With noauth2 they are not, so every client that can reach the service can'
        ' do anything.',
    ),
    cfg.IntOpt(
        'max_request_body_size',
        default=1048576,
        min=1024,
        help='Maximum size of a request body, in bytes. A larger one is answered with 413. One inventory record'
        ' takes about 150 bytes, one allocation about 100.',
    ),
]

_HEALTHCHECK = [
    cfg.Opt(
        'path',
        type=types.String(regex=r'^(/[A-Za-z0-9_.-]+)+$'),
        sample_default='/healthcheck',
        help='Path, below the mount prefix, that answers 200 while the process responds; followed by /ready, it answers'
        ' 200 while the process can serve requests from the database and 503 while it cannot. Neither needs a token. If'
        ' unset, neither path exists.',
    ),
]

_METRICS = [
    cfg.Opt(
        'bind',
        type=types.String(regex=r'^(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):[0-9]{1,5}$'),
        sample_default='127.0.0.1:9178',
        help='Address and port, as HOST:PORT or [IPV6]:PORT, on which the metrics are served, not that of the'
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
        ' nothing, but shows every provider, allocation, project and user to every client that can reach the address.',
    ),
]

_INCOMPLETE = '00000000-0000-0000-0000-000000000000'

#: The values of ``max_microversion``, the default first.
MAX_MICROVERSIONS = [f'1.{minor}' for minor in range(29, 40)]

_PLACEMENT = [
    cfg.StrOpt(
        'max_microversion',
        default=MAX_MICROVERSIONS[0],
        choices=MAX_MICROVERSIONS,
        help='The newest microversion that is served. A request for a newer one is answered with 406. Compute services'
        ' from release Train on need 1.36 or later. Processes behind one endpoint must have the same value.',
    ),
    cfg.BoolOpt(
        'randomize_allocation_candidates',
        default=False,
        help='Whether allocation candidates are returned in random order. Then a limit takes a uniform sample of the'
        ' candidates, which spreads load over hosts. Otherwise the order is the same each time, which fills one host'
        ' after the other.',
    ),
    cfg.StrOpt(
        'incomplete_consumer_project_id',
        default=_INCOMPLETE,
        max_length=255,
        help='Project of consumers whose allocations were written below microversion 1.8, which does not name one.',
    ),
    cfg.StrOpt(
        'incomplete_consumer_user_id',
        default=_INCOMPLETE,
        max_length=255,
        help='User of consumers whose allocations were written below microversion 1.8, which does not name one.',
    ),
    cfg.IntOpt(
        'max_allocation_candidates',
        default=100000,
        min=-1,
        help='Maximum number of candidates that one GET /allocation_candidates finds, even if the request sets no limit'
        ' or a higher one. Reaching it is logged. With -1 or 0 only max_allocation_candidates_size limits them.',
    ),
    cfg.IntOpt(
        'max_allocation_candidates_size',
        default=400000,
        min=1000,
        help='Maximum size of a response to GET /allocation_candidates, in entries: one for each resource class of each'
        ' provider of each candidate, one for each provider in its mappings, and one for each provider summary.'
        ' Reaching it is logged.',
    ),
    cfg.IntOpt(
        'max_search_steps',
        default=3000000,
        min=1000,
        help='Maximum number of steps of the search in one GET /allocation_candidates. Checking one class of one'
        ' provider for one part of the request is a step, which takes about half a microsecond. When the limit is'
        ' reached, the candidates found so far are returned, and that is logged. Steps are counted, and not time, so'
        ' that equal requests get equal responses.',
    ),
    cfg.IntOpt(
        'max_search_steps_per_tree',
        default=200000,
        min=100,
        help='Maximum number of steps of the search in one provider tree without finding a candidate, or another one.'
        ' When the limit is reached, the search continues with the other trees, and that is logged.',
    ),
    cfg.IntOpt(
        'cache_refresh_interval',
        default=1,
        min=0,
        help='Seconds after which a process of placement-api refreshes its provider cache if no search has done so,'
        ' with one statement if nothing has changed. So the first search after many changes does not have to read them'
        ' all. 0: only searches refresh the cache. Responses are the same in both cases.',
    ),
    cfg.StrOpt(
        'policy_file',
        default='placement-policy.yaml',
        help='YAML file that overrides policy rules. A relative path is relative to the directory of the configuration'
        ' file. The file is read again when it changes. It need not exist unless this option is set. When [oslo_policy]'
        ' policy_file is set too, that one is used.',
    ),
]

_DATABASE = [
    cfg.StrOpt(
        'connection',
        secret=True,
        help='SQLAlchemy URL of the database, such as mysql+pymysql://user:password@host/placement,'
        ' postgresql+psycopg://user:password@host/placement or sqlite:////var/lib/placement/placement.sqlite. There is'
        ' no default: the service does not start without it.',
    ),
    cfg.StrOpt(
        'connection_parameters',
        secret=True,
        help='Parameters that are added to the URL, as NAME=VALUE&NAME=VALUE; they replace those of the same name in'
        ' it. For example, to turn TLS on: ssl_ca=/etc/ssl/db-ca.pem (MariaDB, MySQL), or'
        ' sslmode=verify-full&sslrootcert=/etc/ssl/db-ca.pem (PostgreSQL).',
    ),
    cfg.BoolOpt(
        'sync_on_startup',
        default=False,
        help='Whether the schema is upgraded when the service starts, as by placement-manage db sync.'
        ' Processes that start at the same time wait for each other.',
    ),
    cfg.IntOpt(
        'max_pool_size',
        default=5,
        min=1,
        help='Maximum number of connections that one process keeps open. Each thread needs one, so the number of'
        ' threads is a good value.',
    ),
    cfg.IntOpt(
        'max_overflow',
        default=50,
        min=0,
        help='Maximum number of connections that one process may open in addition to max_pool_size; they are closed'
        ' after use.',
    ),
    cfg.IntOpt(
        'pool_timeout',
        default=10,
        min=1,
        help='Seconds that a request waits for a free connection before it is answered with 503.',
    ),
    cfg.IntOpt(
        'connection_recycle_time',
        default=3600,
        min=1,
        help='Age in seconds from which on a connection is replaced by a new one before it is used. Keep it below the'
        " idle timeouts of the database and of proxies in front of it (MariaDB's wait_timeout, HAProxy's timeouts).",
    ),
    cfg.IntOpt(
        'socket_timeout',
        default=60,
        min=0,
        help='Seconds without an answer after which a connection to a database server is closed and the request is'
        ' answered with 503; 0 for no timeout. Keep it above the time that a statement may wait for a lock'
        ' (innodb_lock_wait_timeout). Timeouts in the URL take precedence. The commands of placement-manage except page'
        ' have no timeout, as a change of the schema may take long.',
    ),
    cfg.IntOpt(
        'mysql_wsrep_sync_wait',
        min=0,
        max=15,
        help='wsrep_sync_wait of connections to a Galera cluster: 1 makes a node wait until it has applied what other'
        ' nodes committed before it reads, so that a client sees its own writes on every node. Unset keeps the'
        " server's own value.",
    ),
    cfg.IntOpt(
        'sqlite_busy_timeout',
        default=30,
        min=0,
        help='Seconds that a writer waits for other writers of the same SQLite file.',
    ),
    cfg.IntOpt(
        'max_transaction_retries',
        default=10,
        min=0,
        help='Maximum number of retries of a transaction after conflicts with concurrent ones, before the request is'
        ' answered with 409.',
    ),
]

_SERVER = [
    cfg.IntOpt(
        'workers',
        min=1,
        help='Number of worker processes. Unset: one for each processor. --workers overrides it.',
    ),
    cfg.IntOpt(
        'threads',
        default=8,
        min=1,
        help='Number of threads of each worker process; one thread processes one request. --threads overrides it.',
    ),
    cfg.Opt(
        'socket_mode',
        type=types.String(regex=r'^0?[0-7]{3}$'),
        default='0660',
        help='Mode, in octal, of the Unix socket that --bind unix:PATH creates. A socket that systemd passes keeps the'
        ' mode of its unit.',
    ),
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
        help='Maximum number of connections that one worker process keeps open. If there are more, those that have'
        ' waited longest, because they are idle or their clients are slow, are closed. A connection occupies no thread'
        ' before all of its request has arrived.',
    ),
    cfg.IntOpt(
        'graceful_timeout',
        default=30,
        min=2,
        help='Seconds that requests in flight have to finish when the service is stopped or reads its configuration'
        ' again. Requests that take longer are aborted.',
    ),
]

#: The options of the service, by group.
GROUPS: tuple[tuple[str | cfg.OptGroup, Sequence[cfg.Opt]], ...] = (
    (cfg.OptGroup('api', title='The HTTP API'), _API),
    ('healthcheck', _HEALTHCHECK),
    ('metrics', _METRICS),
    (cfg.OptGroup('placement', title='Responses, limits and policy'), _PLACEMENT),
    (cfg.OptGroup('placement_database', title='The database'), _DATABASE),
    (cfg.OptGroup('server', title='The HTTP server of placement-api'), _SERVER),
)
