"""Tests that need servers, programs or much time run only when they are requested, whatever this machine has.

Then what is missing lets them fail.
"""

from __future__ import annotations

import pathlib
import re

import pytest

#: What a test may need, as markers of pytest (pyproject.toml).
NEEDS = frozenset({'bench', 'postgresql', 'mariadb', 'mysql', 'galera', 'operations', 'page'})


def requested(config: pytest.Config) -> set[str]:
    """What the tests of this run may need: the words in ``pytest -m``."""
    return set(re.findall(r'(?<!\bnot )\b\w+', config.option.markexpr)) & NEEDS


def mark_for_mysql(item: pytest.Item) -> None:
    """Mark a test for MySQL if it is one for MariaDB: with ``pytest -m mysql`` it runs on MySQL instead."""
    if item.get_closest_marker('mariadb'):
        item.add_marker('mysql')


def mark_below(directory: pathlib.Path, items: list[pytest.Item], need: str) -> None:
    """Mark the tests below a directory with what they need."""
    for item in items:
        if directory in item.path.parents:
            item.add_marker(need)


def deselect_unrequested(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that need something that ``pytest -m`` does not name."""
    needs = {item: {mark.name for mark in item.iter_markers()} & NEEDS for item in items}
    unrequested = [item for item in items if needs[item] and not needs[item] & requested(config)]
    config.hook.pytest_deselected(items=unrequested)
    items[:] = [item for item in items if not needs[item] or needs[item] & requested(config)]
