"""Immutable snapshots, each the image of one committed state of the database. Each is made from the one before."""

from __future__ import annotations

import bisect
import functools
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from placement import exception
from placement.cache.inventory_columns import InventoryColumns
from placement.cache.partition import Partition, Tree, partition_trees
from placement.cache.rows import ProviderRow, UsageRow
from placement.candidates.providers import InventoryRecord, Provider

#: About how many providers a new partition has. One that has more than twice as many is split.
PROVIDERS_PER_PARTITION = 4096


@dataclass(frozen=True)
class KnownNames:
    """The names of the resource classes, by id, and of all traits."""

    classes: Mapping[int, str]
    traits: frozenset[str]

    @functools.cached_property
    def class_ids(self) -> Mapping[str, int]:
        """The ids of the resource classes by name."""
        return {name: id_ for id_, name in self.classes.items()}

    def check(self, classes: Iterable[str], traits: Iterable[str]) -> None:
        """Make sure that the classes and traits that a request names exist.

        :raises ResourceClassNotFound: one of ``classes`` does not exist.
        :raises TraitNotFound: some of ``traits`` do not exist; names them all.
        """
        exception.ResourceClassNotFound.check(classes, self.class_ids)
        exception.TraitNotFound.check(sorted(set(traits)), self.traits)


