"""Requests with the longest lists that the limit on bodies allows, on SQLite."""

from __future__ import annotations

from typing import Any

from tests.support import largest_bodies


def test_largest_bodies(app: Any) -> None:
    largest_bodies.check(app)
