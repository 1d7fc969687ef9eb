"""Under which names the page answers: pages of strangers can lead a browser to it under names of their own."""

from __future__ import annotations

import ipaddress

#: The names by which a browser on this machine reaches a page on a loopback address.
LOOPBACK_NAMES = frozenset({'localhost', '127.0.0.1', '[::1]'})


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``, a name or an address without brackets."""
    if host == 'localhost':
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names(host: str) -> frozenset[str] | None:
    """The names under which a page that listens on ``host`` answers; None for any, where other machines reach it."""
    if not is_loopback(host):
        return None
    return LOOPBACK_NAMES | {f'[{host}]' if ':' in host else host}
