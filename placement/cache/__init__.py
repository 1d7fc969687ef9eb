"""The provider cache: everything that a search can see, in memory, exactly as in a committed state of the database.

doc/cache.md describes it. ``loader`` reads providers from the tables. ``partition`` has some thousand providers in
whole trees as columns (numpy), with ``inventory_columns`` for each resource class, and ``snapshot`` is an immutable
list of partitions. ``refresh`` brings the snapshot of a process up to date before each search, ``background_refresh``
between searches. ``placement.search`` reads the snapshot.
"""
