"""Checks the URL of the database, and adds the parameters that every connection needs."""

from __future__ import annotations

from typing import NamedTuple
from urllib import parse

import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import exc as sa_exc

from placement import exception
from placement.db import batch


class _Backend(NamedTuple):
    """A kind of database: the drivers that are supported, as URLs name them, and the package of the first one."""

    prefixes: tuple[str, ...]
    package: str


_POSTGRESQL = _Backend(('postgresql+psycopg',), 'psycopg[binary]')
_MYSQL = _Backend(('mysql+pymysql', 'mysql+mysqldb', 'mariadb+pymysql', 'mariadb+mysqldb'), 'PyMySQL')
_SQLITE = _Backend(('sqlite', 'sqlite+pysqlite'), '')
#: By the part of the URL before the plus sign. Other programs also accept "postgres"; our error says what to write.
_BACKENDS = {
    'postgresql': _POSTGRESQL,
    'postgres': _POSTGRESQL,
    'mysql': _MYSQL,
    'mariadb': _MYSQL,
    'sqlite': _SQLITE,
}


def engine_url(options: cfg.ConfigOpts.GroupAttr) -> sa.URL:
    """Return the URL made of [placement_database] ``connection`` and ``connection_parameters``, checked and completed.

    On MySQL and MariaDB it gets parameters for full Unicode and several statements in one text. Unless the operator has
    set them, it gets timeouts, without which a thread would wait many minutes for a server that does not answer any
    more.

    :param options: the group ``placement_database``.
    :raises ConfigurationInvalid: there is no URL, it is invalid or unsafe, or its driver is not supported or not
        installed.
    """
    url = _parsed(options.connection)
    if options.connection_parameters:
        try:
            # Strict: parse_qsl would drop malformed parameters, and TLS may depend on them.
            parameters = parse.parse_qsl(options.connection_parameters, strict_parsing=True, keep_blank_values=True)
        except ValueError as error:
            reason = '[placement_database] connection_parameters is not of the form NAME=VALUE&NAME=VALUE.'
            raise exception.ConfigurationInvalid(reason=reason) from error
        url = url.update_query_pairs(parameters)
    _reject_unsafe(url)
    return _complete(_supported(url), options.socket_timeout)


#: Parameters of MySQL drivers that the service sets itself: another value would change how text or transactions work.
_OWN_PARAMETERS = ('autocommit', 'conv', 'cursorclass', 'use_unicode')


def _reject_unsafe(url: sa.URL) -> None:
    """Reject parameters that change the character set of connections.

    PyMySQL and mysqlclient escape text before they encode it, so in character sets such as sjis, gbk or latin1 the
    server may see a quote or a backslash where the driver saw none, and part of a text would be executed as SQL.

    :raises ConfigurationInvalid: there is such a parameter.
    """
    if url.get_backend_name() in ('mysql', 'mariadb'):
        name, wanted = 'charset', 'utf8mb4'
        accepted: tuple[str, ...] = ('utf8mb4', 'utf8', 'utf8mb3')
        for own in _OWN_PARAMETERS:
            if own in url.query:
                raise _unusable(f'the service sets {own} itself. Remove it.')
    elif url.get_backend_name() == 'postgresql':
        name, wanted, accepted = 'client_encoding', 'utf8', ('utf8', 'utf-8')
    else:
        return
    for given in url.normalized_query.get(name, ()):
        if given.lower() not in accepted:
            raise _unusable(f'{name}={given} is not safe: the service connects with {wanted}. Remove {name}.')


def _complete(url: sa.URL, socket_timeout: int) -> sa.URL:
    """Return ``url`` with the parameters that are missing."""
    wanted: dict[str, str] = {}
    if url.get_backend_name() in ('mysql', 'mariadb') and socket_timeout:
        wanted |= {'read_timeout': str(socket_timeout), 'write_timeout': str(socket_timeout)}
    if url.get_backend_name() == 'postgresql' and socket_timeout:
        wanted['tcp_user_timeout'] = str(socket_timeout * 1000)
    if url.get_backend_name() != 'sqlite':
        wanted['connect_timeout'] = '10'
    if url.get_backend_name() == 'postgresql':
        wanted['client_encoding'] = 'utf8'
    given = {name: value for name, value in wanted.items() if name not in url.query}
    if url.get_backend_name() in ('mysql', 'mariadb'):
        given['charset'] = 'utf8mb4'
        given['client_flag'] = str(int(str(url.query.get('client_flag', 0))) | batch.MULTI_STATEMENTS)
    return url.update_query_dict(given)


def _parsed(url: str | None) -> sa.URL:
    if not url:
        raise exception.ConfigurationInvalid(
            reason='[placement_database] connection is not set (in the environment: OS_PLACEMENT_DATABASE__CONNECTION).'
        )
    try:
        parsed = sa.make_url(url)
    except ValueError as error:
        # The port is not shown: if the password has an unquoted @, it is a part of the password.
        raise _unusable(
            'the port is not a number. Special characters in a password must be percent-encoded.'
        ) from error
    except sa_exc.ArgumentError as error:
        raise _unusable(error) from error
    # Which driver "postgresql" means depends on the release of SQLAlchemy.
    return parsed.set(drivername='postgresql+psycopg') if parsed.drivername == 'postgresql' else parsed


def _supported(url: sa.URL) -> sa.URL:
    """Return ``url`` if its driver is supported and installed and accepts its parameters.

    :raises ConfigurationInvalid: otherwise; the message says what to write and what to install.
    """
    backend = _BACKENDS.get(url.drivername.partition('+')[0])
    if backend is None:
        raise _unusable(
            f'{url.drivername}: is not a supported database. Write sqlite:, {_POSTGRESQL.prefixes[0]}:'
            f' or {_MYSQL.prefixes[0]}:.'
        )
    chosen = backend.prefixes[0]
    if '+' in url.drivername and url.drivername not in backend.prefixes:
        raise _unusable(f'{url.drivername}: is not supported. {_advice(backend, chosen)}')
    try:
        for plugin in url.normalized_query.get('plugin', ()):
            sa.dialects.plugins.load(plugin)
    except sa_exc.NoSuchModuleError as error:
        raise _unusable(
            f'the SQLAlchemy plugin {plugin}, which the URL names, is not installed. Install it, or remove'
            f' plugin={plugin}.'
        ) from error
    try:
        # This does not connect, but imports the driver and checks the parameters.
        sa.create_engine(url)
    except (ImportError, sa_exc.NoSuchModuleError) as error:
        raise _unusable(f'the driver of {url.drivername}: is not installed. {_advice(backend, chosen)}') from error
    except (sa_exc.ArgumentError, ValueError) as error:
        raise _unusable(error) from error
    return url


def _advice(backend: _Backend, chosen: str) -> str:
    return f"Write {chosen}://... and install its driver: pip install '{backend.package}'"


def _unusable(reason: object) -> exception.ConfigurationInvalid:
    return exception.ConfigurationInvalid(reason=f'[placement_database] connection cannot be used: {reason}')
