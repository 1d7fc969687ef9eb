"""Identifies the process, so that a forked one does not use the connections and slots of its parent."""

from __future__ import annotations

import os


class _Process:
    token = object()


def _renew() -> None:
    _Process.token = object()


os.register_at_fork(after_in_child=_renew)


def token() -> object:
    """Return an object that no ancestor of this process had, even if the id of a process is used again.

    It stays the same when the parent of the process ends.
    """
    return _Process.token
