"""A read-only web page for operators, rendered on the server without scripts (doc/page.md).

``application`` finds the view for a path, and ``parameters`` reads the query string. Each view has a module that makes
a ``View`` of data from ``placement.ops.reports``. ``rendering`` writes it as HTML or JSON, and ``pictures`` computes
drawings.
"""
