"""The options that limit a candidate search: ``[placement] max_...``."""

from __future__ import annotations

from collections.abc import Iterable

from oslo_config import cfg

from placement.candidates.limits import Limit, SearchLimits

_OPTIONS = {
    Limit.CANDIDATES: 'max_allocation_candidates',
    Limit.ANSWER_SIZE: 'max_allocation_candidates_size',
    Limit.REQUEST_STEPS: 'max_search_steps',
    Limit.TREE_STEPS: 'max_search_steps_per_tree',
}


def for_search(options: cfg.ConfigOpts.GroupAttr) -> SearchLimits:
    """Return the limits of one search.

    :param options: the group ``[placement]``.
    """
    max_candidates = options.max_allocation_candidates
    if max_candidates < 1:
        # No limit of its own: a response has more entries than candidates, so the limit of its size is reached first.
        max_candidates = options.max_allocation_candidates_size
    return SearchLimits(
        max_candidates=max_candidates,
        max_steps=options.max_search_steps,
        max_tree_steps=options.max_search_steps_per_tree,
        max_size=options.max_allocation_candidates_size,
    )


def for_diagnosis(options: cfg.ConfigOpts.GroupAttr) -> SearchLimits:
    """Return the limits of a search that counts why an earlier one found nothing: a tenth of the steps of that one.

    :param options: the group ``[placement]``.
    """
    return SearchLimits(
        max_candidates=1,
        max_steps=options.max_search_steps // 10,
        max_tree_steps=options.max_search_steps_per_tree // 10,
    )


def describe(limits_reached: Iterable[Limit], options: cfg.ConfigOpts.GroupAttr) -> str:
    """Return the options that set ``limits_reached``, with their values, as a text.

    :param options: the group ``[placement]``.
    """
    reached = set(limits_reached)
    return ', '.join(f'{name} = {options[name]}' for limit, name in _OPTIONS.items() if limit in reached)
