"""JSON Schemas of request bodies and query strings, one module per resource.

Each schema is a constant for one window of microversions. Where a resource has several windows the module also has a
``Windows`` table, newest first, from which ``for_version`` picks.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
Windows = tuple[tuple[tuple[int, int], Schema], ...]


def for_version(windows: Windows, version: tuple[int, int]) -> Schema:
    """Pick the schema that is in force at a microversion.

    :param windows: pairs of the first microversion of a window and its schema, newest first; the last is 1.0 or the
        first version of the endpoint.
    :param version: the negotiated microversion.
    :returns: the schema of the newest window that has begun.
    :raises LookupError: the version is older than every window.
    """
    for since, schema in windows:
        if version >= since:
            return schema
    raise LookupError(f'no schema at microversion {version[0]}.{version[1]}')
