"""Compares two states of the mirror, field by field, including columns."""

from __future__ import annotations

import numpy as np

from placement.cache.partition import Partition
from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import Snapshot
from placement.db.api import Database


def assert_same(state: Snapshot, expected: Snapshot) -> None:
    """Fail unless ``state`` has the contents of ``expected``; their blocks may differ."""
    assert state.names == expected.names
    mine = [record for block in state.blocks for record in block.records]
    theirs = [record for block in expected.blocks for record in block.records]
    assert mine == theirs
    for block in state.blocks:
        assert_consistent(block)


def assert_consistent(block: Partition) -> None:
    """Fail unless the columns of ``block`` are those that its records have."""
    fresh = Partition.of([block.tree(number) for number in range(len(block.starts) - 1)])
    assert np.array_equal(block.starts, fresh.starts)
    assert np.array_equal(block.whole, fresh.whole)
    for name in ('traits', 'aggregates', 'tree_aggregates'):
        mine, theirs = getattr(block, name), getattr(fresh, name)
        assert [mine.values[number] for number in mine.of] == [theirs.values[number] for number in theirs.of]
    for name in ('roots', 'tree_of', 'root_rows', 'sharing'):
        assert np.array_equal(getattr(block, name), getattr(fresh, name)), name
    assert block.by_uuid == fresh.by_uuid
    assert block.by_name == fresh.by_name
    assert block.stocks.keys() == fresh.stocks.keys()
    for class_id, stock in block.stocks.items():
        assert stock.plain == fresh.stocks[class_id].plain
        for name in ('rows', 'ceiling', 'used', 'min_unit', 'max_unit', 'step_size', 'headroom'):
            assert np.array_equal(getattr(stock, name), getattr(fresh.stocks[class_id], name)), name


def compare(mirror: ProviderCache, db: Database) -> None:
    """Bring ``mirror`` forward without building it anew, and compare it with one built in the same snapshot."""
    with mirror._lock, db.reader() as tx:
        held = mirror._version
        assert held is not None
        fresh = mirror._load(tx)
        followed, _ = mirror._follow(tx, held)
        assert followed is not None
        assert followed.vector == fresh.vector
        mirror._version = followed
    assert_same(followed.state, fresh.state)
