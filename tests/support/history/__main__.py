"""Load any Placement service and check it: ``python -m tests.support.history http://127.0.0.1:8778``."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence

from tests.support.history import check
from tests.support.history.client import Client, RejectedError, UnreachableError
from tests.support.history.load import Load


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns 0 without violations, 1 with violations, 2 when the service cannot be used."""
    parser = argparse.ArgumentParser(prog='python -m tests.support.history', description=__doc__)
    parser.add_argument('urls', nargs='+', metavar='URL', help='one or more addresses of the same service')
    parser.add_argument('--clients', type=int, default=8, help='concurrent callers (default: %(default)s)')
    parser.add_argument('--seconds', type=float, default=10.0, help='how long (default: %(default)s)')
    parser.add_argument('--token', default='admin', help='value of X-Auth-Token (default: %(default)s)')
    parser.add_argument('--lenient-reads', action='store_true', help='allow reads to show an older state')
    arguments = parser.parse_args(argv)
    try:
        return _run(arguments)
    except (RejectedError, UnreachableError) as error:
        print(f'history: {str(error) or "no address takes connections: " + ", ".join(arguments.urls)}', file=sys.stderr)
        return 2


def _run(arguments: argparse.Namespace) -> int:
    strict = not arguments.lenient_reads
    with Load.running(arguments.urls, arguments.clients, token=arguments.token, strict_reads=strict) as load:
        time.sleep(arguments.seconds)
    violations = check.violations(load)
    print('\n'.join([load.summary(), f'violations {len(violations)}', *violations]))
    with contextlib.closing(Client(arguments.urls, token=arguments.token)) as client:
        _remove(client, load.providers)
    return 1 if violations else 0


def _remove(client: Client, providers: Sequence[str]) -> None:
    """Delete providers and all allocations of them."""
    parents = {}
    for provider in providers:
        parents[provider] = client.demand('GET', f'/resource_providers/{provider}')['parent_provider_uuid']
        for consumer in client.demand('GET', f'/resource_providers/{provider}/allocations')['allocations']:
            client.demand('DELETE', f'/allocations/{consumer}')
    while parents:
        for provider in parents.keys() - parents.values():
            client.demand('DELETE', f'/resource_providers/{provider}')
            del parents[provider]


if __name__ == '__main__':
    sys.exit(main())
