"""The options of the service, by group. ``placement.conf`` registers the options of libraries."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from oslo_config import cfg, types

#: Other values refer to these, as $state_path.
_PATHS = [
    cfg.StrOpt(
        'state_path',
        default='/var/lib/placement',
        help='A directory for data, to which values of other options can refer as $state_path. The service itself keeps'
        ' nothing there.',
    ),
    cfg.StrOpt(
        'pybasedir',
        default=str(pathlib.Path(__file__).parents[2]),
        sample_default='/usr/lib/python3/dist-packages',
        help='The directory of the Python package, to which values of other options can refer as $pybasedir.',
    ),
]

_API = [
    cfg.StrOpt(
        'auth_strategy',
        default='keystone',
        deprecated_group='DEFAULT',
        choices=[
            ('keystone', 'Tokens are validated by Keystone, as configured in [keystone_authtoken].'),
            (
                'noauth2',
                'For tests and development: the token is USER or USER:PROJECT, and user admin has the role admin.',
            ),
        ],
        help='How callers are authenticated. With noauth2, every client that can reach the service can do anything.',
    ),
    cfg.IntOpt(
        'max_request_body_size',
        default=1048576,
        min=1024,
        help='Maximum size of a request body, in bytes; a larger one is rejected with 413. One inventory record takes'
        ' about 150 bytes, one allocation about 100.',
    ),
]

_HEALTHCHECK = [
    cfg.Opt(
        'path',
        type=types.String(regex=r'^(/[A-Za-z0-9_.-]+)+$'),
        sample_default='/healthcheck',
        help='Path of the health check, below the mount prefix: 200 while the process responds. With /ready appended:'
        ' 200 while the process can use the database, and 503 while it cannot. Neither needs a token. Unset: neither'
        ' path exists.',
    ),
]

_METRICS = [
    cfg.Opt(
        'bind',
        type=types.String(regex=r'^(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):[0-9]{1,5}$'),
        sample_default='127.0.0.1:9178',
        help='Address and port, as HOST:PORT or [IPV6]:PORT, on which the metrics are served: not the address of the'
        ' API. Unset: nothing is counted or served. placement-api starts an exporter that listens there and'
        ' ends with the service. Under another WSGI server, run "python -m placement.cmd.exporter" beside the server,'
        ' with the same environment variable PROMETHEUS_MULTIPROC_DIR, which names an empty directory. There is no'
        ' authentication: use an address that only the monitoring reaches.',
    ),
    cfg.Opt(
        'aggregates',
        type=types.List(types.String(regex=r'^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$')),
        default=[],
        sample_default='7d2c5d6a-0f6b-4a1e-9b7e-6f0c7a3b1d55',
        help='UUIDs of aggregates, separated by commas. Each gets its own metrics of inventories, usage, resource'
        ' providers, trees, consumers and allocations, which are several time series for each resource class.',
    ),
    cfg.IntOpt(
        'plan_interval',
        default=3600,
        min=0,
        help='Seconds between two checks whether the load of each host fits on the others if it fails. Each check reads'
        ' all allocations. 0: no checks.',
    ),
    cfg.BoolOpt(
        'page',
        default=False,
        help='Whether the web page of "placement-manage page" is also served on this address, at /page. It changes'
        ' nothing, but shows every provider, allocation, project and user to every client that can reach the address.',
    ),
]

_INCOMPLETE = '00000000-0000-0000-0000-000000000000'

#: The values of ``max_microversion``, the default first. A new microversion is added here and nowhere else in code.
MICROVERSION_CHOICES = [f'1.{minor}' for minor in range(29, 40)]

_PLACEMENT = [
    cfg.StrOpt(
        'max_microversion',
        default=MICROVERSION_CHOICES[0],
        choices=MICROVERSION_CHOICES,
        help='The newest microversion that is served. A request for a newer one is rejected with 406. Current compute'
        ' services need 1.36 or later. Processes behind one endpoint must have the same value.',
    ),
    cfg.BoolOpt(
        'randomize_allocation_candidates',
        default=False,
        help='Whether allocation candidates are returned in random order, so that a limit selects a uniform sample and'
        ' spreads load. Otherwise the order is always the same, and hosts fill up one after the other.',
    ),
    cfg.StrOpt(
        'incomplete_consumer_project_id',
        default=_INCOMPLETE,
        max_length=255,
        help='Project of consumers that are written below microversion 1.8, where requests name none.',
    ),
    cfg.StrOpt(
        'incomplete_consumer_user_id',
        default=_INCOMPLETE,
        max_length=255,
        help='User of consumers that are written below microversion 1.8, where requests name none.',
    ),
    cfg.IntOpt(
        'max_allocation_candidates',
        default=100000,
        min=-1,
        help='Maximum number of candidates that one GET /allocation_candidates finds, even if the request sets no'
        ' limit or a higher one. Reaching it is logged. With -1 or 0 only max_allocation_candidates_size limits them.',
    ),
    cfg.IntOpt(
        'max_allocation_candidates_size',
        default=64 * 1024 * 1024,
        min=10000,
        help='Maximum size of the body of one response to GET /allocation_candidates, in bytes. It is computed from the'
        ' names of classes and traits, so the body may be some percent longer or shorter. The response has the first'
        ' candidates that fit, at least one. Reaching it is logged.',
    ),
    cfg.IntOpt(
        'max_search_steps',
        default=1000000,
        min=1000,
        help='Maximum number of steps of the search in one GET /allocation_candidates. Checking one class of one'
        ' provider for one part of the request is a step, which takes about a microsecond. When the limit is reached,'
        ' the candidates found so far are returned, and that is logged. Steps are counted instead of time, so that'
        ' equal requests get equal responses.',
    ),
    cfg.IntOpt(
        'max_search_steps_per_tree',
        default=200000,
        min=100,
        help='Maximum number of steps of the search in one provider tree since its last candidate, or since the start.'
        ' When the limit is reached, the search continues with the other trees, and that is logged.',
    ),
    cfg.IntOpt(
        'cache_refresh_interval',
        default=1,
        min=0,
        help='Seconds after which a process of placement-api refreshes its provider cache if no search has done so. So'
        ' the first search after many changes does not have to read them all. If nothing has changed, a refresh is one'
        ' statement. 0: only searches refresh the cache. Responses are the same in both cases.',
    ),
    cfg.StrOpt(
        'policy_file',
        default='policy.yaml',
        help='YAML file that overrides policy rules. A relative path is relative to the directory of the configuration'
        ' file. The file is read again when it changes, and need not exist. [oslo_policy] policy_file takes'
        ' precedence if it is set.',
    ),
    cfg.StrOpt(
        'names_file',
        sample_default='/etc/placement/names.json',
        help='JSON file with an object of uuids and names: {"<uuid>": "<name>"}. placement-manage and the page show the'
        ' name of an aggregate, a project or a user with its uuid if the file has it. The file is read again when it'
        ' changes. Unset: only uuids are shown.',
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
        help='Parameters that are added to the URL, as NAME=VALUE&NAME=VALUE; they override those in the URL. For'
        ' example, to turn TLS on: ssl_ca=/etc/ssl/db-ca.pem (MariaDB, MySQL), or'
        ' sslmode=verify-full&sslrootcert=/etc/ssl/db-ca.pem (PostgreSQL).',
    ),
    cfg.BoolOpt(
        'sync_on_startup',
        default=False,
        help='Whether the schema is created or upgraded at start, as placement-manage db sync does. Processes that'
        ' start at the same time wait for each other.',
    ),
    cfg.BoolOpt(
        'adopt_on_sync',
        default=False,
        help='Whether "placement-manage db sync" and "db online_data_migrations" adopt the database of another'
        ' Placement service, as "db adopt --yes" does: only if no problem and no other connection prevents it;'
        ' otherwise nothing is changed. For tools that run only these commands. A start with sync_on_startup never'
        ' adopts.',
    ),
    cfg.IntOpt(
        'max_pool_size',
        default=5,
        min=0,
        help='Maximum number of connections that one process keeps open. Each thread needs one, so the number of'
        ' threads is a good value. 0: no limit.',
    ),
    cfg.IntOpt(
        'max_overflow',
        default=50,
        min=-1,
        help='Maximum number of connections that one process may open in addition to max_pool_size; they are closed'
        ' after use. -1: no limit.',
    ),
    cfg.IntOpt(
        'pool_timeout',
        default=10,
        min=0,
        help='Seconds that a request waits for a free connection before it fails with 503. 0: it does not wait.',
    ),
    cfg.IntOpt(
        'connection_recycle_time',
        default=3600,
        min=-1,
        help='Age in seconds at which a connection is replaced before its next use. Keep it below the idle timeouts of'
        " the database and of proxies in front of it (MariaDB's wait_timeout, HAProxy's timeouts). -1: never.",
    ),
    cfg.IntOpt(
        'socket_timeout',
        default=60,
        min=0,
        help='Seconds that a request waits for data from the database before it closes the connection and fails with'
        ' 503; 0 for no timeout. Keep it above lock_wait_timeout. Timeouts in the URL take precedence. Changes of the'
        ' schema and the commands of placement-manage except page have no timeout.',
    ),
    cfg.IntOpt(
        'lock_wait_timeout',
        default=5,
        min=0,
        help='Seconds that a statement waits for a lock of another transaction on PostgreSQL (lock_timeout), MariaDB'
        ' and MySQL (innodb_lock_wait_timeout); then its transaction is retried. 0: the setting of the server. Changes'
        ' of the schema and the commands of placement-manage except page always use the setting of the server.',
    ),
    cfg.IntOpt(
        'mysql_wsrep_sync_wait',
        min=0,
        max=15,
        help='wsrep_sync_wait of connections to a Galera cluster. With 1, a node waits before a read until it has'
        ' applied everything that other nodes have committed, so a client sees its own writes on every node. Unset: the'
        ' value of the server.',
    ),
    cfg.IntOpt(
        'max_transaction_retries',
        default=10,
        min=0,
        help='Maximum number of retries of a transaction after conflicts with concurrent ones, before the request'
        ' fails with 409.',
    ),
]

_SERVER = [
    cfg.IntOpt(
        'workers',
        min=1,
        help='Number of worker processes. Unset: one for each processor that the service may use.'
        ' --workers overrides it.',
    ),
    cfg.IntOpt(
        'threads',
        default=8,
        min=1,
        help='Number of threads of each worker process; one thread processes one request. --threads overrides it.',
    ),
    cfg.IntOpt(
        'request_read_timeout',
        default=30,
        min=1,
        help='Seconds within which a request must arrive, from its first byte to its last; otherwise it fails with'
        ' 408. A connection is also closed if its client receives nothing of a response, or sends nothing after'
        ' connecting, for that long.',
    ),
    cfg.IntOpt(
        'keepalive_timeout',
        default=60,
        min=1,
        help='Seconds that a connection may be idle after a response. Keep it above the idle timeouts of clients and'
        ' of proxies in front, so that none sends a request on a connection that is being closed.',
    ),
    cfg.IntOpt(
        'max_connections',
        default=2000,
        min=100,
        help='Maximum number of connections that one worker process keeps open. Beyond it, each new connection closes'
        ' those that have waited longest for their clients. A connection occupies no thread until its request has'
        ' arrived completely.',
    ),
    cfg.IntOpt(
        'graceful_timeout',
        default=30,
        min=2,
        help='Seconds that requests in flight have to finish after a stop or a reload; requests that take longer are'
        ' aborted.',
    ),
]

#: The options of the service, by group.
GROUPS: tuple[tuple[str | cfg.OptGroup | None, Sequence[cfg.Opt]], ...] = (
    (None, _PATHS),
    (cfg.OptGroup('api', title='The HTTP API'), _API),
    ('healthcheck', _HEALTHCHECK),
    ('metrics', _METRICS),
    (cfg.OptGroup('placement', title='Responses, limits and policy'), _PLACEMENT),
    (cfg.OptGroup('placement_database', title='The database'), _DATABASE),
    (cfg.OptGroup('server', title='The HTTP server of placement-api'), _SERVER),
)
