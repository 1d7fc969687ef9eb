"""The view Plan: which hosts may fail, whether hosts can be drained, and what another allocation ratio would change."""

from __future__ import annotations

from typing import Any

from oslo_utils import timeutils

from placement import exception
from placement.ops.page.view import Parameters, Sources, View
from placement.ops.planning import drain, plan_sentences, ratio
from placement.ops.planning.loads import PlanOptions

#: Maximum number of rows of a table.
_ROWS = 50


def plan_view(sources: Sources, parameters: Parameters) -> View:
    """Show the latest check of failing hosts, and the answers to the forms.

    The check runs in the background.
    """
    data: dict[str, Any] = {'failures': None, 'drain': None, 'ratio': None}
    extra: dict[str, Any] = {'is_checked': False, 'meaning': plan_sentences.MEANING, 'error': None, 'rows': _ROWS}
    if sources.plan is not None and sources.plan.is_enabled:
        extra['is_checked'] = True
        data['failures'] = sources.plan.latest()
    try:
        if hosts := parameters.text('drain').replace(',', ' ').split():
            names = ('keep_traits', 'keep_aggregates', 'spread', 'move_shared')
            options = PlanOptions(**{name: bool(parameters.text(name)) for name in names})
            plan = drain.plan_drain(sources.db, hosts, None, options)
            data['drain'] = plan_sentences.document(plan_sentences.drain_sentences(plan), plan)
            extra['destinations'] = plan_sentences.destinations(plan)
        if change := parameters.text('ratio'):
            read_at = timeutils.utcnow(with_timezone=True)
            snapshot = sources.provider_cache.up_to_date()
            report = ratio.compare_ratio(snapshot, *ratio.parse_change(change), None, [])
            data['ratio'] = plan_sentences.document(plan_sentences.ratio_sentences(report), report, read_at=read_at)
            extra['ratio_rows'] = plan_sentences.ratio_rows(report)
    except (exception.BadQuery, exception.NotFound) as error:
        # The form keeps the text, so that users can correct it.
        data['error'] = extra['error'] = str(error)
    return View('plan.html', 'Plan', data, extra, status=400 if 'error' in data else 200)
