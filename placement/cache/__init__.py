"""The mirror: everything that a search can see, in memory, exactly as in a committed state of the database.

doc/cache.md describes it. ``records`` has a provider as it was read, ``reading`` the statements that read it.
Providers are kept as numpy columns: ``stock`` has the inventories of one class, ``sets`` the traits or the aggregates,
``block`` some thousand providers in whole trees. ``state`` is an immutable list of blocks. ``keeper`` keeps the state
of a process up to date. ``matching`` finds the trees that could have a candidate, ``listing`` the providers that pass
the filters of ``GET /resource_providers``.
"""
