"""The provider cache: the image of a committed state of the database in memory, with everything that a search reads.

doc/cache.md describes it. ``loader`` reads ``providers`` from the tables. ``partition`` stores a few thousand
providers, in whole trees, as numpy columns, with ``inventory_columns`` for each resource class. ``snapshot`` is an
immutable list of partitions. ``refresh`` brings the snapshot of a process up to date before each search,
``background_refresh`` between searches. ``placement.search`` reads the snapshot.
"""
