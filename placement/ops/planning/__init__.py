"""Plans of operators: what fits if hosts are drained or fail, at another ratio, and how many of each flavor.

::

    hosts        one state of the database -> matrices with a row for each provider, a column for each class
    loads        allocations -> shapes: what one consumer has on one tree, without the name of the consumer
    eligibility  which rows may take a shape, and in which order they are tried first
    packing      places shapes by a policy, in an order; nested places those of several providers
    bounds       proves that shapes cannot be placed
    fits         counts how many more consumers of one size fit
    drain, failures, ratio, flavors   the questions; plan_sentences puts the answers into words

doc/plan.md says what the answers mean.
"""
