"""Compares two snapshots, field by field, including columns."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np

from placement.cache.partition import Partition
from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import Snapshot
from placement.db.api import Database


def assert_same(state: Snapshot, expected: Snapshot) -> None:
    """Fail unless ``state`` has the contents of ``expected``; their blocks may differ."""
    assert state.names == expected.names
    mine = [provider for block in state.partitions for provider in block.providers]
    theirs = [provider for block in expected.partitions for provider in block.providers]
    assert list(map(astuple, mine)) == list(map(astuple, theirs))
    for block in state.partitions:
        assert_consistent(block)


def assert_consistent(block: Partition) -> None:
    """Fail unless the columns of ``block`` are those that its records have."""
    fresh = Partition.build([block.tree(number) for number in range(len(block.starts) - 1)])
    assert np.array_equal(block.starts, fresh.starts)
    assert np.array_equal(block.has_root, fresh.has_root)
    for name in ('traits', 'aggregates', 'tree_aggregates'):
        mine, theirs = getattr(block, name), getattr(fresh, name)
        assert [mine.values[number] for number in mine.codes] == [theirs.values[number] for number in theirs.codes]
    for name in ('roots', 'tree_numbers', 'sharing'):
        assert np.array_equal(getattr(block, name), getattr(fresh, name)), name
    assert block.by_uuid == fresh.by_uuid
    assert block.by_name == fresh.by_name
    assert block.inventory_columns.keys() == fresh.inventory_columns.keys()
    for class_id, stock in block.inventory_columns.items():
        assert stock.trivial_units == fresh.inventory_columns[class_id].trivial_units
        for name in (
            'positions',
            'total',
            'reserved',
            'capacity_limit',
            'used',
            'min_unit',
            'max_unit',
            'step_size',
            'max_increase',
        ):
            assert np.array_equal(getattr(stock, name), getattr(fresh.inventory_columns[class_id], name)), name


def compare(provider_cache: ProviderCache, db: Database) -> None:
    """Refresh ``provider_cache`` without reloading it, and compare it with one loaded in the same transaction.

    Only the renaming of a resource class, or a command that requests it, may make it reload.
    """
    with provider_cache._lock, db.reader() as tx:
        loaded = provider_cache._state
        assert loaded is not None
        fresh = provider_cache._load(tx)
        followed, recent = provider_cache._read_claims(loaded, lambda work: work(tx))
        if followed is None:
            followed = provider_cache._refresh(tx, loaded, recent)
        if followed is None:
            requested = provider_cache._reload_reason == 'a command requested it'
            assert requested or loaded.snapshot.names.renames_class(fresh.snapshot.names)
            followed = fresh
        assert followed.log_position == fresh.log_position
        provider_cache._state = followed
    assert_same(followed.snapshot, fresh.snapshot)
