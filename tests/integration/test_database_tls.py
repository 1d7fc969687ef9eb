"""TLS to the database (doc/database.md#tls-to-the-database), with real certificates on servers that require it."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from placement import exception
from placement.db import migration
from placement.db.api import Database
from tests.support import applications, databases, local_servers

#: The parameters that turn TLS on, and the query that shows that it is on.
PARAMETERS = {'postgresql': 'sslmode=verify-full&sslrootcert={}', 'mariadb': 'ssl_ca={}'}
DATABASES = {'postgresql': 'postgres', 'mariadb': 'mysql'}
ENCRYPTED = {
    'postgresql': 'SELECT CAST(ssl AS integer) FROM pg_stat_ssl WHERE pid = pg_backend_pid()',
    'mariadb': f"SELECT variable_value <> '' FROM {'performance' if databases.on_mysql() else 'information'}_schema"
    ".session_status WHERE variable_name = 'Ssl_cipher'",
}


NEW = ['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2']


def _make_certificates(directory: pathlib.Path) -> None:
    """Write ``ca.pem``, ``server.pem`` and ``server.key``; the certificate is valid for the name localhost."""
    authority = ['-keyout', directory / 'ca.key', '-out', directory / 'ca.pem', '-subj', '/CN=authority']
    signed = ['-CA', directory / 'ca.pem', '-CAkey', directory / 'ca.key', '-addext', 'subjectAltName=DNS:localhost']
    server = ['-keyout', directory / 'server.key', '-out', directory / 'server.pem', '-subj', '/CN=server']
    for extension, options in (
        ('keyUsage=critical,keyCertSign', authority),
        ('basicConstraints=critical,CA:FALSE', [*signed, *server]),
    ):
        command = [*NEW, *map(str, options), '-addext', extension]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope='module', params=databases.parameters(*databases.defaults()))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[local_servers.PrivateServer]:
    """A server that rejects connections without TLS; its certificate is valid for the name localhost."""
    certificate_directory = tmp_path_factory.mktemp('own')
    _make_certificates(certificate_directory)
    with local_servers.running(request.param.server, certificates=certificate_directory) as started:
        yield started


def _database(url: sa.URL, parameters: str) -> Database:
    """A database as it is configured, on the server of ``url`` by the name for which its certificate is valid."""
    options = {'connection_parameters': parameters}
    return Database(applications.options(url.set(query={}), placement_database=options))


def _rejected(server: local_servers.PrivateServer, authority: pathlib.Path, host: str) -> str:
    """The message to the operator when it cannot be connected."""
    url = server.url.set(host=host, database=DATABASES[server.name])
    with pytest.raises(exception.DatabaseUnavailable) as caught:
        migration.recorded_revision(_database(url, PARAMETERS[server.name].format(authority)).engine)
    return caught.value.for_operators


def _ca(server: local_servers.PrivateServer) -> pathlib.Path:
    return server.home / 'tls' / 'ca.pem'


@pytest.mark.mariadb
def test_a_file_that_cannot_be_read_is_named() -> None:
    # No server is needed: PyMySQL reads the files before it connects.
    url = sa.make_url('mysql+pymysql://user@127.0.0.1:1/name')
    with pytest.raises(exception.DatabaseUnavailable) as caught:
        migration.recorded_revision(_database(url, 'ssl_ca=/nonexistent.pem').engine)
    assert 'No such file or directory (ssl_ca=/nonexistent.pem)' in caught.value.for_operators


def test_every_connection_is_encrypted(server: local_servers.PrivateServer) -> None:
    with databases.fresh(server.url) as url:
        db = _database(url.set(host='localhost'), PARAMETERS[server.name].format(_ca(server)))
        db.sync()
        with db.engine.connect() as connection:
            assert connection.execute(sa.text(ENCRYPTED[server.name])).scalar() == 1
        db.dispose()


def test_a_certificate_of_another_authority_or_name_is_rejected(
    server: local_servers.PrivateServer, tmp_path: pathlib.Path
) -> None:
    _make_certificates(tmp_path)
    assert 'certificate verify failed' in _rejected(server, tmp_path / 'ca.pem', 'localhost')
    message = _rejected(server, _ca(server), '127.0.0.1')
    assert '127.0.0.1' in message
    assert 'match' in message or 'not valid' in message
