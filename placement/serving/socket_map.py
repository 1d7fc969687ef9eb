"""The sockets of a process, and a loop that waits for them. Idle sockets do not make the loop slower.

The names of waitress are not documented. They were read in waitress 3.0.2.
"""

from __future__ import annotations

import select
import selectors
import threading
from typing import Any

from waitress import wasyncore

_ALL_EVENTS = selectors.EVENT_READ | selectors.EVENT_WRITE


class SocketMap(dict[int, Any]):
    """waitress's map from file descriptors to dispatchers. It registers each dispatcher with a selector.

    In every iteration, the loop of waitress queries all dispatchers for the events that they wait for (``readable`` and
    ``writable``). This loop queries only dispatchers that had an event or for which ``update`` is called. All methods
    except ``is_outdated`` are for the thread of the loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self._selector = selectors.DefaultSelector()
        #: The file descriptor and the registered events of each open dispatcher.
        self._registered: dict[Any, tuple[int, int]] = {}
        # A thread that changes the events of a dispatcher calls ``is_outdated`` afterwards. ``update`` may run at the
        # same time. Both compare the events with the registration under this lock, so one of them sees the change.
        self._lock = threading.Lock()

    def __setitem__(self, fd: int, dispatcher: Any) -> None:
        super().__setitem__(fd, dispatcher)
        self._selector.register(fd, selectors.EVENT_READ, dispatcher)
        self._registered[dispatcher] = fd, selectors.EVENT_READ

    def __delitem__(self, fd: int) -> None:
        with self._lock:
            if self._registered.pop(self[fd])[1]:
                self._selector.unregister(fd)
        super().__delitem__(fd)

    def run_once(self, timeout: float) -> None:
        """Wait until sockets are ready, at most ``timeout`` seconds, and let their dispatchers handle them."""
        for key, events in self._selector.select(timeout):
            dispatcher = key.data
            # A previous event may have closed it.
            if dispatcher not in self._registered:
                continue
            if not events & _awaited(dispatcher):
                # The registration is removed only now that the event has occurred in vain, because most dispatchers
                # soon wait for the same event again.
                self.update(dispatcher)
                continue
            wasyncore.readwrite(dispatcher, select.POLLIN if events & selectors.EVENT_READ else select.POLLOUT)
            if self.is_outdated(dispatcher):
                self.update(dispatcher)

    def is_outdated(self, dispatcher: Any) -> bool:
        """Return whether an open dispatcher waits for an event for which it is not registered."""
        with self._lock:
            _, registered = self._registered.get(dispatcher, (-1, _ALL_EVENTS))
            return bool(_awaited(dispatcher) & ~registered)

    def update(self, dispatcher: Any) -> None:
        """Register a dispatcher for the events that it waits for now, unless it was closed."""
        with self._lock:
            if (state := self._registered.get(dispatcher)) is None:
                return
            fd, registered = state
            if (events := _awaited(dispatcher)) == registered:
                return
            if not events:
                self._selector.unregister(fd)
            elif registered:
                self._selector.modify(fd, events, dispatcher)
            else:
                self._selector.register(fd, events, dispatcher)
            self._registered[dispatcher] = fd, events

    def close(self) -> None:
        wasyncore.close_all(self)
        self._selector.close()


def _awaited(dispatcher: Any) -> int:
    """Return the events that a dispatcher waits for."""
    events = selectors.EVENT_READ if dispatcher.readable() else 0
    # As in the loop of waitress, a listener is never writable.
    if dispatcher.writable() and not dispatcher.accepting:
        events |= selectors.EVENT_WRITE
    return events
