"""Short names of the providers of a tree: without the name of a provider above them that they begin with."""

from __future__ import annotations

from collections.abc import Mapping

from placement.reports.provider_trees import Node

#: The separators between the name of another provider and the rest of a name.
_SEPARATORS = ' _-.:/'
#: The providers above one of which the names are compared, so that this is fast in trees of any depth.
_LEVELS = 4


def of_tree(root: Node) -> Mapping[str, str]:
    """Return the short name of each provider of a tree, by uuid: ``NUMA0`` for ``host_NUMA0`` below ``host``.

    It leaves out the name of the nearest provider above that the name begins with. The root has its whole name, and a
    provider without a name its uuid.
    """
    short = {root.uuid: root.name or root.uuid}
    above: dict[int, tuple[str, ...]] = {root.id: (root.name,)}
    for node in root.walk():
        for child in node.children:
            above[child.id] = (child.name, *above[node.id])[:_LEVELS]
            short[child.uuid] = _without_prefix(child.name, above[node.id]) or child.uuid
    return short


def _without_prefix(name: str, prefixes: tuple[str, ...]) -> str:
    for prefix in filter(None, prefixes):
        rest = name.removeprefix(prefix)
        if rest != name and rest.lstrip(_SEPARATORS) != rest and rest.strip(_SEPARATORS):
            return rest.lstrip(_SEPARATORS)
    return name
