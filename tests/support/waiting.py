"""Waits for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

#: Longer than anything takes on a busy machine.
SECONDS = 120


def wait_until(condition: Callable[[], object], problem: str | Callable[[], str] = '', *, pause: float = 0.01) -> None:
    """Return once ``condition()`` is true. The test fails with ``problem`` after two minutes."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f'not in {SECONDS} s: {problem() if callable(problem) else problem}')
        time.sleep(pause)
