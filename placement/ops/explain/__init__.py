"""Explains why a search finds nothing: facts about the request and the trees, and the sentences that tell them.

``explanation.explain`` is its table of contents. In the order of use:

* ``searches_in_text`` finds a search in what an operator pastes, and ``searches_in_log`` the latest ones in the log.
* ``checks`` divides a request into checks of single providers.
* ``matrix`` finds the failed checks of all providers at once, and then of their trees.
* ``explanation`` counts the trees by what they lack.
* ``conflicts`` explains why trees that serve each part of a request alone cannot serve all parts together.
* ``sentences`` puts these facts into words.

For example, ``resources=VCPU:8&resources1=VGPU:1&required1=CUSTOM_A`` has seven checks. An amount has three, from the
worst fault to the best, and a provider that fails one fails the next ones as well::

    0 VCPU:8 absent, 1 too small, 2 full    3 VGPU:1 of group 1 absent, 4 too small, 5 full    6 CUSTOM_A of group 1

``ProviderMatrix``: the mask of each provider, which has the checks that it fails, for each requirement::

    provider                             VCPU:8     group 1
    host1: 4 VCPU                        1, 2       3, 4, 5, 6
        card1: 1 VGPU, trait CUSTOM_A    0, 1, 2    none
    host2: 16 VCPU                       none       3, 4, 5, 6
        card2: 1 VGPU                    0, 1, 2    6

``TreeMatrix``: the choices of each tree for each part, which are the minimal masks of its providers. These trees have
one for each part::

    tree     unsuffixed group    group 1            closest choices together
    host1    1, 2 (by host1)     none (by card1)    1, 2
    host2    none (by host2)     6 (by card2)       6

``Explanation``: without check 6, one tree could serve each part; without 1 and 2, another one. These are the sets in
``blocked``, and both are near misses, because 1 and 2 are faults of one amount.

``Writer``: the first near miss is what no host has that has the rest; then come the hosts that have it::

    No host large enough for VCPU:8 has CUSTOM_A on the provider for group 1. 1 host too small for VCPU:8 has.
"""
