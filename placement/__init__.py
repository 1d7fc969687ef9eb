"""Placement: the inventories of a cloud, what consumers have allocated of them, and which providers could host more."""

import sys
import warnings

# Two imports cause warnings on some versions of Python, about which an operator can do nothing. They are made here,
# before any other module makes them, with only these warnings suppressed.
with warnings.catch_warnings():
    # WebOb 1.8 imports the standard library's cgi module, which warns on Python 3.11 and 3.12.
    warnings.filterwarnings('ignore', "'cgi' is deprecated", DeprecationWarning)
    import webob  # noqa: F401

    # oslo.log 8.2, the newest for Python 3.10, imports eventlet if it is installed, to find out whether it is in use.
    # The entry None makes that import fail.
    warnings.filterwarnings('ignore', 'eventletutils module is deprecated', DeprecationWarning)
    _hidden = 'eventlet' not in sys.modules
    if _hidden:
        sys.modules['eventlet'] = None  # type: ignore[assignment]
    import oslo_log.log  # noqa: F401

    if _hidden:
        del sys.modules['eventlet']
