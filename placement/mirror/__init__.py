"""What a search can see, held in memory: exactly a committed state of the database (doc/mirror.md).

``records`` is a provider as it was read and ``reading`` has the statements that read it. ``stock`` is the inventories
of one class as columns, ``sets`` the traits or aggregates, ``block`` some thousand providers in whole trees, ``state``
an immutable whole of blocks. ``keeper`` keeps the state of a process in step with the database. ``matching`` finds the
trees that a candidate request could use, ``account`` tells what each rule left over, and ``listing`` finds the
providers that pass a filter.
"""
