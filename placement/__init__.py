"""Placement: the inventories of a cloud, what consumers have allocated of them, and which providers could host more."""

import warnings
from importlib import metadata

# WebOb 1.8 imports the standard library's cgi module, which warns on Python 3.11 and 3.12. An operator can do nothing
# about that.
warnings.filterwarnings('ignore', "'cgi' is deprecated", DeprecationWarning, r'webob\.compat')


def release() -> str:
    """Return the installed version, such as ``1.0.0``. On the index, the name ``placement`` is another project."""
    return metadata.version('placement-server')
