"""Certificates for tests: an authority and a server certificate, made with openssl."""

from __future__ import annotations

import pathlib
import ssl
import subprocess
from collections.abc import Sequence

_NEW = ['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2']


def make(directory: pathlib.Path, names: Sequence[str] = ('DNS:localhost',)) -> None:
    """Write ``ca.pem``, ``server.pem`` and ``server.key``; the certificate is valid for ``names`` only."""
    authority = ['-keyout', directory / 'ca.key', '-out', directory / 'ca.pem', '-subj', '/CN=authority']
    _run([*_NEW, *authority, '-addext', 'keyUsage=critical,keyCertSign'])
    _run(
        [
            *_NEW,
            *['-CA', directory / 'ca.pem', '-CAkey', directory / 'ca.key'],
            *['-keyout', directory / 'server.key', '-out', directory / 'server.pem', '-subj', '/CN=server'],
            *['-addext', f'subjectAltName={",".join(names)}', '-addext', 'basicConstraints=critical,CA:FALSE'],
        ]
    )


def _run(command: Sequence[object]) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=60)


def trust(directory: pathlib.Path) -> ssl.SSLContext:
    """An SSL context that trusts only the authority that ``make`` wrote to ``directory``."""
    return ssl.create_default_context(cafile=str(directory / 'ca.pem'))
