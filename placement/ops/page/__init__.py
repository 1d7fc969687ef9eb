"""A read-only web page for operators, rendered on the server without scripts (doc/page.md).

``application`` finds the view for a path. A view makes a ``View`` of the ``Parameters`` of the request and of
data from the other modules of ``placement.ops``. ``rendering`` writes it as HTML or JSON.
"""
