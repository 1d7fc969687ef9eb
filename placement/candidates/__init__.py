"""The candidate search: pure Python over plain data, without SQL, HTTP or configuration.

The rules are in api-ref/candidate-search.md. In the order in which a search uses them: ``request`` is what the caller
asks for, ``providers`` the data that it is compared with, ``parts`` the request divided into what one provider has to
take as a whole. ``sharing`` tells which sharing providers reach an anchor, ``search_units`` are the places where
candidates are built. ``variables`` finds the providers that could take each part at one anchor, ``collective`` checks
the traits that the unsuffixed group requires of all its providers together, ``subtree`` the conditions
``same_subtree``, ``refutation`` shows early that not all parts can be placed, and ``walk`` places them. ``search`` is
the pipeline of all that, ``limits`` and ``size`` bound it, and ``reasons`` are the reasons for which providers and
combinations are rejected.
"""
