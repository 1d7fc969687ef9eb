"""A web page for whoever is on call: read only, rendered here, useful without scripts (doc/page.md).

``application`` answers requests, each view has a module of its own that makes a ``View`` of what reports tell,
``rendering`` writes it as HTML or JSON, ``pictures`` has the geometry of what is drawn, ``asked`` reads query strings.
"""
