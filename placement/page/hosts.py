"""The host names under which the page may be requested (see ``Page``)."""

from __future__ import annotations

import ipaddress

#: The host names of a page that listens on a loopback address.
LOOPBACK_NAMES = frozenset({'localhost', '127.0.0.1', '[::1]'})


def is_loopback(host: str) -> bool:
    """Return whether ``host``, a name or an address without brackets, can be reached only from this machine."""
    if host == 'localhost':
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names(host: str) -> frozenset[str] | None:
    """Return the host names for a page that listens on ``host``; None, for any name, if other machines can reach it."""
    if not is_loopback(host):
        return None
    return LOOPBACK_NAMES | {f'[{host}]' if ':' in host else host}
