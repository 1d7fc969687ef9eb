"""Serves the metrics and health of a placement service on ``[metrics] bind``: ``python -m placement.cmd.exporter``."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from oslo_config import cfg

from placement import conf as placement_conf
from placement import exception
from placement.db.api import Database

PROGRAM = 'placement.cmd.exporter'
DESCRIPTION = """
Serve /metrics (for Prometheus), /healthcheck and /healthcheck/ready on the address in [metrics] bind.
placement-api starts this by itself. Under another WSGI server run it beside the server, with the same configuration
and the same PROMETHEUS_MULTIPROC_DIR. It ends when the process that started it ends.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the parent process is gone. Exit code 1, after one line on stderr, when that cannot be done."""
    parser = argparse.ArgumentParser(prog=f'python -m {PROGRAM}', description=DESCRIPTION)
    parser.add_argument('--config-file', action='append', help='configuration file; may be repeated')
    arguments = parser.parse_args(argv)
    try:
        conf = placement_conf.load(config_files=arguments.config_file)
        bind = conf.metrics.bind
    except exception.ConfigurationInvalid as error:
        return _failed(str(error))
    if not bind:
        return _failed('[metrics] bind is not set.')
    if not os.path.isdir(os.environ.get('PROMETHEUS_MULTIPROC_DIR', '')):
        return _failed('PROMETHEUS_MULTIPROC_DIR does not name the directory in which the service keeps its counts.')
    try:
        _serve(conf)
    except OSError as error:
        return _failed(f'Cannot listen on {bind}: {error.strerror}.')
    return 0


def _serve(conf: cfg.ConfigOpts) -> None:
    # Not at the top: the library chooses how to store values when it is imported, by PROMETHEUS_MULTIPROC_DIR.
    from placement.observability import exporter, prometheus

    database = Database(conf)
    try:
        exporter.serve(exporter.application(database, prometheus.shared_registry()), conf.metrics.bind)
    finally:
        database.dispose()


def start(config_files: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start this as a process beside the calling one, which it does not outlive. It inherits the environment."""
    arguments = [f'--config-file={name}' for name in config_files]
    command = [sys.executable, '-m', PROGRAM, *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 (our own program)


def _failed(reason: str) -> int:
    print(f'{PROGRAM}: {reason}', file=sys.stderr)
    return 1


if __name__ == '__main__':
    sys.exit(main())
