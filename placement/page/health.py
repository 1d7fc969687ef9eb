"""The view Health: is the mirror in step, what does an audit find, what was asked of the service lately."""

from __future__ import annotations

import time
from typing import Any

from placement.audit import checks
from placement.db.api import Database
from placement.observability.recent import Activity
from placement.page.asked import Asked
from placement.page.desk import Desk
from placement.page.rendering import View
from placement.reports import vital_signs

#: Findings of one kind that are shown.
_FINDINGS = 20
#: Seconds after which an audit makes no further check.
_PATIENCE = 1.0
#: Routes that are shown, the busiest first, and places that connections to the database come from.
_ROUTES, _CONNECTIONS = 15, 50


def view(desk: Desk, asked: Asked) -> View:
    """The state of the mirror and of the service, and with ``audit`` what is wrong in the database."""
    wanted = asked.choice('audit', ('none', 'all', *checks.CHECKS))
    state = desk.mirror.current()
    changed = vital_signs.seconds_since_change(desk.db)
    activity = desk.recent.activity() if desk.recent else None
    data = {
        'mirror': {'providers': state.providers, 'seconds_since_change': changed, **_checked(activity)},
        'audit': None if wanted == 'none' else _audit(desk, wanted),
        'activity': _activity(activity) if activity else None,
        'connections': _connections(desk.db),
    }
    return View('health.html', 'Health', data, {'kinds': _KINDS})


def _checked(activity: Activity | None) -> dict[str, Any]:
    """How long ago a mirror of the service was held against the database, as far as that is counted."""
    checked = activity.mirror_checked if activity else None
    return {'service_checked_seconds_ago': max(time.time() - checked, 0.0) if checked else None}


def _audit(desk: Desk, wanted: str) -> list[dict[str, Any]]:
    """What each check finds, or the one that is ``wanted``; ``found`` is None of those for which no time is left."""
    started = time.monotonic()
    told: list[dict[str, Any]] = []
    for kind in checks.CHECKS if wanted == 'all' else (wanted,):
        if time.monotonic() - started > _PATIENCE:
            told.append({'kind': kind, 'found': None, 'findings': []})
            continue
        findings = checks.find(desk.db, desk.conf, kind)
        shown = [
            {'subject': one.subject, 'detail': one.detail, 'repairable': one.repair is not None}
            for one in findings[:_FINDINGS]
        ]
        told.append({'kind': kind, 'found': len(findings), 'findings': shown})
    return told


def _connections(db: Database) -> list[dict[str, Any]] | None:
    found = vital_signs.connections(db)
    return None if found is None else [one._asdict() for one in found[:_CONNECTIONS]]


def _activity(activity: Activity) -> dict[str, Any]:
    return {
        'seconds': round(activity.seconds),
        'requests': sum(one.requests for one in activity.routes),
        'server_errors': sum(one.server_errors for one in activity.routes),
        'routes': activity.routes[:_ROUTES],
        'claims_granted': activity.granted,
        'claims_refused': activity.refused,
        'transactions_retried': activity.retried,
        'searches': activity.searches,
        'empty_searches': activity.empty_searches,
    }


#: What each kind of finding is, in words.
_KINDS = {
    'broken_tree': 'Broken trees',
    'allocation_without_provider': 'Allocations without a provider',
    'allocation_without_consumer': 'Allocations without a consumer',
    'consumer_without_allocations': 'Consumers without allocations',
    'allocation_without_inventory': 'Allocations without inventory',
    'wrong_usage': 'Wrong usages',
    'over_committed': 'Over-committed inventories',
    'broken_units': 'Allocations against unit rules',
    'orphaned_aggregate': 'Aggregates without providers',
}
