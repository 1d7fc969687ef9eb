"""The mirror: everything that a search can see, in memory, exactly as in a committed snapshot of the database.

doc/cache.md describes it. ``rows`` has a provider as it was read, ``reading`` the statements that read it.
Providers are kept as numpy columns: ``columns`` has the inventories of one class, ``sets`` the traits or the
aggregates, ``partition`` some thousand providers in has_root trees. ``snapshot`` is an immutable list of partitions.
``keeper`` keeps the snapshot of a process up to date. ``matching`` finds the trees that could have a candidate,
``listing`` the providers that pass the filters of ``GET /resource_providers``.
"""
