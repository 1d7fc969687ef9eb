"""``placement-manage page``: serve a read-only web page for operators."""

from __future__ import annotations

import argparse
import contextlib
import re

from oslo_config import cfg

from placement import exception
from placement.cache.refresh import ProviderCache
from placement.cmd import output
from placement.db.api import Database
from placement.db.health import TimedCheck
from placement.ops.background_query import plan_query
from placement.ops.page.application import Page, host_names, is_loopback
from placement.ops.page.view import Sources
from placement.serving import single_process


def run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Serve the page until Ctrl-C."""
    match = re.fullmatch(r'(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):([0-9]{1,5})', args.bind)
    if match is None or int(match[2]) > 65535:
        raise exception.ConfigurationInvalid(reason=f'--bind takes HOST:PORT or [IPV6]:PORT, not {args.bind!r}.')
    host, port = match[1].strip('[]').lower(), int(match[2])
    if not args.allow_remote and not is_loopback(host):
        raise exception.ConfigurationInvalid(
            reason=f'Other machines can reach {host}, and the page has no authentication.'
            ' Pass --allow-remote to serve it there.'
        )
    provider_cache = ProviderCache(db)
    with output.waiting('Reading the resource providers ...'):
        provider_cache.up_to_date()
    sources = Sources(conf, db, provider_cache, TimedCheck(db), plan=plan_query(db, conf.metrics))
    application = Page(sources, None if args.allow_remote else host_names(host))
    with single_process.listen(args.bind, host, port) as listener, contextlib.suppress(KeyboardInterrupt):
        print(f'The page is at http://{args.bind}/ until Ctrl-C.', flush=True)
        single_process.serve(application, listener)
    return 0
