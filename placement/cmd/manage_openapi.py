"""``placement-manage openapi``: print the API as an OpenAPI document."""

from __future__ import annotations

import argparse

from placement import exception
from placement.cmd import command, output
from placement.cmd.command import CommandParser
from placement.web import microversion


def add_command(program: CommandParser) -> None:
    """Add ``openapi`` to the parser of ``placement-manage``."""
    summary = 'print the API as an OpenAPI 3.1 document'
    description = 'Print the OpenAPI 3.1 document of one microversion as JSON. No database is needed.'
    parser = program.add_command('openapi', summary, description, run=_print, needs_database=False)
    parser.add_argument(
        '--microversion',
        metavar='VERSION',
        help='1.0 to [placement] max_microversion, which is also the default',
    )


def _print(args: argparse.Namespace) -> int:
    # This is not at the top: it imports all handlers, which would take a third of the time of every command.
    from placement import openapi

    newest = command.load_configuration(args).placement.max_microversion
    version = args.microversion or newest
    if version not in microversion.served(newest):
        raise exception.ConfigurationInvalid(
            reason=f'Microversion {version} is not served. The service offers {microversion.VERSIONS[0]} to {newest},'
            ' its [placement] max_microversion.'
        )
    output.print_json(openapi.document(microversion.parse_version_string(version)))
    return 0
