"""Explains why a search finds nothing: facts about the request and the trees, and the sentences that tell them.

``explanation.explain`` is its table of contents. In the order of use:

* ``searches_in_text`` finds a search in what an operator pastes, and ``searches_in_log`` the latest ones in the log.
* ``checks`` divides a request into checks of single providers.
* ``matrix`` finds the failed checks of all providers at once, and then of their trees.
* ``explanation`` counts the trees by what they lack.
* ``conflicts`` explains why trees that serve each part of a request alone cannot serve all parts together.
* ``sentences`` puts these facts into words.
"""
