"""Handlers, one module per resource: parse the request, act on an object, serialise the outcome. No SQL."""
