"""Handlers, one module per resource, without SQL.

They read the request, call objects, claims or the search, and write the response.
"""
