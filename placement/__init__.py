"""Placement: what a cloud has, who uses it, and who could host more."""

import warnings

# WebOb 1.8 imports the standard library's cgi module, whose import warns on Python 3.11 and 3.12. Nobody who runs the
# service can do anything about it, so the one import that would say it happens here, where this alone is silenced.
with warnings.catch_warnings():
    warnings.filterwarnings('ignore', "'cgi' is deprecated", DeprecationWarning)
    import webob  # noqa: F401
