"""The provider cache: everything that a search can see, in memory, exactly as in a committed state of the database.

doc/cache.md describes it. ``loader`` reads providers from the tables. Their columns (numpy) are ``inventory_columns``
for each resource class, and ``dictionary_column`` for traits and aggregates; ``partition`` has some thousand providers
in whole trees, and ``snapshot`` is an immutable list of partitions. ``refresh`` keeps the snapshot of a process up to
date, ``background_refresh`` also while nobody searches. ``prefilter`` finds the trees that could have a candidate, and
``provider_list`` the providers that pass the filters of ``GET /resource_providers``.
"""
