"""Explains for the log why a search found nothing, once per interval for each query."""

from __future__ import annotations

import threading
import time
from typing import Any

from placement import units
from placement.ops.explain.combination_failures import combination_failures
from placement.ops.explain.sentences import rejection_texts, rule_text, tree_conflict_text
from placement.ops.explain.stages import stages
from placement.search.budget import Limit, SearchBudget
from placement.search.prefilter import Prefilter
from placement.search.selection import AllocationCandidates

#: Maximum number of characters of a rule.
_MAX_RULE_LENGTH = 200
#: Seconds between two lines of the log about the same empty search.
LOG_INTERVAL_SECONDS = 60.0
#: Maximum number of queries to remember. If there are more, the query with the oldest log line is forgotten.
_MAX_QUERIES = 1000


class EmptySearches:
    """The empty searches of one process: which of them were logged, and how many were not.

    :param options: the configuration group ``placement``.
    """

    def __init__(self, options: Any) -> None:
        self._options = options
        self._lock = threading.Lock()
        #: By hash of the query, oldest line first: when it was last logged, and the searches not logged since then.
        self._logged: dict[int, tuple[float, int]] = {}

    def explain(self, query: str, candidates: AllocationCandidates) -> str | None:
        """Explain in one line why a search found nothing; None if it must not be logged, as for ``count_search``."""
        suppressed = self.count_search(query)
        if suppressed is None:
            return None
        explanation = explain_empty(candidates, SearchBudget.for_explanation(self._options))
        return explanation + (f' ({suppressed} more since the last such line)' if suppressed else '')

    def count_search(self, query: str) -> int | None:
        """Count a search that found nothing.

        :returns: None if the query was logged less than ``LOG_INTERVAL_SECONDS`` ago, so that this search must not be
            logged. Otherwise the number of searches with this query that were not logged since then.
        """
        now = time.monotonic()
        key = hash(query)
        with self._lock:
            logged_at, suppressed = self._logged.get(key, (-LOG_INTERVAL_SECONDS, 0))
            if now - logged_at < LOG_INTERVAL_SECONDS:
                self._logged[key] = logged_at, suppressed + 1
                return None
            # Removing the entry first makes the new one the last.
            self._logged.pop(key, None)
            self._logged[key] = now, 0
            if len(self._logged) > _MAX_QUERIES:
                del self._logged[next(iter(self._logged))]
            return suppressed


def explain_empty(candidates: AllocationCandidates, budget: SearchBudget) -> str:
    """Explain in one line, for the log, why a search found nothing.

    This takes much less time than ``explanation.explain``, because it makes no search with a changed request.

    :param budget: limits the repeated search of trees.
    """
    snapshot, request = candidates.snapshot, candidates.request
    counted = stages(Prefilter.for_request(snapshot, request))
    failures = combination_failures(snapshot, request, budget) if counted and counted[-1].trees else ()
    parts = []
    for stage in counted:
        rule = rule_text(stage.rule)
        rule = rule if len(rule) <= _MAX_RULE_LENGTH else f'{rule[:_MAX_RULE_LENGTH]}...'
        serving = f' (for {stage.serving})' if stage.serving else ''
        counts = [
            units.plural(stage.trees, 'tree'),
            units.plural(stage.providers, 'provider'),
            *rejection_texts(stage.rejected),
        ]
        parts.append(f'{rule}{serving}: {", ".join(counts)}')
    parts += [f'conflicting groups: {tree_conflict_text(failure)}' for failure in failures]
    parts += [f'limit reached: {limit.value}' for limit in Limit if limit in candidates.limits_reached]
    return '; '.join(parts)
