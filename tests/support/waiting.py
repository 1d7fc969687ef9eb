"""Waits for what another thread or process does."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable

import pytest

#: Longer than anything takes on a busy machine.
SECONDS = 120


def wait_until(condition: Callable[[], object], problem: str | Callable[[], str] = '', *, pause: float = 0.01) -> None:
    """Return once ``condition()`` is true. After two minutes the test fails with ``problem`` or the caller's line."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            reason = problem() if callable(problem) else problem or traceback.extract_stack(limit=2)[0].line
            pytest.fail(f'not in {SECONDS} s: {reason}')
        time.sleep(pause)
