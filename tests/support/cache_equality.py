"""Compares two snapshots, field by field, including columns."""

from __future__ import annotations

import functools
from dataclasses import astuple, fields, replace
from typing import Any

import numpy as np

from placement.cache.dictionary_columns import DictionaryColumn
from placement.cache.partition import Partition
from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import Snapshot
from placement.db.api import Database


def assert_same(snapshot: Snapshot, expected: Snapshot) -> None:
    """Fail unless ``snapshot`` has the contents of ``expected``; their partitions may differ."""
    assert snapshot.names == expected.names
    mine = [provider for partition in snapshot.partitions for provider in partition.providers]
    theirs = [provider for partition in expected.partitions for provider in partition.providers]
    assert list(map(astuple, mine)) == list(map(astuple, theirs))
    for partition in snapshot.partitions:
        assert_consistent(partition)


def assert_consistent(partition: Partition) -> None:
    """Fail unless the columns of ``partition`` are those that its records have."""
    assert_cached_properties(partition)
    fresh = Partition.build([partition.tree(number) for number in range(len(partition.starts) - 1)])
    assert partition.inventory_columns.keys() == fresh.inventory_columns.keys()
    pairs = [(columns, fresh.inventory_columns[name]) for name, columns in partition.inventory_columns.items()]
    for columns, expected in pairs:
        for name in [*(field.name for field in fields(columns)), 'trivial_units', 'max_increase']:
            assert _plain(getattr(columns, name)) == _plain(getattr(expected, name)), name
    for name in {field.name for field in fields(partition)} - {'inventory_columns', '_fragments'}:
        assert _plain(getattr(partition, name)) == _plain(getattr(fresh, name)), name


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
