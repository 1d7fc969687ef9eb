"""The view Why?: the explanation of a search for candidates, and the latest searches that found nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

from oslo_config import cfg

from placement.handlers import pasted_search
from placement.objects import search_limits
from placement.page.parameters import BadInput, Parameters
from placement.page.rendering import View
from placement.page.sources import Sources
from placement.reports import explanation, pasted_query, searches_in_log

#: Most steps of the search, and most candidates, of one explanation.
_STEPS, _CANDIDATES = 300_000, 10_000


def view(sources: Sources, parameters: Parameters) -> View:
    """Explain the search that was pasted, if any, and list the searches that found nothing lately."""
    text = parameters.text('query')
    data: dict[str, Any] = {'query': None, 'microversion': None, 'explanation': None, 'empty_searches': None}
    extra: dict[str, Any] = {'pasted': text, 'result': None, 'log': sources.log, 'trouble': None}
    if text:
        pasted = _pasted(text, parameters.text('microversion'), sources.conf)
        state = sources.provider_cache.current()
        result = explanation.explain(state, pasted.request, _options(sources.conf))
        trees = sum(int(block.has_root.sum()) for block in state.partitions)
        data |= {'query': pasted.query, 'microversion': pasted.microversion, 'explanation': result.as_data()}
        extra |= {'result': result, 'trees': trees, 'most': max(trees, 1)}
    if sources.log is not None:
        try:
            data['empty_searches'] = dataclasses.asdict(searches_in_log.recent(sources.log))
        except OSError as error:
            extra['trouble'] = error.strerror
    return View('why.html', 'Why?', data, extra)


def _pasted(text: str, version: str, conf: cfg.ConfigOpts) -> pasted_search.PastedSearch:
    try:
        return pasted_search.read(text, version, conf)
    except (pasted_query.NoQuery, pasted_search.BadSearch) as error:
        raise BadInput(reason=str(error)) from error


def _options(conf: cfg.ConfigOpts) -> explanation.Options:
    limits = search_limits.for_search(conf.placement)
    limits.max_steps = min(limits.max_steps, _STEPS)
    limits.max_candidates = min(limits.max_candidates, _CANDIDATES)
    return explanation.Options(limits)
