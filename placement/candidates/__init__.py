"""The candidate search: pure Python over plain data, without SQL, HTTP or configuration.

The rules are in api-ref/candidate-search.md. The search is a constraint solver. In the order of use:

* ``request`` is a request for candidates, ``providers`` the data. ``requirements`` has the conditions on single
  providers and compiles a request into them.
* ``search_units`` has the trees with the sharing providers that reach them, at which candidates are built, and the
  families of candidates that a search returns.
* ``variables`` builds the variables of one search unit: each requirement with its domain. ``subtree`` and
  ``trait_coverage`` are the conditions on several providers together.
* ``infeasibility`` proves early that not all variables can be assigned, and ``backtracking`` assigns them.
* ``search`` is the pipeline of all that within ``limits``, and ``selection`` takes the candidates of an answer from it.
"""