@dataclass(frozen=True)
class Changes:
    """What changed between two states. Keys are provider ids, and none is in both mappings.

    ``rows`` has the providers that were created or changed in any way, and None for deleted ones. ``usages`` has
    those of which only the usage changed. ``names`` is None if no name changed.
    """

    rows: Mapping[int, ProviderRow | None]
    usages: Mapping[int, UsageRow]
    names: KnownNames | None = None


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Blocks in order of root ids. A snapshot never changes, so any thread may use one as long as it likes."""

    names: KnownNames
    partitions: tuple[Partition, ...]

    @classmethod
    def of(cls, names: KnownNames, rows: Iterable[ProviderRow], size: int = PROVIDERS_PER_PARTITION) -> Snapshot:
        """Make the snapshot of all ``rows``, in any order."""
        trees = group_trees(rows)
        return cls(names, tuple(partition_trees([trees[root_id] for root_id in sorted(trees)], size)))

    @functools.cached_property
    def _lows(self) -> list[int]:
        return [partition.first_root_id for partition in self.partitions]

    @property
    def providers(self) -> int:
        """How many providers there are."""
        return sum(len(partition.rows) for partition in self.partitions)

    def rows(self) -> Iterator[ProviderRow]:
        """Yield every row."""
        for partition in self.partitions:
            yield from partition.rows

    def find_provider(self, uuid: str) -> ProviderRow | None:
        """Return the provider with this uuid, None if there is none."""
        for partition in self.partitions:
            row = partition.by_uuid.get(uuid)
            if row is not None:
                return partition.rows[row]
        return None

    def root_id_of(self, uuid: str) -> int | None:
        """Return the root id of the provider with this uuid, None if there is none."""
        row = self.find_provider(uuid)
        return None if row is None else row.root_id

    def inventory_columns(self, name: str) -> Iterator[tuple[Partition, InventoryColumns]]:
        """Return the inventories of a resource class, partition by partition.

        :raises KeyError: there is no such class.
        """
        class_id = self.names.class_ids[name]
        return (
            (partition, partition.inventory_columns[class_id])
            for partition in self.partitions
            if class_id in partition.inventory_columns
        )

    def partition_index(self, root_id: int) -> int | None:
        """Return the index of the partition to which a tree with this root id belongs; None if there are none."""
        return max(bisect.bisect_right(self._lows, root_id) - 1, 0) if self.partitions else None

    def find_tree(self, root_id: int) -> tuple[Partition, int]:
        """Return the partition of a tree and the tree's number in it.

        :raises KeyError: there is no such tree.
        """
        index = self.partition_index(root_id)
        number = None if index is None else self.partitions[index].tree_number(root_id)
        if index is None or number is None:
            raise KeyError(root_id)
        return self.partitions[index], number

    def find_position(self, root_id: int, id_: int) -> tuple[Partition, int]:
        """Return the partition of a provider and its position there.

        :raises KeyError: there is no such provider.
        """
        partition, number = self.find_tree(root_id)
        return partition, _row(partition, number, id_)

    def provider(self, row: ProviderRow) -> Provider:
        """Make the object of a provider that the search works on."""
        classes = self.names.classes
        inventories: dict[str, InventoryRecord] = {classes[id_]: one for id_, one in row.inventories}
        return Provider(row.id, row.uuid, row.root_id, row.parent_id, inventories, row.traits, row.aggregates)

    @functools.cached_property
    def sharing(self) -> Mapping[Provider, frozenset[str]]:
        """The sharing providers that are in an aggregate, each with its aggregates."""
        found = {}
        for partition in self.partitions:
            for position in partition.sharing:
                row = partition.rows[position]
                provider = self.provider(row)
                provider.ancestors = _ancestors(row, partition.tree(int(partition.tree_numbers[position])))
                found[provider] = row.aggregates
        return found


def _ancestors(row: ProviderRow, tree: Tree) -> frozenset[int]:
    """The ids of the providers above one provider of a tree."""
    parents = {one.id: one.parent_id for one in tree}
    found: set[int] = set()
    above = row.parent_id
    # A damaged database may have a loop.
    while above is not None and above not in found:
        found.add(above)
        above = parents.get(above)
    return frozenset(found)


def group_trees(rows: Iterable[ProviderRow]) -> dict[int, Tree]:
    """Group ``rows`` by root id: the root first, then the others in order of id."""
    members: defaultdict[int, list[ProviderRow]] = defaultdict(list)
    for row in rows:
        members[row.root_id].append(row)
    return {root_id: _in_order(root_id, some) for root_id, some in members.items()}


def _in_order(root_id: int, members: list[ProviderRow]) -> Tree:
    if len(members) > 1:
        members.sort(key=lambda one: (one.id != root_id, one.id))
    return tuple(members)


class SnapshotBuilder:
    """Makes each next snapshot from the one before. Keeps the root id of each provider for that.

    :param snapshot: the first one.
    """

    def __init__(self, snapshot: Snapshot, size: int = PROVIDERS_PER_PARTITION) -> None:
        self._snapshot = snapshot
        self._size = size
        self._root_of = {row.id: row.root_id for row in snapshot.rows()}

    def __call__(self, changes: Changes) -> Snapshot:
        """Return the snapshot after ``changes``, from which the next call goes on.

        :raises KeyError: ``changes.usages`` has a provider that is not in the snapshot.
        """
        snapshot = self._with_usages(changes.usages)
        if changes.names is not None:
            snapshot = _with_names(snapshot, changes.names)
        snapshot = _with_trees(snapshot, self._changed_trees(snapshot, changes.rows), self._size)
        for id_, row in changes.rows.items():
            if row is None:
                self._root_of.pop(id_, None)
            else:
                self._root_of[id_] = row.root_id
        self._snapshot = snapshot
        return snapshot

    def _with_usages(self, usages: Mapping[int, UsageRow]) -> Snapshot:
        by_block: defaultdict[Partition, dict[int, UsageRow]] = defaultdict(dict)
        for id_, usage in usages.items():
            partition, row = self._snapshot.find_position(self._root_of[id_], id_)
            by_block[partition][row] = usage
        if not by_block:
            return self._snapshot
        partitions = (one.with_usages(by_block[one]) if one in by_block else one for one in self._snapshot.partitions)
        return replace(self._snapshot, partitions=tuple(partitions))

    def _changed_trees(self, snapshot: Snapshot, rows: Mapping[int, ProviderRow | None]) -> dict[int, Tree]:
        """The trees, by root id, of which a provider is added, changed or removed; empty if no provider is left."""
        touched = {self._root_of[id_] for id_ in rows if id_ in self._root_of}
        members: dict[int, dict[int, ProviderRow]] = {
            root_id: {one.id: one for one in _tree(snapshot, root_id) if one.id not in rows} for root_id in touched
        }
        for row in rows.values():
            if row is not None:
                if row.root_id not in members:
                    members[row.root_id] = {one.id: one for one in _tree(snapshot, row.root_id)}
                members[row.root_id][row.id] = row
        return {root_id: _in_order(root_id, list(some.values())) for root_id, some in members.items()}


def _tree(snapshot: Snapshot, root_id: int) -> Tree:
    try:
        partition, number = snapshot.find_tree(root_id)
    except KeyError:
        return ()
    return partition.tree(number)


def _row(partition: Partition, number: int, id_: int) -> int:
    """The position of a provider in the tree with this number.

    :raises KeyError: it is not in the tree.
    """
    first, last = partition.starts[number : number + 2].tolist()
    if partition.rows[first].id == id_:
        return first
    row = bisect.bisect_left(partition.rows, id_, first + 1, last, key=operator.attrgetter('id'))
    if row == last or partition.rows[row].id != id_:
        raise KeyError(id_)
    return row


def _with_names(snapshot: Snapshot, names: KnownNames) -> Snapshot:
    """Return the snapshot with other names, without fragments if a class was renamed or deleted: they contain names."""
    same = all(names.classes.get(id_, name) == name for id_, name in snapshot.names.classes.items())
    return replace(
        snapshot,
        names=names,
        partitions=snapshot.partitions if same else tuple(one.without_fragments() for one in snapshot.partitions),
    )


def _with_trees(snapshot: Snapshot, trees: Mapping[int, Tree], size: int) -> Snapshot:
    if not trees:
        return snapshot
    by_block: defaultdict[int, dict[int, Tree]] = defaultdict(dict)
    for root_id, tree in trees.items():
        by_block[snapshot.partition_index(root_id) or 0][root_id] = tree
    partitions: list[Partition] = []
    for index, partition in enumerate(snapshot.partitions or [None]):
        if index not in by_block:
            if partition is not None:
                partitions.append(partition)
            continue
        partitions.extend(_rebuilt(partition, by_block[index], size))
    return replace(snapshot, partitions=tuple(partitions))


def _rebuilt(partition: Partition | None, trees: Mapping[int, Tree], size: int) -> Iterator[Partition]:
    if partition is None:
        yield from partition_trees([tree for _, tree in sorted(trees.items()) if tree], size)
        return
    changed = partition.with_trees(trees)
    if changed is None:
        return
    if len(changed.rows) <= 2 * size:
        yield changed
    else:
        yield from partition_trees([changed.tree(number) for number in range(len(changed.roots))], size)
