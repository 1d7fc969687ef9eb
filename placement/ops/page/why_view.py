"""The view Why?: the explanation of a search for candidates, and the latest searches without candidates."""

from __future__ import annotations

import dataclasses
from typing import Any

from placement import exception
from placement.ops.explain import explanation, searches_in_log, searches_in_text, sentences
from placement.ops.page.view import Parameters, Sources, View
from placement.search.budget import SearchBudget

#: For one explanation, the maximum numbers of steps of the search and of candidates.
_MAX_STEPS, _MAX_CANDIDATES = 300_000, 10_000


def why_view(sources: Sources, parameters: Parameters) -> View:
    """Explain the search that was pasted, if any, and list the latest searches without candidates."""
    text = parameters.text('query')
    snapshot = sources.provider_cache.up_to_date()
    data: dict[str, Any] = {'query': None, 'microversion': None, 'explanation': None, 'empty_searches': None}
    extra: dict[str, Any] = {
        'stored': snapshot.provider_count,
        'pasted': text,
        'log': sources.log,
        'problem': None,
        'error': None,
    }
    if text:
        try:
            pasted = searches_in_text.read(text, parameters.text('microversion'), sources.conf)
            budget = SearchBudget.for_search(sources.conf.placement)
            budget.max_steps = min(budget.max_steps, _MAX_STEPS)
            budget.max_candidates = min(budget.max_candidates, _MAX_CANDIDATES)
            result = explanation.explain(snapshot, pasted.request, budget)
        except (exception.BadQuery, exception.ResourceClassNotFound, exception.TraitNotFound) as error:
            # The form keeps the pasted text, so that users can correct it.
            data['error'] = extra['error'] = {'title': 'The query is not valid', 'detail': ' '.join(str(error).split())}
        else:
            data |= {
                'query': pasted.query,
                'microversion': pasted.microversion,
                'explanation': sentences.Writer(sources.names).document(result),
            }
            extra |= {'trees': result.trees, 'sentences': sentences}
    if sources.log is not None:
        try:
            data['empty_searches'] = dataclasses.asdict(searches_in_log.recent(sources.log))
        except OSError as error:
            extra['problem'] = error.strerror
    return View('why.html', 'Why?', data, extra, status=400 if 'error' in data else 200)
