"""The root of each provider, as it follows from the parents."""

from __future__ import annotations

from collections.abc import Mapping


def of(parents: Mapping[int, int | None]) -> dict[int, int | None]:
    """The root of each provider, by id; None for those whose parents form a loop.

    :param parents: the parent of each provider, None for a root. A provider whose parent is not there counts as a root.
    """
    roots: dict[int, int | None] = {}
    for provider_id in parents:
        passed: dict[int, None] = {}
        at = provider_id
        while at not in roots and at not in passed:
            passed[at] = None
            parent_id = parents[at]
            if parent_id is None or parent_id not in parents:
                roots[at] = at
            else:
                at = parent_id
        # Nothing is known of one that has been passed before in this loop: it is in a loop.
        roots.update(dict.fromkeys(passed, roots.get(at)))
    return roots
