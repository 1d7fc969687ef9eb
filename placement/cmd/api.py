"""``placement-api``: serves the API with gunicorn; with ``--dev`` it needs no configuration."""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence

from placement.cmd.parser import DEV_DATABASE, CommandParser, positive

DEFAULT_BIND = '127.0.0.1:8778'

_DESCRIPTION = """\
Serves the Placement API. The configuration is placement.conf in the directory OS_PLACEMENT_CONFIG_DIR (by default
/etc/placement), and the environment: OS_<GROUP>__<OPTION>, such as OS_PLACEMENT_DATABASE__CONNECTION.
SIGTERM stops it after the requests in flight; SIGHUP reloads the configuration."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal stops the process.

    :param argv: the arguments; None for the arguments of the process.
    :returns: the exit status: 1 if the service cannot start. One line on standard error has the reason.
    """
    arguments = _parser().parse_args(argv)
    # The imports take longer than everything above, which ends the process after --help, --version or a usage error.
    from placement.cmd import api_server

    return api_server.run(arguments)


def _parser() -> CommandParser:
    parser = CommandParser(
        'placement-api', description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_information()
    parser.add_flag(
        '--dev', 'run without a configuration file: data in SQLite, no authentication, reachable from this machine only'
    )
    parser.add_path(
        '--database',
        metavar='PATH',
        type=pathlib.Path,
        help=f'SQLite file of --dev, created when missing (default: {DEV_DATABASE} in the current directory)',
    )
    parser.add_argument(
        '--bind',
        metavar='ADDRESS',
        default=DEFAULT_BIND,
        help='HOST:PORT, [IPV6]:PORT or unix:PATH to listen on (default: %(default)s); a socket passed by systemd'
        ' is used instead',
    )
    parser.add_argument(
        '--workers', metavar='N', type=positive, help='worker processes (default: 1 with --dev, else [server] workers)'
    )
    parser.add_argument('--threads', metavar='N', type=positive, help='threads per process (default: [server] threads)')
    parser.add_flag(
        '--allow-insecure-noauth',
        'with auth_strategy noauth2 or --dev: serve also on an address that other machines can reach, although'
        ' every client is then an administrator',
    )
    return parser


if __name__ == '__main__':
    sys.exit(main())
