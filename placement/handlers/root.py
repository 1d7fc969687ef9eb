"""The version document at / (contract A 5.1)."""

from __future__ import annotations

import webob

from placement.handlers import modified
from placement.web import microversion, util, wsgi_wrapper


@wsgi_wrapper.PlacementWsgify
def home(req: webob.Request) -> webob.Response:
    """Say which microversions are served. The href is empty, so it means this same URL below any prefix."""
    document = {
        'id': 'v1.0',
        'max_version': microversion.max_version_string(),
        'min_version': microversion.min_version_string(),
        'status': 'CURRENT',
        'links': [{'rel': 'self', 'href': ''}],
    }
    return util.json_response(req, {'versions': [document]}, last_modified=modified.now())
