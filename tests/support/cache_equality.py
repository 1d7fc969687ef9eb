"""Compares two snapshots, field by field, including columns."""

from __future__ import annotations

import functools
from dataclasses import astuple, replace
from typing import Any

import numpy as np

from placement.cache.dictionary_columns import DictionaryColumn
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
    assert_cached_properties(block)
    fresh = Partition.build([block.tree(number) for number in range(len(block.starts) - 1)])
    for name in ('starts', 'roots', 'has_root', 'traits', 'aggregates'):
        assert _plain(getattr(block, name)) == _plain(getattr(fresh, name)), name
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


def assert_cached_properties(partition: Partition) -> None:
    """Fail unless a partition without cached properties computes those of ``partition``."""
    fresh = replace(partition)
    for name, value in vars(Partition).items():
        if isinstance(value, functools.cached_property):
            assert _plain(getattr(partition, name)) == _plain(getattr(fresh, name)), name


def _plain(value: Any) -> Any:
    if isinstance(value, DictionaryColumn):
        return [value.values[code] for code in value.codes]
    return value.tolist() if isinstance(value, np.ndarray) else value


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
