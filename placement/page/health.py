"""The view Health: the state of the cache, the findings of an audit, and the recent activity of the service."""

from __future__ import annotations

import time
from typing import Any

from placement.audit import checks
from placement.db.api import Database
from placement.observability.sliding_window import Activity
from placement.page.parameters import Parameters
from placement.page.rendering import View
from placement.page.sources import Sources
from placement.reports import database_health

#: Most findings of one kind that are shown.
_FINDINGS = 20
#: Seconds after which an audit starts no further check.
_PATIENCE = 1.0
#: Most routes that are shown, the busiest first, and most origins of connections to the database.
_ROUTES, _CONNECTIONS = 15, 50


def view(sources: Sources, parameters: Parameters) -> View:
    """Show the state of the cache and of the service, and, with the parameter ``audit``, the findings of an audit."""
    wanted = parameters.choice('audit', ('none', 'all', *checks.CHECKS))
    state = sources.provider_cache.current()
    changed = database_health.seconds_since_change(sources.db)
    activity = sources.recent.activity() if sources.recent else None
    data = {
        'cache': {'providers': state.provider_count, 'seconds_since_change': changed, **_checked(activity)},
        'audit': None if wanted == 'none' else _audit(sources, wanted),
        'activity': _activity(activity) if activity else None,
        'connections': _connections(sources.db),
    }
    return View('health.html', 'Health', data, {'kinds': _KINDS})


def _checked(activity: Activity | None) -> dict[str, Any]:
    """How long ago a process of the service compared its cache with the database; None when that is not known."""
    checked = activity.cache_checked if activity else None
    return {'service_checked_seconds_ago': max(time.time() - checked, 0.0) if checked else None}


def _audit(sources: Sources, wanted: str) -> list[dict[str, Any]]:
    """The findings of each check, or only of ``wanted``; ``found`` is None for a check that was not started in time."""
    started = time.monotonic()
    results: list[dict[str, Any]] = []
    for kind in checks.CHECKS if wanted == 'all' else (wanted,):
        if time.monotonic() - started > _PATIENCE:
            results.append({'kind': kind, 'found': None, 'findings': []})
            continue
        findings = checks.find(sources.db, sources.conf, kind)
        shown = [
            {'subject': one.subject, 'detail': one.detail, 'repairable': one.repair is not None}
            for one in findings[:_FINDINGS]
        ]
        results.append({'kind': kind, 'found': len(findings), 'findings': shown})
    return results


def _connections(db: Database) -> list[dict[str, Any]] | None:
    found = database_health.connections(db)
    return None if found is None else [one._asdict() for one in found[:_CONNECTIONS]]


def _activity(activity: Activity) -> dict[str, Any]:
    return {
        'seconds': round(activity.seconds),
        'requests': sum(one.requests for one in activity.routes),
        'server_errors': sum(one.server_errors for one in activity.routes),
        'routes': activity.routes[:_ROUTES],
        'claims_granted': activity.claims_accepted,
        'claims_refused': activity.claims_rejected,
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
