"""Checks the tables of a service while no requests run: what must be true of them after any history."""

from __future__ import annotations

import sqlalchemy as sa

#: The sentence about each row, and the query that finds the rows.
_FAULTS = (
    (
        'provider {0}: used of class {1} is {2}, its allocations are {3}',
        """
        SELECT p.uuid, i.resource_class_id, i.used, COALESCE(SUM(a.used), 0)
        FROM placement_inventories i
        JOIN placement_resource_providers p ON p.id = i.resource_provider_id
        LEFT JOIN placement_allocations a
            ON a.resource_provider_id = i.resource_provider_id AND a.resource_class_id = i.resource_class_id
        GROUP BY p.uuid, i.id, i.resource_class_id, i.used
        HAVING i.used <> COALESCE(SUM(a.used), 0)
        """,
    ),
    (
        'consumer {0}: allocation of class {1} on provider {2} without inventory',
        """
        SELECT a.consumer_id, a.resource_class_id, a.resource_provider_id
        FROM placement_allocations a
        LEFT JOIN placement_inventories i
            ON a.resource_provider_id = i.resource_provider_id AND a.resource_class_id = i.resource_class_id
        WHERE i.id IS NULL
        """,
    ),
    (
        'consumer {0}: exists without allocations',
        """
        SELECT c.uuid FROM placement_consumers c
        LEFT JOIN placement_allocations a ON a.consumer_id = c.uuid WHERE a.id IS NULL
        """,
    ),
    (
        'consumer {0}: has allocations but does not exist',
        """
        SELECT a.consumer_id FROM placement_allocations a
        LEFT JOIN placement_consumers c ON a.consumer_id = c.uuid WHERE c.id IS NULL
        """,
    ),
)


def violations(url: str) -> list[str]:
    """The violations in the database at ``url`` (a SQLAlchemy URL), as sentences; empty when there are none."""
    engine = sa.create_engine(url)
    try:
        with engine.connect() as connection:
            return [sentence.format(*row) for sentence, query in _FAULTS for row in connection.execute(sa.text(query))]
    finally:
        engine.dispose()
