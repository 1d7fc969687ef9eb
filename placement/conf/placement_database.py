"""[placement_database]: the connection to the database, its pool and its transactions."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup('placement_database', title='The database')

OPTS = [
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
        help='Whether the schema is brought up to date when the service starts, as placement-manage db sync does.'
        ' Processes that start at once wait for each other.',
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
        " idle timeouts of the database and of proxies before it (MariaDB's wait_timeout, HAProxy's timeouts).",
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
