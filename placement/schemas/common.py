"""Parts of schemas that several resources share."""

from __future__ import annotations

from placement.schemas import Schema

# Patterns end in \Z because $ would let a trailing newline pass.
CUSTOM_NAME_PATTERN = r'^CUSTOM_[A-Z0-9_]+\Z'
RESOURCE_CLASS_PATTERN = r'^[A-Z0-9_]+\Z'
CONSUMER_TYPE_PATTERN = r'^[A-Z0-9_]+\Z'
#: A key with the characters and the length of a uuid. Handlers check whether it is a uuid.
UUID_KEY_PATTERN = r'^[0-9a-fA-F-]{36}\Z'

TEXT: Schema = {'type': 'string'}
UUID: Schema = {'type': 'string', 'format': 'uuid'}
UUID_OR_NULL: Schema = {'type': ['string', 'null'], 'format': 'uuid'}
GENERATION: Schema = {'type': 'integer'}
CUSTOM_NAME: Schema = {'type': 'string', 'maxLength': 255, 'pattern': CUSTOM_NAME_PATTERN}
EXTERNAL_ID: Schema = {'type': 'string', 'minLength': 1, 'maxLength': 255}
