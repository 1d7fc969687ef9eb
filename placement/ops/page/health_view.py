"""The view Health: the state of the cache, the findings of an audit, and counters since the start of the service."""

from __future__ import annotations

import collections
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from placement.db import health as database_health
from placement.observability import ACCEPTED
from placement.ops.audit import audit
from placement.ops.audit.kinds import KINDS
from placement.ops.page.view import Parameters, Sources, View, is_read_only

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

#: Maximum number of findings of one kind that are shown.
_FINDINGS = 20
#: An audit starts no check after this number of seconds.
_AUDIT_SECONDS = 1.0
#: Maximum numbers of routes to show, the busiest first, and of origins of connections to the database.
_ROUTES, _CONNECTIONS = 15, 50


def health_view(sources: Sources, parameters: Parameters) -> View:
    """Show the state of the cache and of the service, and the findings of the checks that ``audit`` chooses."""
    chosen = parameters.choice('audit', ('quick', 'all', *KINDS))
    kinds = {
        name for name, kind in KINDS.items() if chosen in (name, 'all') or (chosen == 'quick' and kind.runs_by_default)
    }
    snapshot = sources.provider_cache.up_to_date()
    activity = _activity(sources.metrics) if sources.metrics else None
    checked = sources.metrics and sources.metrics.get_sample_value('placement_cache_checked_timestamp_seconds')
    results = _audit(sources, kinds)
    connections = database_health.connections(sources.db)
    data = {
        'cache': {
            'providers': snapshot.provider_count,
            'service_checked_seconds_ago': max(time.time() - checked, 0.0) if checked else None,
        },
        'database': {'read_only': is_read_only(sources)},
        'audit': results,
        'activity': activity,
        'connections': connections and connections[:_CONNECTIONS],
    }
    problems = any(result['found'] and not KINDS[result['kind']].for_information for result in results)
    return View('health.html', 'Health', data, {'kinds': KINDS, 'problems': problems})


def _audit(sources: Sources, kinds: Collection[str]) -> list[dict[str, Any]]:
    """Return the findings of each check; ``found`` is None if it is not in ``kinds`` or was not started in time."""
    started = time.monotonic()
    results: dict[str, dict[str, Any]] = {}
    for kind in sorted(KINDS, key=lambda kind: not KINDS[kind].runs_by_default):
        is_started = kind in kinds and time.monotonic() - started <= _AUDIT_SECONDS
        findings = audit.find(sources.db, sources.conf, kind) if is_started else []
        shown = [
            {
                'subject': finding.subject,
                'detail': finding.detail,
                'repairable': bool(finding.changes),
                'needs_action': finding.needs_action,
            }
            for finding in findings[:_FINDINGS]
        ]
        results[kind] = {'kind': kind, 'found': len(findings) if is_started else None, 'findings': shown}
    return [results[kind] for kind in KINDS]


def _activity(registry: CollectorRegistry) -> dict[str, Any]:
    """Return the counts of all processes since the start of the service; the routes with most requests come first."""
    samples = collections.defaultdict(list)
    for family in registry.collect():
        for sample in family.samples:
            samples[sample.name].append(sample)

    def counts(name: str, label: str) -> dict[str, int]:
        """Return the counts above 0 by the value of a label."""
        return {sample.labels[label]: int(sample.value) for sample in samples[name] if sample.value}

    # By method and route, the numbers of requests by the first digit of the status.
    statuses: dict[tuple[str, str], collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for sample in samples['placement_requests_total']:
        statuses[sample.labels['method'], sample.labels['route']][sample.labels['status'][0]] += int(sample.value)
    durations = samples['placement_request_duration_seconds_sum']
    seconds = {(sample.labels['method'], sample.labels['route']): sample.value for sample in durations}
    routes = [
        {
            'route': route,
            'method': method,
            'requests': requests.total(),
            'client_errors': requests['4'],
            'server_errors': requests['5'],
            'mean': seconds.get((method, route), 0.0) / requests.total(),
        }
        for (method, route), requests in sorted(statuses.items(), key=lambda item: (-item[1].total(), item[0]))
    ]
    claims = counts('placement_claims_total', 'result')
    returned = 'placement_allocation_candidates_returned'
    return {
        'requests': sum(route['requests'] for route in routes),
        'server_errors': sum(route['server_errors'] for route in routes),
        'routes': routes[:_ROUTES],
        'claims_accepted': claims.pop(ACCEPTED, 0),
        'claims_rejected': claims,
        'transactions_retried': counts('placement_transaction_retries_total', 'reason'),
        'searches': sum(int(sample.value) for sample in samples[f'{returned}_count']),
        'empty_searches': counts(f'{returned}_bucket', 'le').get('0.0', 0),
    }
