"""Explains why a search finds nothing: facts about the rules of a request, and the sentences that tell them.

``explanation.explain`` is its table of contents. In the order of use:

* ``searches_in_text`` finds a search in what an operator pastes, and the latest searches in the log.
* ``rules`` divides a request into rules, and leaves rules out of a request.
* ``stages`` counts the providers and trees that remain after each rule.
* ``explanation`` searches without each rule. If nothing is found, it decides which rules block the request.
* ``blockers`` finds out why such a rule excludes all providers, and ``combination_failures`` why groups that can be
  placed alone cannot be placed together.
* ``sentences`` puts these facts into words.
* ``empty_searches`` explains a search that found nothing in a line of the log.
"""
