"""Requests with the longest lists that the limit on bodies allows, on SQLite."""

from __future__ import annotations

from typing import Any

from tests.support import largest_bodies


def test_no_text_of_a_statement_is_kept(app: Any) -> None:
    """But for the last sixteen of each connection. Most have ids in them, and are up to a megabyte long."""
    assert largest_bodies.kept_bytes(app.db) < 3_000_000


def test_largest_bodies(app: Any) -> None:
    largest_bodies.check(app)
