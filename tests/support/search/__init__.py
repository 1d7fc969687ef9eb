"""Topologies for the candidate search: examples, random ones and hard ones, an oracle, and how to store them."""
