"""Identifies the process, so that a forked one does not use the connections and slots of its parent."""

from __future__ import annotations

import os


class Process:
    """This process."""

    #: An object that no ancestor of this process had, even if the id of a process is used again. It stays the same when
    #: the parent of the process ends.
    token = object()

    @classmethod
    def renew(cls) -> None:
        """Give a forked process its own token."""
        cls.token = object()


os.register_at_fork(after_in_child=Process.renew)
