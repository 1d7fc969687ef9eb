"""Schemas of /resource_providers/{uuid}/aggregates."""

from __future__ import annotations

from placement.schemas import GENERATION, UUID, Schema, Windows, object_of

PUT_1_1: Schema = {'type': 'array', 'items': UUID, 'uniqueItems': True}

PUT_1_19: Schema = object_of({'aggregates': PUT_1_1, 'resource_provider_generation': GENERATION})

PUT: Windows = (((1, 19), PUT_1_19), ((1, 1), PUT_1_1))
