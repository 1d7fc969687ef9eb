"""A state of the mirror: immutable, the image of one committed state of the database. The next one is made from it."""

from __future__ import annotations

import bisect
import functools
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from placement import exception
from placement.cache.inventory_columns import InventoryColumns
from placement.cache.partition import Partition, Tree, in_blocks
from placement.cache.rows import ProviderRow, UsageRow
from placement.candidates.providers import InventoryRecord, Provider

#: About how many providers a new block has. One that has more than twice as many is split.
BLOCK_SIZE = 4096


@dataclass(frozen=True)
class Names:
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

    ``records`` has the providers that were created or changed in any way, and None for deleted ones. ``usages`` has
    those of which only the usage changed. ``names`` is None if no name changed.
    """

    records: Mapping[int, ProviderRow | None]
    usages: Mapping[int, UsageRow]
    names: Names | None = None


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Blocks in order of root ids. A state never changes, so any thread may use one as long as it likes."""

    names: Names
    blocks: tuple[Partition, ...]

    @classmethod
    def of(cls, names: Names, records: Iterable[ProviderRow], size: int = BLOCK_SIZE) -> Snapshot:
        """Make the state of all ``records``, in any order."""
        trees = trees_of(records)
        return cls(names, tuple(in_blocks([trees[root_id] for root_id in sorted(trees)], size)))

    @functools.cached_property
    def _lows(self) -> list[int]:
        return [block.low for block in self.blocks]

    @property
    def providers(self) -> int:
        """How many providers there are."""
        return sum(len(block.records) for block in self.blocks)

    def records(self) -> Iterator[ProviderRow]:
        """Yield every record."""
        for block in self.blocks:
            yield from block.records

    def find(self, uuid: str) -> ProviderRow | None:
        """Return the provider with this uuid, None if there is none."""
        for block in self.blocks:
            row = block.by_uuid.get(uuid)
            if row is not None:
                return block.records[row]
        return None

    def root_of(self, uuid: str) -> int | None:
        """Return the root id of the provider with this uuid, None if there is none."""
        record = self.find(uuid)
        return None if record is None else record.root_id

    def stocks(self, name: str) -> Iterator[tuple[Partition, InventoryColumns]]:
        """Return the inventories of a resource class, block by block.

        :raises KeyError: there is no such class.
        """
        class_id = self.names.class_ids[name]
        return ((block, block.stocks[class_id]) for block in self.blocks if class_id in block.stocks)

    def block_of(self, root_id: int) -> int | None:
        """Return the index of the block where a tree with this root id is or belongs; None if there are no blocks."""
        return max(bisect.bisect_right(self._lows, root_id) - 1, 0) if self.blocks else None

    def locate(self, root_id: int) -> tuple[Partition, int]:
        """Return the block of a tree and the tree's number in it.

        :raises KeyError: there is no such tree.
        """
        index = self.block_of(root_id)
        number = None if index is None else self.blocks[index].tree_number(root_id)
        if index is None or number is None:
            raise KeyError(root_id)
        return self.blocks[index], number

    def position(self, root_id: int, id_: int) -> tuple[Partition, int]:
        """Return the block of a provider and its position there.

        :raises KeyError: there is no such provider.
        """
        block, number = self.locate(root_id)
        return block, _row(block, number, id_)

    def provider(self, record: ProviderRow) -> Provider:
        """Make the object of a provider that the search works on."""
        classes = self.names.classes
        inventories: dict[str, InventoryRecord] = {classes[id_]: one for id_, one in record.inventories}
        return Provider(
            record.id, record.uuid, record.root_id, record.parent_id, inventories, record.traits, record.aggregates
        )

    @functools.cached_property
    def sharing(self) -> Mapping[Provider, frozenset[str]]:
        """The sharing providers that are in an aggregate, each with its aggregates."""
        found = {}
        for block in self.blocks:
            for row in block.sharing:
                record = block.records[row]
                provider = self.provider(record)
                provider.ancestors = _ancestors(record, block.tree(int(block.tree_of[row])))
                found[provider] = record.aggregates
        return found


def _ancestors(record: ProviderRow, tree: Tree) -> frozenset[int]:
    """The ids of the providers above one provider of a tree."""
    parents = {one.id: one.parent_id for one in tree}
    found: set[int] = set()
    above = record.parent_id
    # A damaged database may have a loop.
    while above is not None and above not in found:
        found.add(above)
        above = parents.get(above)
    return frozenset(found)


