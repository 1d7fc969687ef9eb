"""``placement-manage openapi``: print the API as an OpenAPI document."""

from __future__ import annotations

import argparse
from typing import Any

from placement.cmd import output
from placement.web import microversion


def add_parser(commands: Any) -> None:
    """Add ``openapi`` to the parser of ``placement-manage``."""
    parser = commands.add_parser(
        'openapi',
        help='print the API as an OpenAPI 3.1 document',
        description='Print the OpenAPI 3.1 document of one microversion as JSON. Neither a configuration nor a database'
        ' is needed.',
    )
    parser.add_argument(
        '--microversion',
        metavar='VERSION',
        choices=microversion.VERSIONS,
        default=microversion.max_version_string(),
        help='1.0 to %(default)s (default: %(default)s)',
    )
    parser.set_defaults(run=_print, needs_database=False)


def _print(args: argparse.Namespace) -> int:
    # Not at the top: it imports everything that answers requests, a third of the time that every command would take.
    from placement import openapi

    output.print_json(openapi.document(microversion.parse_version_string(args.microversion)))
    return 0
