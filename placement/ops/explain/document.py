"""Writes explanations for users: the JSON document, and the line of the log."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from placement.cache.snapshot import Snapshot
from placement.ops.explain import sentences
from placement.ops.explain.combination_failures import combination_failures
from placement.ops.explain.explanation import Explanation
from placement.ops.explain.funnel import stages
from placement.ops.explain.rules import Rule
from placement.search.budget import Limit, SearchBudget
from placement.search.prefilter import Prefilter
from placement.search.request import CandidateRequest


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation in JSON types."""
    return {
        'sentence': sentences.explanation_sentence(explanation),
        **_members(explanation, 'candidates', 'limit', 'rules_not_tried'),
        'first_candidates': [[asdict(supply) for supply in candidate] for candidate in explanation.first_candidates],
        'limits_reached': [limit.value for limit in Limit if limit in explanation.limits_reached],
        'stages': [
            {**_rule(stage.rule), **_members(stage, 'serving', 'providers', 'trees', 'rejected')}
            for stage in explanation.stages
        ],
        'what_if': [
            {**_rule(what_if.rule), **_members(what_if, 'candidates', 'lower_bound')}
            for what_if in explanation.what_ifs
        ],
        'blocking_rules': list(map(sentences.rule_text, explanation.blocking_rules)),
        'blockers': [
            {
                'rule': sentences.rule_text(blocker.rule),
                'cause': sentences.causes_text(blocker.causes),
                'trees': blocker.trees,
                'shortfalls': list(map(asdict, blocker.shortfalls)),
                'notes': list(map(sentences.cause_text, blocker.notes)),
            }
            for blocker in explanation.blockers
        ],
        'conflicting_groups': [
            {
                'reason': failure.reason.name.lower(),
                'trees': failure.trees,
                'examples': [
                    {
                        'name': tree.name,
                        'uuid': tree.uuid,
                        'detail': sentences.conflict_text(failure.reason, tree.contention),
                    }
                    for tree in failure.examples
                ],
            }
            for failure in explanation.combination_failures
        ],
        'near_misses': [
            {
                **_members(near_miss, 'name', 'uuid', 'resource_class', 'requested', 'free'),
                'missing': sentences.near_miss_text(near_miss),
            }
            for near_miss in explanation.near_misses
        ],
    }


def _members(fact: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(fact, name) for name in names}


def _rule(rule: Rule) -> dict[str, Any]:
    """Return a rule in JSON types; ``groups`` lists suffixes, with an empty text for the unsuffixed group."""
    text = sentences.rule_text(rule)
    return {'rule': rule.kind.value, 'groups': list(rule.suffixes), 'subject': rule.subject, 'text': text}


def explain_empty(
    snapshot: Snapshot, request: CandidateRequest, budget: SearchBudget, limits_reached: Collection[Limit]
) -> str:
    """Explain in one line, for the log, why a search found nothing.

    This takes much less time than ``explanation.explain``, because it makes no search with a changed request.

    :param request: a request whose classes and traits all exist.
    :param budget: limits the repeated search of trees.
    :param limits_reached: the limits at which the search stopped.
    """
    counts = stages(Prefilter(snapshot, request))
    failures = combination_failures(snapshot, request, budget) if counts and counts[-1].trees else ()
    return sentences.log_text(counts, failures, limits_reached)
