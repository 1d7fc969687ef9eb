"""Kinds of tests that run only when they are asked for, with ``pytest -m``."""

from __future__ import annotations

import pathlib

import pytest


def skip_unless_asked(config: pytest.Config, items: list[pytest.Item], here: pathlib.Path, mark: str) -> None:
    """Mark the tests below ``here``, and skip them unless asked for."""
    asked = mark in config.option.markexpr
    for item in items:
        if here in item.path.parents:
            item.add_marker(mark)
            if not asked:
                item.add_marker(pytest.mark.skip(reason=f'not run: needs pytest -m {mark}'))
