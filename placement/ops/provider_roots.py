"""Finds the roots of providers from their parents alone, also where a damaged database has loops."""

from __future__ import annotations

from collections.abc import Mapping


def find_roots(parents: Mapping[int, int | None], cut_loops: bool = False) -> dict[int, int | None]:
    """Return the id of the root of each provider, by provider id; None if its parents form a loop.

    :param parents: the parent id of each provider by its id; None for a root. A provider whose parent is not in the
        mapping counts as a root.
    :param cut_loops: whether one provider of each loop counts as a root, instead of None for all that lead to it.
    """
    roots: dict[int, int | None] = {}
    for provider_id in parents:
        passed: dict[int, None] = {}
        current = provider_id
        while current not in roots and current not in passed:
            passed[current] = None
            parent_id = parents[current]
            if parent_id is None or parent_id not in parents:
                roots[current] = current
            else:
                current = parent_id
        # If ``current`` still has no root, it was passed twice, so there is a loop, and it is in the loop.
        if cut_loops and current not in roots:
            roots[current] = current
        roots.update(dict.fromkeys(passed, roots.get(current)))
    return roots
