"""JSON Schemas of request bodies and query strings, one module per resource, and of responses (``responses``).

Each schema is a constant for one window (range) of microversions. If there are several windows, the module also has a
``Windows`` table, newest first, and ``for_version`` chooses from it.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
Windows = tuple[tuple[tuple[int, int], Schema], ...]


def for_version(windows: Schema | Windows, version: tuple[int, int]) -> Schema:
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
