"""The version document at /."""

from __future__ import annotations

from webob import Request, Response

from placement.schemas import responses
from placement.web import http, microversion
from placement.web.authentication import RequestContext
from placement.web.operation import operation


@operation(responses={200: responses.VERSIONS})
def list_versions(req: Request, _context: RequestContext) -> Response:
    """Show which microversions are served. An empty href means the URL of this document, with any mount prefix."""
    version = microversion.requested(req)
    document = {
        'id': 'v1.0',
        'max_version': str(version.max_version),
        'min_version': str(version.min_version),
        'status': 'CURRENT',
        'links': [{'rel': 'self', 'href': ''}],
    }
    return http.json_response(req, {'versions': [document]}, last_modified=http.now())
