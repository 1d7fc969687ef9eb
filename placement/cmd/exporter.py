"""``python -m placement.cmd.exporter``: serves the metrics and health of a service on ``[metrics] bind``."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from wsgiref.types import WSGIApplication

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import make_wsgi_app

from placement import conf as configuration
from placement import exception
from placement.cache.refresh import ProviderCache
from placement.cmd import command
from placement.cmd.parser import CommandParser
from placement.db.api import Database
from placement.db.health import TimedCheck
from placement.observability import processes
from placement.ops import database_collector
from placement.serving import single_process
from placement.web.health_check import READY, HealthCheck

PROGRAM = 'placement.cmd.exporter'
_DIRECTORY_VARIABLE = 'PROMETHEUS_MULTIPROC_DIR'

METRICS_PATH = '/metrics'
HEALTH_PATH = '/healthcheck'
PAGE_PATH = '/page'

DESCRIPTION = """
Serve /metrics (for Prometheus), /healthcheck and /healthcheck/ready on the address in [metrics] bind.
placement-api starts this automatically. Under another WSGI server run it beside the server, with the same configuration
and the same PROMETHEUS_MULTIPROC_DIR. It ends when the process that started it ends.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the parent process has ended.

    :param argv: the arguments; None for the arguments of the process.
    :returns: the exit status: 1 if the metrics cannot be served. One line on standard error has the reason.
    """
    args = CommandParser(prog=f'python -m {PROGRAM}', description=DESCRIPTION).parse_args(argv)
    return command.run_command(PROGRAM, 1, functools.partial(_serve, args))


def _serve(args: argparse.Namespace) -> int:
    conf = command.load_configuration(args)
    configuration.set_up_log(conf)
    bind, directory = conf.metrics.bind, os.environ.get(_DIRECTORY_VARIABLE, '')
    if not bind:
        raise exception.ConfigurationInvalid(reason='[metrics] bind is not set.')
    host, _, port = bind.rpartition(':')
    host = host.strip('[]')
    if not os.path.isdir(directory):
        reason = f'{_DIRECTORY_VARIABLE} does not name the directory in which the service keeps its counts.'
        raise exception.ConfigurationInvalid(reason=reason)
    database = Database(conf)
    check = TimedCheck(database)
    registry = processes.registry(directory)
    provider_cache = ProviderCache(database)
    collector = database_collector.DatabaseCollector(database, provider_cache, conf.metrics, check)
    registry.register(collector)
    page = None
    if conf.metrics.page:
        # Without the page, the exporter does not load the template engine.
        from placement.ops.page.application import Page, host_names
        from placement.ops.page.view import Sources

        sources = Sources(conf, database, provider_cache, check, processes.registry(directory), collector.plan)
        # If other machines can reach the address, the page accepts any host name.
        page = Page(sources, host_names(host))
    parent = os.getppid()
    health_paths = (HEALTH_PATH, HEALTH_PATH + READY)
    try:
        with single_process.listen(bind, host, int(port)) as listener:
            served = application(check.problem, registry, page)
            single_process.serve(served, listener, lambda: os.getppid() != parent, health_paths)
    finally:
        database.dispose()
    return 0


def application(
    check: Callable[[], str | None], registry: CollectorRegistry, page: WSGIApplication | None = None
) -> WSGIApplication:
    """Return the application for ``/metrics``, ``/healthcheck`` and ``/healthcheck/ready``. Anything else is 404.

    :param check: returns a sentence that says why the database cannot be used, or None.
    :param registry: the registry that ``/metrics`` shows.
    :param page: the application for the paths below ``/page``; None for no page.
    """
    metrics_app: WSGIApplication = make_wsgi_app(registry)
    paths = [METRICS_PATH, HEALTH_PATH, HEALTH_PATH + READY, *([] if page is None else [f'{PAGE_PATH}/'])]
    not_found = f'Not found. Try {", ".join(paths)}.\n'

    def route(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ['PATH_INFO'] == METRICS_PATH:
            return metrics_app(environ, start_response)
        if page is not None and f'{environ["PATH_INFO"]}/'.startswith(f'{PAGE_PATH}/'):
            environ['SCRIPT_NAME'] += PAGE_PATH
            environ['PATH_INFO'] = environ['PATH_INFO'].removeprefix(PAGE_PATH)
            return page(environ, start_response)
        headers = [('Content-Type', 'text/plain'), ('Content-Length', str(len(not_found)))]
        start_response('404 Not Found', [*headers, ('Cache-Control', 'no-store')])
        return [b'' if environ['REQUEST_METHOD'] == 'HEAD' else not_found.encode()]

    return HealthCheck(route, HEALTH_PATH, check)


if __name__ == '__main__':
    sys.exit(main())
