"""The floor: an application that only returns bytes, served by the same server as placement-api.

``python -m bench.floor DIRECTORY ARGUMENTS...`` serves the files of a directory: ``/NAME`` is answered with what
``store`` wrote there. ``ARGUMENTS`` are those of placement-api.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

from placement import deploy
from placement.cmd import api
from placement.web.wsgi import WSGIApplication


def store(directory: pathlib.Path, name: str, status: int, body: bytes) -> None:
    """Set the response to ``/name``. It is written once, since processes that have read it keep it."""
    (directory / name).write_bytes(str(status).encode() + b'\n' + body)


class _Nothing:
    """Replaces the database of an application."""

    def __getattr__(self, _name: str) -> _Nothing:
        return self

    def __call__(self, *_args: Any, **_kwargs: Any) -> None: ...


class Application:
    """Answers with stored bytes."""

    db = provider_cache = background_refresh = _Nothing()

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._responses: dict[str, tuple[str, bytes]] = {'/': ('200 OK', b'{}')}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request; its body is read, as a service has to."""
        environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))
        status, body = self._responses.get(environ['PATH_INFO']) or self._read(environ['PATH_INFO'])
        headers = [('Content-Type', 'application/json')] if body else []
        if not status.startswith('204'):
            headers.append(('Content-Length', str(len(body))))
        start_response(status, headers)
        return [body]

    def _read(self, path: str) -> tuple[str, bytes]:
        status, _, body = (self._directory / path.lstrip('/')).read_bytes().partition(b'\n')
        response = self._responses[path] = f'{status.decode()} Response', body
        return response


def serve(application: Callable[[], WSGIApplication], arguments: list[str]) -> int:
    """Serve an application as placement-api serves its own; has to follow changes of that.

    :param application: makes the application; called in each process.
    :param arguments: those of placement-api.
    :returns: the exit status.
    """
    deploy.loadapp = lambda *_args, **_kwargs: application()  # type: ignore[assignment]
    return api.main(arguments)


if __name__ == '__main__':
    sys.exit(serve(lambda: Application(pathlib.Path(sys.argv[1])), sys.argv[2:]))