def trees_of(records: Iterable[ProviderRow]) -> dict[int, Tree]:
    """Group ``records`` by root id: the root first, then the others in order of id."""
    members: defaultdict[int, list[ProviderRow]] = defaultdict(list)
    for record in records:
        members[record.root_id].append(record)
    return {root_id: _in_order(root_id, some) for root_id, some in members.items()}


def _in_order(root_id: int, members: list[ProviderRow]) -> Tree:
    if len(members) > 1:
        members.sort(key=lambda one: (one.id != root_id, one.id))
    return tuple(members)


class SnapshotBuilder:
    """Makes the state that follows a state, again and again. Remembers the root id of each provider, which that needs.

    :param state: the first one.
    """

    def __init__(self, state: Snapshot, size: int = BLOCK_SIZE) -> None:
        self._state = state
        self._size = size
        self._root_of = {record.id: record.root_id for record in state.records()}

    def __call__(self, changes: Changes) -> Snapshot:
        """Return the state after ``changes``, from which the next call goes on.

        :raises KeyError: ``changes.usages`` has a provider that is not in the state.
        """
        state = self._with_usages(changes.usages)
        if changes.names is not None:
            state = _with_names(state, changes.names)
        state = _with_trees(state, self._changed_trees(state, changes.records), self._size)
        for id_, record in changes.records.items():
            if record is None:
                self._root_of.pop(id_, None)
            else:
                self._root_of[id_] = record.root_id
        self._state = state
        return state

    def _with_usages(self, usages: Mapping[int, UsageRow]) -> Snapshot:
        by_block: defaultdict[Partition, dict[int, UsageRow]] = defaultdict(dict)
        for id_, usage in usages.items():
            block, row = self._state.position(self._root_of[id_], id_)
            by_block[block][row] = usage
        if not by_block:
            return self._state
        blocks = (one.with_usages(by_block[one]) if one in by_block else one for one in self._state.blocks)
        return replace(self._state, blocks=tuple(blocks))

    def _changed_trees(self, state: Snapshot, records: Mapping[int, ProviderRow | None]) -> dict[int, Tree]:
        """The trees, by root id, of which a provider is added, changed or removed; empty if no provider is left."""
        touched = {self._root_of[id_] for id_ in records if id_ in self._root_of}
        members: dict[int, dict[int, ProviderRow]] = {
            root_id: {one.id: one for one in _tree(state, root_id) if one.id not in records} for root_id in touched
        }
        for record in records.values():
            if record is not None:
                if record.root_id not in members:
                    members[record.root_id] = {one.id: one for one in _tree(state, record.root_id)}
                members[record.root_id][record.id] = record
        return {root_id: _in_order(root_id, list(some.values())) for root_id, some in members.items()}


def _tree(state: Snapshot, root_id: int) -> Tree:
    try:
        block, number = state.locate(root_id)
    except KeyError:
        return ()
    return block.tree(number)


def _row(block: Partition, number: int, id_: int) -> int:
    """The position of a provider in the tree with this number.

    :raises KeyError: it is not in the tree.
    """
    first, last = block.starts[number : number + 2].tolist()
    if block.records[first].id == id_:
        return first
    row = bisect.bisect_left(block.records, id_, first + 1, last, key=operator.attrgetter('id'))
    if row == last or block.records[row].id != id_:
        raise KeyError(id_)
    return row


def _with_names(state: Snapshot, names: Names) -> Snapshot:
    """Return the state with other names. If a class was renamed or deleted, no fragments are kept: they show names."""
    same = all(names.classes.get(id_, name) == name for id_, name in state.names.classes.items())
    return replace(state, names=names, blocks=state.blocks if same else tuple(one.bare() for one in state.blocks))


def _with_trees(state: Snapshot, trees: Mapping[int, Tree], size: int) -> Snapshot:
    if not trees:
        return state
    by_block: defaultdict[int, dict[int, Tree]] = defaultdict(dict)
    for root_id, tree in trees.items():
        by_block[state.block_of(root_id) or 0][root_id] = tree
    blocks: list[Partition] = []
    for index, block in enumerate(state.blocks or [None]):
        if index not in by_block:
            if block is not None:
                blocks.append(block)
            continue
        blocks.extend(_rebuilt(block, by_block[index], size))
    return replace(state, blocks=tuple(blocks))


def _rebuilt(block: Partition | None, trees: Mapping[int, Tree], size: int) -> Iterator[Partition]:
    if block is None:
        yield from in_blocks([tree for _, tree in sorted(trees.items()) if tree], size)
        return
    changed = block.with_trees(trees)
    if changed is None:
        return
    if len(changed.records) <= 2 * size:
        yield changed
    else:
        yield from in_blocks([changed.tree(number) for number in range(len(changed.roots))], size)
