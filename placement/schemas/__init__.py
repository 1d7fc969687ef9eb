"""JSON Schemas of request bodies and query strings, one module per resource, and of responses (``responses``).

Each schema is a constant for one window (range) of microversions. If there are several windows, they are a ``Windows``
table, newest first, and ``for_version`` chooses from it.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
#: A microversion as two numbers.
Version = tuple[int, int]
Windows = tuple[tuple[Version, Schema], ...]


def with_members(since: Version, schema: Schema, *added: tuple[Version, dict[str, Schema]]) -> Windows:
    """Return the windows of a schema to which microversions add optional members.

    :param since: the first microversion.
    :param added: pairs of a microversion and the members that it adds, oldest first.
    """
    windows: Windows = ((since, schema),)
    for version, members in added:
        schema = {**schema, 'properties': {**schema['properties'], **members}}
        windows = ((version, schema), *windows)
    return windows


def for_version(windows: Schema | Windows, version: Version) -> Schema:
    """Return the schema that applies at a microversion.

    :param windows: a schema that always applies, or pairs of a window's first microversion and its schema, newest
        first. The last window begins with 1.0 or with the first microversion of the operation.
    :param version: the negotiated microversion.
    :raises LookupError: the version is older than every window.
    """
    if isinstance(windows, dict):
        return windows
    for since, schema in windows:
        if version >= since:
            return schema
    raise LookupError(f'no schema at microversion {version[0]}.{version[1]}')
