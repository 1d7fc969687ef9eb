"""``placement-manage openapi``: print the API as an OpenAPI document."""

from __future__ import annotations

import argparse
from typing import Any

from placement import conf as placement_conf
from placement import exception
from placement.cmd import output
from placement.web import microversion


def add_parser(commands: Any) -> None:
    """Add ``openapi`` to the parser of ``placement-manage``."""
    parser = commands.add_parser(
        'openapi',
        help='print the API as an OpenAPI 3.1 document',
        description='Print the OpenAPI 3.1 document of one microversion as JSON. No database is needed.',
    )
    parser.add_argument(
        '--microversion',
        metavar='VERSION',
        help='1.0 to [placement] max_microversion, which is also the default',
    )
    parser.set_defaults(run=_print, needs_database=False)


def _print(args: argparse.Namespace) -> int:
    # Not at the top: it imports everything that answers requests, a third of the time that every command would take.
    from placement import openapi

    conf = placement_conf.load(argv=['--config-file', args.config_file] if args.config_file else [])
    newest = conf.placement.max_microversion
    version = args.microversion or newest
    if version not in microversion.served(newest):
        raise exception.ConfigurationInvalid(
            reason=f'Microversion {version} is not served; those that are go from {microversion.VERSIONS[0]} to'
            f' [placement] max_microversion, {newest}.'
        )
    output.print_json(openapi.document(microversion.parse_version_string(version)))
    return 0
