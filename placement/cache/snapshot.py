"""Immutable snapshots. Each is the image of one committed state of the database, made from the previous snapshot."""

from __future__ import annotations

import bisect
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from placement import exception
from placement.cache.inventory_columns import InventoryColumns
from placement.cache.partition import Partition, Tree, partition_trees
from placement.cache.providers import Provider, Usage

#: The approximate number of providers of a new partition. A partition with more than twice as many is split.
PROVIDERS_PER_PARTITION = 4096


@dataclass(frozen=True)
class KnownNames:
    """The names of the resource classes, by id, and of all traits."""

    classes: Mapping[int, str]
    traits: frozenset[str]

    def raise_unless_known(self, classes: Iterable[str], traits: Iterable[str]) -> None:
        """Make sure that the classes and traits in a request exist.

        :raises ResourceClassNotFound: one of ``classes`` does not exist.
        :raises TraitNotFound: some of ``traits`` do not exist; the error names them all.
        """
        for name in classes:
            if name not in self.class_ids:
                raise exception.ResourceClassNotFound(names=name)
        missing = sorted(set(traits) - self.traits)
        if missing:
            raise exception.TraitNotFound(names=', '.join(missing))

    @functools.cached_property
    def class_ids(self) -> Mapping[str, int]:
        """The ids of the resource classes by name."""
        return {name: id_ for id_, name in self.classes.items()}

    def with_names(self, names: KnownNames) -> KnownNames:
        """Return these names together with ``names``."""
        return KnownNames({**self.classes, **names.classes}, self.traits | names.traits)

    def renames_class(self, names: KnownNames) -> bool:
        """Return whether a resource class has another name in ``names``. A deleted class does not count."""
        return any(names.classes.get(id_, name) != name for id_, name in self.classes.items())


