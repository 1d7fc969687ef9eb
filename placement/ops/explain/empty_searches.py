"""Explains in a line of the log why a search found nothing."""

from __future__ import annotations

from collections.abc import Collection

from placement import units
from placement.cache.snapshot import Snapshot
from placement.ops.explain.combination_failures import combination_failures
from placement.ops.explain.sentences import rejection_texts, rule_text, tree_conflict_text
from placement.ops.explain.stages import stages
from placement.search.budget import Limit, SearchBudget
from placement.search.prefilter import Prefilter
from placement.search.request import CandidateRequest

#: Maximum number of characters of a rule.
_MAX_RULE_LENGTH = 200


def explain_empty(
    snapshot: Snapshot, request: CandidateRequest, budget: SearchBudget, limits_reached: Collection[Limit]
) -> str:
    """Explain in one line, for the log, why a search found nothing.

    This takes much less time than ``explanation.explain``, because it makes no search with a changed request.

    :param request: a request whose classes and traits all exist.
    :param budget: limits the repeated search of trees.
    :param limits_reached: the limits at which the search stopped.
    """
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
    return '; '.join([*parts, *(f'limit reached: {limit.value}' for limit in Limit if limit in limits_reached)])
