"""Checks the links of providers: every tree has one top, which is the root of all its providers."""

from __future__ import annotations

from collections.abc import Mapping


def problems(links: Mapping[str, tuple[str | None, str]]) -> list[str]:
    """The providers whose root is not the top of their tree, and those that have no top because of a loop.

    :param links: parent and root of each provider.
    """
    problems = []
    for provider, (_, root) in links.items():
        chain = [provider]
        while (parent := links[chain[-1]][0]) is not None and parent not in chain:
            chain.append(parent)
        if parent is not None:
            problems.append(f'provider {provider}: is in or below a loop')
        elif chain[-1] != root:
            problems.append(f'provider {provider}: its root is {root}, and the top of its tree is {chain[-1]}')
    return problems
