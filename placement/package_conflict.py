"""Detects that openstack-placement, whose files would overwrite ours, is installed beside this distribution."""

from __future__ import annotations

from importlib import metadata

#: The distribution of the reference service, whose Python package is also called ``placement``.
_OTHER = 'openstack-placement'


def describe() -> str | None:
    """Return a sentence about the conflict, or None if that distribution is not installed."""
    try:
        version = metadata.version(_OTHER)
    except metadata.PackageNotFoundError:
        return None
    return (
        f'{_OTHER} {version} is installed as well. Both are the Python package "placement", and each overwrites files'
        ' of the other: uninstall both, then install the one that is to run.'
    )
