"""The version document at /."""

from __future__ import annotations

import webob

from placement.handlers import modified
from placement.schemas import responses
from placement.web import microversion, util
from placement.web.context import RequestContext
from placement.web.operation import operation


@operation(responses={200: responses.VERSIONS})
def home(req: webob.Request, _context: RequestContext) -> webob.Response:
    """Show which microversions are served. An empty href means the URL of the document, below any mount prefix."""
    document = {
        'id': 'v1.0',
        'max_version': microversion.max_version_string(),
        'min_version': microversion.min_version_string(),
        'status': 'CURRENT',
        'links': [{'rel': 'self', 'href': ''}],
    }
    return util.json_response(req, {'versions': [document]}, last_modified=modified.now())
