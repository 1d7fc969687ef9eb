"""The options that bound a candidate search: ``[placement] max_...``."""

from __future__ import annotations

from collections.abc import Iterable

from oslo_config import cfg

from placement.candidates.limits import Budget, Limit

_OPTIONS = {
    Limit.CANDIDATES: 'max_allocation_candidates',
    Limit.ANSWER_SIZE: 'max_allocation_candidates_size',
    Limit.REQUEST_STEPS: 'max_search_steps',
    Limit.TREE_STEPS: 'max_search_steps_per_tree',
}


def budget(options: cfg.ConfigOpts.GroupAttr) -> Budget:
    """Return the budget of one search.

    :param options: the group ``[placement]``.
    """
    return Budget(
        candidates=options.max_allocation_candidates,
        steps=options.max_search_steps,
        tree_steps=options.max_search_steps_per_tree,
        size=options.max_allocation_candidates_size,
    )


def for_account(options: cfg.ConfigOpts.GroupAttr) -> Budget:
    """Return the budget of a search that counts why an earlier one found nothing: a tenth of the steps of that one.

    :param options: the group ``[placement]``.
    """
    return Budget(
        candidates=1, steps=options.max_search_steps // 10, tree_steps=options.max_search_steps_per_tree // 10
    )


def in_words(bounds: Iterable[Limit], options: cfg.ConfigOpts.GroupAttr) -> str:
    """Return the options that set ``bounds``, with their values, as a text.

    :param options: the group ``[placement]``.
    """
    met = set(bounds)
    return ', '.join(f'{name} = {options[name]}' for bound, name in _OPTIONS.items() if bound in met)
