"""Recognizes uuids in all their spellings, and makes their canonical spelling."""

from __future__ import annotations

import re

_HEX_DIGITS = re.compile(r'[0-9a-fA-F]{32}')
#: Maximum number of characters of the uuid of an aggregate in the database.
_MAX_AGGREGATE_UUID = 36


def is_uuid(text: object) -> bool:
    """Return whether ``text`` is a uuid in one of its spellings (api-ref/rules.md#uuids)."""
    return isinstance(text, str) and _HEX_DIGITS.fullmatch(_bare(text)) is not None


def canonical_uuid(text: str) -> str:
    """Spell a uuid in lower case, 8-4-4-4-12. Other text is returned as it is."""
    digits = _bare(text).lower()
    if not _HEX_DIGITS.fullmatch(digits):
        return text
    return '-'.join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def aggregate_uuid(text: str) -> str:
    """Return the uuid of an aggregate as it is stored and compared: as it was sent.

    Spellings of more than 36 characters (with braces or as a URN) do not fit the column, so they become canonical.
    """
    return text if len(text) <= _MAX_AGGREGATE_UUID else canonical_uuid(text)


def _bare(text: str) -> str:
    # No spelling of a uuid is that long. This saves work on strings of a megabyte.
    if len(text) > 128:
        return ''
    return text.removeprefix('urn:').removeprefix('uuid:').strip('{}').replace('-', '')
