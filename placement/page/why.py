"""The view Why?: the explanation of a search for candidates, and the latest searches without candidates."""

from __future__ import annotations

import dataclasses
from typing import Any

from oslo_config import cfg

from placement import exception
from placement.handlers import pasted_search
from placement.objects import search_limits
from placement.page.parameters import Parameters
from placement.page.rendering import View
from placement.page.sources import Sources
from placement.reports import explanation, pasted_query, searches_in_log

#: Maximum numbers of steps of the search, and of candidates, of one explanation.
_MAX_STEPS, _MAX_CANDIDATES = 300_000, 10_000
#: The exceptions for a query that the API would reject.
_INVALID = (
    pasted_query.NoQuery,
    pasted_search.BadSearch,
    exception.ResourceClassNotFound,
    exception.TraitNotFound,
)


def view(sources: Sources, parameters: Parameters) -> View:
    """Explain the search that was pasted, if any, and list the latest searches without candidates."""
    text = parameters.text('query')
    state = sources.provider_cache.current()
    data: dict[str, Any] = {'query': None, 'microversion': None, 'explanation': None, 'empty_searches': None}
    extra: dict[str, Any] = {
        'stored': state.provider_count,
        'pasted': text,
        'result': None,
        'log': sources.log,
        'trouble': None,
        'error': None,
    }
    if text:
        try:
            pasted = pasted_search.read(text, parameters.text('microversion'), sources.conf)
            result = explanation.explain(state, pasted.request, _options(sources.conf))
        except _INVALID as error:
            # The form keeps what was pasted, so that it can be corrected.
            data['error'] = extra['error'] = {'title': 'The query is not valid', 'detail': str(error)}
        else:
            data |= {'query': pasted.query, 'microversion': pasted.microversion, 'explanation': result.as_data()}
            extra |= {'result': result, 'trees': sum(int(one.has_root.sum()) for one in state.partitions)}
    if sources.log is not None:
        try:
            data['empty_searches'] = dataclasses.asdict(searches_in_log.recent(sources.log))
        except OSError as error:
            extra['trouble'] = error.strerror
    return View('why.html', 'Why?', data, extra, status=400 if 'error' in data else 200)


def _options(conf: cfg.ConfigOpts) -> explanation.Options:
    limits = search_limits.for_search(conf.placement)
    limits.max_steps = min(limits.max_steps, _MAX_STEPS)
    limits.max_candidates = min(limits.max_candidates, _MAX_CANDIDATES)
    return explanation.Options(limits)
