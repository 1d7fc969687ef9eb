"""The view Why?: what becomes of a search for candidates, and the latest searches that found nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

from oslo_config import cfg

from placement.handlers import pasted_search
from placement.objects import candidate_bounds
from placement.page.asked import Asked, BadInput
from placement.page.desk import Desk
from placement.page.rendering import View
from placement.reports import explanation, pasted_query, searches_in_log

#: Steps of the search and candidates of one explanation; a question "what if" may take a tenth of the steps.
_STEPS, _CANDIDATES = 300_000, 10_000


def view(desk: Desk, asked: Asked) -> View:
    """Explain the search that was pasted; without one show what found nothing lately."""
    text = asked.text('query')
    data: dict[str, Any] = {'query': None, 'microversion': None, 'explanation': None, 'empty_searches': None}
    extra: dict[str, Any] = {'pasted': text, 'told': None, 'log': desk.log, 'trouble': None}
    if text:
        pasted = _pasted(text, asked.text('microversion'), desk.conf)
        state = desk.mirror.current()
        told = explanation.explain(state, pasted.request, _options(desk.conf))
        trees = sum(int(block.whole.sum()) for block in state.blocks)
        data |= {'query': pasted.query, 'microversion': pasted.microversion, 'explanation': told.as_data()}
        extra |= {'told': told, 'trees': trees, 'most': max(trees, 1)}
    if desk.log is not None:
        try:
            data['empty_searches'] = dataclasses.asdict(searches_in_log.recent(desk.log))
        except OSError as error:
            extra['trouble'] = error.strerror
    return View('why.html', 'Why?', data, extra)


def _pasted(text: str, version: str, conf: cfg.ConfigOpts) -> pasted_search.PastedSearch:
    try:
        return pasted_search.read(text, version, conf)
    except (pasted_query.NoQuery, pasted_search.BadSearch) as error:
        raise BadInput(reason=str(error)) from error


def _options(conf: cfg.ConfigOpts) -> explanation.Options:
    budget = candidate_bounds.budget(conf.placement)
    budget.steps, budget.candidates = min(budget.steps, _STEPS), min(budget.candidates, _CANDIDATES)
    return explanation.Options(budget)
