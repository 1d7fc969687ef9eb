"""Looks at the tables below a quiet service: what must be true of them whatever was asked."""

from __future__ import annotations

import sqlalchemy as sa

_USED = """
SELECT p.uuid, i.resource_class_id, i.used, COALESCE(SUM(a.used), 0)
FROM inventories i
JOIN resource_providers p ON p.id = i.resource_provider_id
LEFT JOIN allocations a ON a.resource_provider_id = i.resource_provider_id AND a.resource_class_id = i.resource_class_id
GROUP BY p.uuid, i.id, i.resource_class_id, i.used
HAVING i.used <> COALESCE(SUM(a.used), 0)
"""
_WITHOUT_INVENTORY = """
SELECT a.consumer_id, a.resource_provider_id, a.resource_class_id
FROM allocations a
LEFT JOIN inventories i ON a.resource_provider_id = i.resource_provider_id AND a.resource_class_id = i.resource_class_id
WHERE i.id IS NULL
"""
_IDLE_CONSUMERS = """
SELECT c.uuid FROM consumers c LEFT JOIN allocations a ON a.consumer_id = c.uuid WHERE a.id IS NULL
"""
_STRANGERS = """
SELECT a.consumer_id FROM allocations a LEFT JOIN consumers c ON a.consumer_id = c.uuid WHERE c.id IS NULL
"""


def violations(url: str) -> list[str]:
    """What is wrong in the database at ``url`` (a SQLAlchemy URL), as sentences; empty when nothing is."""
    engine = sa.create_engine(url)
    try:
        with engine.connect() as connection:
            found = [
                f'provider {row[0]}: used of class {row[1]} is {row[2]}, its allocations are {row[3]}'
                for row in connection.execute(sa.text(_USED))
            ]
            for row in connection.execute(sa.text(_WITHOUT_INVENTORY)):
                found.append(f'consumer {row[0]}: allocation of class {row[2]} on provider {row[1]} without inventory')
            for row in connection.execute(sa.text(_IDLE_CONSUMERS)):
                found.append(f'consumer {row[0]}: exists without allocations')
            for row in connection.execute(sa.text(_STRANGERS)):
                found.append(f'consumer {row[0]}: has allocations but does not exist')
    finally:
        engine.dispose()
    return found
