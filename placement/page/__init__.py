"""A read-only web page for operators, rendered on the server without scripts (doc/page.md).

``application`` processes requests and ``parameters`` reads their query strings. Each view has a module that makes a
``View`` of the data of ``placement.reports``; ``rendering`` writes it as HTML or JSON, ``pictures`` computes drawings.
"""
