"""Whether the package is installed in one piece."""

from __future__ import annotations

from importlib import metadata

#: The distribution of the reference service, whose package has the same name.
_OTHER = 'openstack-placement'


def trouble() -> str | None:
    """What is wrong with the installation, None when nothing is."""
    try:
        version = metadata.version(_OTHER)
    except metadata.PackageNotFoundError:
        return None
    return (
        f'{_OTHER} {version} is installed as well. Both are the Python package "placement", and each overwrites files'
        ' of the other: uninstall both, then install the one that is to run.'
    )
