"""Dictionary-encoded columns: many items that have few distinct values."""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags, Integers

NameSet = frozenset[str]

Value = TypeVar('Value', bound=Hashable)
Other = TypeVar('Other', bound=Hashable)
Result = TypeVar('Result', bound=Hashable)


@dataclass(frozen=True, eq=False)
class DictionaryColumn(Generic[Value]):
    """Item i has the value ``values[codes[i]]``."""

    #: The distinct values. No item may have some of them.
    values: Sequence[Value]
    #: For each item, the index of its value in ``values``.
    codes: NDArray[Any]

    @classmethod
    def concatenated(cls, columns: Sequence[Self]) -> Self:
        """Return the items of several columns in one. Equal values of different columns stay apart."""
        firsts = itertools.accumulate((len(column.values) for column in columns), initial=0)
        codes = [column.codes + np.int32(first) for column, first in zip(columns, firsts, strict=False)]
        return cls(tuple(itertools.chain(*(column.values for column in columns))), np.concatenate(codes))

    def where(self, predicate: Callable[[Value], bool]) -> Flags:
        """Return for each item whether its value satisfies ``predicate``. Call it only once for each distinct value."""
        return np.fromiter(map(predicate, self.values), np.bool_, len(self.values))[self.codes]

    def counts(self, items: Flags | slice = slice(None)) -> Mapping[Value, int]:
        """Return how many of the flagged items have each value, in the order of ``values``; without those of none."""
        counts: Counter[Value] = Counter()
        counted = np.bincount(self.codes[items], minlength=len(self.values)).tolist()
        for value, count in zip(self.values, counted, strict=True):
            if count:
                counts[value] += count
        return counts

    def mapped(self, change: Callable[[Value], Result]) -> DictionaryColumn[Result]:
        """Return the column with each value changed. Its values are distinct."""
        values = list(map(change, self.values))
        code_of = {value: code for code, value in enumerate(dict.fromkeys(values))}
        return DictionaryColumn(list(code_of), np.array([code_of[value] for value in values], np.int64)[self.codes])

    def joined(
        self, other: DictionaryColumn[Other], join: Callable[[Value, Other], Result]
    ) -> DictionaryColumn[Result]:
        """Return ``join`` of the values of both columns. It is called once for each distinct pair."""
        width = len(other.values)
        present, codes = np.unique(self.codes.astype(np.int64) * width + other.codes, return_inverse=True)
        pairs = [(self.values[code // width], other.values[code % width]) for code in present.tolist()]
        return DictionaryColumn(pairs, codes).mapped(lambda pair: join(*pair))


@dataclass(frozen=True, eq=False)
class NameSetColumn(DictionaryColumn[NameSet]):
    """The set of traits, or of aggregates, of each provider or tree of a partition."""

    @classmethod
    def build(cls, sets: Iterable[NameSet]) -> NameSetColumn:
        """Make a column.

        :param sets: one for each item, in order.
        """
        code_by_names: dict[NameSet, int] = {}
        codes = np.fromiter((code_by_names.setdefault(names, len(code_by_names)) for names in sets), np.int32)
        return cls(tuple(code_by_names), codes)

    @functools.cached_property
    def codes_by_name(self) -> Mapping[str, list[int]]:
        """For each name the codes of the sets that contain it."""
        codes: defaultdict[str, list[int]] = defaultdict(list)
        for code, names in enumerate(self.values):
            for name in names:
                codes[name].append(code)
        return dict(codes)

    def values_with(self, names: Iterable[str]) -> Flags:
        """Return for each of ``values`` whether it contains any of ``names``. The first call makes an index."""
        flags = np.zeros(len(self.values), np.bool_)
        for name in names:
            flags[self.codes_by_name.get(name, [])] = True
        return flags

    def rearranged(self, new_positions: Integers, size: int, added: Mapping[int, NameSet]) -> NameSetColumn:
        """Return the column after providers were moved, added or removed.

        :param new_positions: for each old position the new one, or -1 if the provider was removed or read again.
        :param size: the number of new positions.
        :param added: the sets of the providers that were added or read again, by new position.
        """
        code_by_names = {names: number for number, names in enumerate(self.values)}
        codes = np.zeros(size, np.int32)
        stays = new_positions >= 0
        codes[new_positions[stays]] = self.codes[stays]
        for position, names in added.items():
            codes[position] = code_by_names.setdefault(names, len(code_by_names))
        if len(code_by_names) > 2 * size + 16:
            # Drop the sets that no provider has.
            values = tuple(code_by_names)
            return NameSetColumn.build(values[code] for code in codes)
        return NameSetColumn(tuple(code_by_names), codes)
