"""Schemas of /resource_classes and /resource_classes/{name}."""

from __future__ import annotations

from placement.schemas import CUSTOM_NAME, Schema, object_of

#: The body of POST, and of PUT from 1.2 to 1.6. From 1.7 on, it validates the name in the path of PUT.
CUSTOM_CLASS: Schema = object_of({'name': CUSTOM_NAME})
