"""The view Health: the state of the cache, the findings of an audit, and the recent activity of the service."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from placement.audit import checks
from placement.cache.snapshot import Snapshot
from placement.db.api import Database
from placement.observability.sliding_window import Activity
from placement.page.parameters import Parameters
from placement.page.rendering import View
from placement.page.sources import Sources
from placement.reports import database_health

#: Maximum number of findings of one kind that are shown.
_FINDINGS = 20
#: Seconds after which an audit starts no further check.
_AUDIT_SECONDS = 1.0
#: The checks that every view makes: they read providers, inventories and aggregates, but neither consumers nor
#: allocations.
_CHEAP_CHECKS = ('invalid_tree', 'over_committed', 'orphaned_aggregate')
#: Maximum numbers of routes that are shown, the busiest first, and of origins of connections to the database.
_ROUTES, _CONNECTIONS = 15, 50


def view(sources: Sources, parameters: Parameters) -> View:
    """Show the state of the cache and of the service, and the findings of the checks that ``audit`` chooses."""
    wanted = parameters.choice('audit', ('cheap', 'all', *checks.CHECKS))
    state = sources.provider_cache.current()
    changed = database_health.seconds_since_change(sources.db)
    activity = sources.recent.activity() if sources.recent else None
    audit = _audit(
        sources, _CHEAP_CHECKS if wanted == 'cheap' else tuple(checks.CHECKS) if wanted == 'all' else (wanted,)
    )
    data = {
        'cache': {'providers': state.provider_count, 'seconds_since_change': changed, **_checked(activity)},
        'audit': audit,
        'activity': _activity(activity) if activity else None,
        'connections': _connections(sources.db),
    }
    return View(
        'health.html',
        'Health',
        data,
        {'kinds': _KINDS, 'informational': _informational(audit), 'names': _provider_names(state, audit)},
    )


def _informational(audit: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the kinds of findings about which nothing has to be done."""
    return {one['kind'] for one in audit if one['found'] and not any(it['needs_action'] for it in one['findings'])}


def _provider_names(state: Snapshot, audit: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the names of the providers in the findings, by uuid."""
    uuids = {finding['subject'].get('resource_provider') for one in audit for finding in one['findings']}
    found = ((uuid, state.find_provider(uuid)) for uuid in uuids if uuid is not None)
    return {uuid: provider.name for uuid, provider in found if provider is not None and provider.name}


def _checked(activity: Activity | None) -> dict[str, Any]:
    """Return how long ago a process of the service compared its cache with the database; None if unknown."""
    checked = activity.cache_checked if activity else None
    return {'service_checked_seconds_ago': max(time.time() - checked, 0.0) if checked else None}


def _audit(sources: Sources, wanted: Collection[str]) -> list[dict[str, Any]]:
    """Return the findings of each check; ``found`` is None for one that is not wanted or was not started in time."""
    started = time.monotonic()
    results: dict[str, dict[str, Any]] = {}
    for kind in sorted(checks.CHECKS, key=lambda kind: kind not in _CHEAP_CHECKS):
        if kind not in wanted or time.monotonic() - started > _AUDIT_SECONDS:
            results[kind] = {'kind': kind, 'found': None, 'findings': []}
            continue
        findings = checks.find(sources.db, sources.conf, kind)
        shown = [
            {
                'subject': one.subject,
                'detail': one.detail,
                'repairable': one.repair is not None,
                'needs_action': one.needs_action,
            }
            for one in findings[:_FINDINGS]
        ]
        results[kind] = {'kind': kind, 'found': len(findings), 'findings': shown}
    return [results[kind] for kind in checks.CHECKS]


def _connections(db: Database) -> list[dict[str, Any]] | None:
    found = database_health.connections(db)
    return None if found is None else [one._asdict() for one in found[:_CONNECTIONS]]


def _activity(activity: Activity) -> dict[str, Any]:
    return {
        'seconds': round(activity.seconds),
        'requests': sum(one.requests for one in activity.routes),
        'server_errors': sum(one.server_errors for one in activity.routes),
        'routes': activity.routes[:_ROUTES],
        'claims_accepted': activity.claims_accepted,
        'claims_rejected': activity.claims_rejected,
        'transactions_retried': activity.transactions_retried,
        'searches': activity.searches,
        'empty_searches': activity.empty_searches,
    }


#: The heading for each kind of finding.
_KINDS = {
    'invalid_tree': 'Invalid trees',
    'allocation_without_consumer': 'Allocations without a consumer',
    'consumer_without_allocations': 'Consumers without allocations',
    'allocation_without_inventory': 'Allocations without inventory',
    'usage_mismatch': 'Usage mismatches',
    'over_committed': 'Over-committed inventories',
    'unit_violation': 'Unit violations',
    'orphaned_aggregate': 'Aggregates without providers',
}
