"""``placement-manage openapi``: print the API as an OpenAPI document."""

from __future__ import annotations

import argparse

from placement import exception, openapi
from placement.cmd import command, output
from placement.web import microversion


def run(args: argparse.Namespace) -> int:
    """Print the OpenAPI document of one microversion."""
    newest = command.load_configuration(args).placement.max_microversion
    version = args.microversion or newest
    if version not in microversion.served(newest):
        raise exception.ConfigurationInvalid(
            reason=f'Microversion {version} is not served. The service offers {microversion.VERSIONS[0]} to {newest},'
            ' its [placement] max_microversion.'
        )
    output.print_json(openapi.document(microversion.parse_version_string(version)))
    return 0