@dataclass(frozen=True)
class Changes:
    """The changes between two snapshots. No provider is in both ``providers`` and ``usages``."""

    #: By id each provider that was created or changed in any way; None if it was deleted.
    providers: Mapping[int, Provider | None]
    #: By id what claims changed of the other providers.
    usages: Mapping[int, Usage] = field(default_factory=dict)
    #: The names if some changed, otherwise None. No resource class was renamed.
    names: KnownNames | None = None


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All providers. A snapshot never changes, so any thread may use one at any time."""

    names: KnownNames
    #: In order of root ids.
    partitions: tuple[Partition, ...]
    #: The approximate number of providers of a new partition.
    partition_size: int

    @classmethod
    def build(cls, names: KnownNames, providers: Iterable[Provider], size: int = PROVIDERS_PER_PARTITION) -> Snapshot:
        """Make the snapshot of all ``providers``, in any order.

        :param size: the approximate number of providers of a partition.
        """
        members: defaultdict[int, list[Provider]] = defaultdict(list)
        for provider in providers:
            members[provider.root_id].append(provider)
        trees = [_in_order(root_id, providers) for root_id, providers in sorted(members.items())]
        partitions = tuple(partition_trees(trees, size))
        for partition in partitions:
            # Every refresh needs it. Forked processes share it if it is made now.
            partition.by_id  # noqa: B018
        return cls(names, partitions, size)

    @functools.cached_property
    def first_root_ids(self) -> list[int]:
        """The root id of the first tree of each partition."""
        return [partition.providers[0].root_id for partition in self.partitions]

    @functools.cached_property
    def max_summary_size(self) -> int:
        """An upper bound of ``summary_size`` of a provider."""
        return max([partition.max_summary_size for partition in self.partitions], default=0)

    @property
    def provider_count(self) -> int:
        return sum(len(partition.providers) for partition in self.partitions)

    def providers(self) -> Iterator[Provider]:
        for partition in self.partitions:
            yield from partition.providers

    def find_provider(self, uuid: str) -> Provider | None:
        """Return the provider with this uuid; None if there is none."""
        for partition in self.partitions:
            position = partition.by_uuid.get(uuid)
            if position is not None:
                return partition.providers[position]
        return None

    def root_id_of(self, uuid: str) -> int | None:
        """Return the root id of the provider with this uuid; None if there is no such provider."""
        provider = self.find_provider(uuid)
        return None if provider is None else provider.root_id

    def inventory_columns(self, resource_class: str) -> Iterator[tuple[Partition, InventoryColumns]]:
        """Yield each partition that has inventory of a resource class, with its columns of the class."""
        for partition in self.partitions:
            if resource_class in partition.inventory_columns:
                yield partition, partition.inventory_columns[resource_class]

    def partition_index(self, root_id: int) -> int | None:
        """Return the index of the partition for a tree with this root id; None if there are no partitions."""
        return max(bisect.bisect_right(self.first_root_ids, root_id) - 1, 0) if self.partitions else None

    def find_tree(self, root_id: int) -> tuple[Partition, int]:
        """Return the partition of a tree and the tree's number in it.

        :raises KeyError: there is no such tree.
        """
        index = self.partition_index(root_id)
        number = None if index is None else self.partitions[index].tree_number(root_id)
        if index is None or number is None:
            raise KeyError(root_id)
        return self.partitions[index], number

    def find_position(self, provider: Provider) -> tuple[Partition, int]:
        """Return the partition of a provider of this snapshot, and the position of the provider in it."""
        partition, _ = self.find_tree(provider.root_id)
        return partition, partition.by_uuid[provider.uuid]

    @functools.cached_property
    def sharing(self) -> tuple[Provider, ...]:
        """The sharing providers that are in an aggregate."""
        providers = []
        for partition in self.partitions:
            for position in partition.sharing:
                provider = partition.providers[position]
                if provider.parent_id is not None:
                    tree = partition.tree(int(partition.tree_numbers[position]))
                    provider = replace(provider, ancestors=_ancestors(provider, tree))
                providers.append(provider)
        return tuple(providers)

    # The next snapshot ---------------------------------------------------------------------------------------

    def next(self, changes: Changes) -> Snapshot:
        """Return the snapshot after ``changes``.

        :raises KeyError: ``changes.usages`` has a provider or an inventory that is not in the snapshot.
        """
        snapshot = replace(self, names=changes.names or self.names, partitions=_with_usages(self, changes.usages))
        return _with_trees(snapshot, _changed_trees(snapshot, changes.providers))


def _with_usages(snapshot: Snapshot, usages: Mapping[int, Usage]) -> tuple[Partition, ...]:
    partitions = []
    remaining = dict(usages)
    for partition in snapshot.partitions:
        of_partition = {id_: remaining.pop(id_) for id_ in usages.keys() & partition.by_id.keys()}
        partitions.append(partition.with_usages(of_partition) if of_partition else partition)
    if remaining:
        raise KeyError(sorted(remaining))
    return tuple(partitions)


def _changed_trees(snapshot: Snapshot, providers: Mapping[int, Provider | None]) -> dict[int, Tree]:
    """Return the trees in which providers are added, changed or removed, by root id. A tree may become empty."""
    changed = [provider for provider in providers.values() if provider is not None]
    root_ids = {
        partition.providers[partition.by_id[id_]].root_id
        for partition in snapshot.partitions
        for id_ in providers.keys() & partition.by_id.keys()
    }
    members: defaultdict[int, list[Provider]] = defaultdict(list)
    for root_id in root_ids.union(provider.root_id for provider in changed):
        try:
            partition, number = snapshot.find_tree(root_id)
        except KeyError:
            # The tree is new.
            continue
        members[root_id] = [member for member in partition.tree(number) if member.id not in providers]
    for provider in changed:
        members[provider.root_id].append(provider)
    return {root_id: _in_order(root_id, tree) for root_id, tree in members.items()}


def _with_trees(snapshot: Snapshot, trees: Mapping[int, Tree]) -> Snapshot:
    if not trees:
        return snapshot
    size = snapshot.partition_size
    if not snapshot.partitions:
        present = [tree for _, tree in sorted(trees.items()) if tree]
        return replace(snapshot, partitions=tuple(partition_trees(present, size)))
    by_index: defaultdict[int, dict[int, Tree]] = defaultdict(dict)
    for root_id, tree in trees.items():
        by_index[snapshot.partition_index(root_id) or 0][root_id] = tree
    partitions: list[Partition] = []
    for index, partition in enumerate(snapshot.partitions):
        changed = partition.with_trees(by_index[index]) if index in by_index else partition
        if changed is None:
            continue
        if len(changed.providers) <= 2 * size:
            partitions.append(changed)
        else:
            partitions += partition_trees([changed.tree(number) for number in range(len(changed.roots))], size)
    return replace(snapshot, partitions=tuple(partitions))


def _ancestors(provider: Provider, tree: Tree) -> frozenset[int]:
    """Return the ids of the providers above one provider of a tree."""
    parents = {member.id: member.parent_id for member in tree}
    ancestors: set[int] = set()
    above = provider.parent_id
    # A damaged database may have a loop.
    while above is not None and above not in ancestors:
        ancestors.add(above)
        above = parents.get(above)
    return frozenset(ancestors)


def _in_order(root_id: int, members: list[Provider]) -> Tree:
    if len(members) > 1:
        members.sort(key=lambda provider: (provider.id != root_id, provider.id))
    return tuple(members)
