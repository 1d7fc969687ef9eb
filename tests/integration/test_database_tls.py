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
PLAIN = {'postgresql': 'sslmode=disable', 'mariadb': 'ssl_disabled=true'}
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


def _rejected(server: local_servers.PrivateServer, parameters: str, host: str = 'localhost') -> str:
    """The message to the operator when it cannot be connected."""
    with pytest.raises(exception.DatabaseUnavailable) as caught:
        migration.recorded_revision(
            _database(server.url.set(host=host, database=DATABASES[server.name]), parameters).engine
        )
    return caught.value.for_operators


def _ca(server: local_servers.PrivateServer) -> pathlib.Path:
    return server.home / 'tls' / 'ca.pem'


@pytest.mark.mariadb
@pytest.mark.parametrize(
    ('path', 'reason'), [('/nonexistent.pem', 'No such file or directory'), ('/', 'Is a directory')]
)
def test_a_file_that_cannot_be_read_is_named(path: str, reason: str) -> None:
    # No server is needed: PyMySQL reads the files before it connects.
    with pytest.raises(exception.DatabaseUnavailable) as caught:
        migration.recorded_revision(
            _database(sa.make_url('mysql+pymysql://user@127.0.0.1:1/name'), f'ssl_ca={path}').engine
        )
    assert f'ssl_ca={path} cannot be read: {reason}' in caught.value.for_operators


def test_every_connection_is_encrypted(server: local_servers.PrivateServer) -> None:
    with databases.fresh(server.url) as url:
        db = _database(url.set(host='localhost'), PARAMETERS[server.name].format(_ca(server)))
        db.sync()
        with db.engine.connect() as connection:
            assert connection.execute(sa.text(ENCRYPTED[server.name])).scalar() == 1
        db.dispose()


def test_without_tls_the_server_rejects(server: local_servers.PrivateServer) -> None:
    message = _rejected(server, PLAIN[server.name])
    # MariaDB does not give the reason.
    assert any(phrase in message for phrase in ('no encryption', 'insecure transport', 'Access denied'))


def test_a_certificate_of_another_authority_is_rejected(
    server: local_servers.PrivateServer, tmp_path: pathlib.Path
) -> None:
    _make_certificates(tmp_path)
    message = _rejected(server, PARAMETERS[server.name].format(tmp_path / 'ca.pem'))
    assert 'certificate verify failed' in message


def test_a_certificate_for_another_name_is_rejected(server: local_servers.PrivateServer) -> None:
    message = _rejected(server, PARAMETERS[server.name].format(_ca(server)), '127.0.0.1')
    assert '127.0.0.1' in message
    assert 'match' in message or 'not valid' in message
