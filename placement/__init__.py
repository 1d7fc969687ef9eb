"""Placement: what a cloud has, who uses it, and who could host more."""

import sys
import warnings

# Two imports are noisy on some versions of Python, and nobody who runs the service can do anything about it. So they
# happen here first, where only they are silenced.
with warnings.catch_warnings():
    # WebOb 1.8 imports the standard library's cgi module, which warns on Python 3.11 and 3.12.
    warnings.filterwarnings('ignore', "'cgi' is deprecated", DeprecationWarning)
    import webob  # noqa: F401

    # oslo.log 8.2, the newest for Python 3.10, imports eventlet if it is installed, to ask whether it is in use.
    warnings.filterwarnings('ignore', 'eventletutils module is deprecated', DeprecationWarning)
    _hidden = 'eventlet' not in sys.modules
    if _hidden:
        sys.modules['eventlet'] = None  # type: ignore[assignment]
    import oslo_log.log  # noqa: F401

    if _hidden:
        del sys.modules['eventlet']
