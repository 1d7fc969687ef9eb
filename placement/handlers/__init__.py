"""Handlers, one module per resource: parse the request, act on an object, serialize the result. No SQL."""
