"""Explains why a search finds nothing: facts about the rules of a request, and the sentences that tell them."""
