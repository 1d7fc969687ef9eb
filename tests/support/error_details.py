"""The form of every ``detail`` of an error: a general sentence, then the reason as one line (api-ref/errors.md)."""

from __future__ import annotations

import re
from typing import Any

from webob import exc

_METHOD_NOT_ALLOWED = re.compile(r'The method .* is not allowed for this resource\.')


def reason(error: dict[str, Any]) -> str:
    """Return the reason of an error of a document: the last line of its detail, without the space before it."""
    return str(error['detail'].rpartition('\n')[2].removeprefix(' '))


def check(document: Any) -> None:
    """Assert that a detail is the sentence of WebOb for its status, and that the last line is the whole reason.

    ``openstack`` prints nothing else of it.

    :param document: a JSON document that was received; only the documents of errors are checked.
    """
    if not isinstance(document, dict) or 'errors' not in document:
        return
    (error,) = document['errors']
    general, blank_line, reason = error['detail'].partition('\n\n ')
    if error['status'] == exc.HTTPMethodNotAllowed.code:
        assert _METHOD_NOT_ALLOWED.fullmatch(general), error
    else:
        assert general == exc.status_map[error['status']].explanation, error
    assert re.fullmatch(r'\S.*', reason) if blank_line else not reason, error
    if 'Failed validating' in reason:
        lead = 'JSON does not validate: |Invalid query string parameters: '
        assert re.match(rf"({lead}).+ \(Failed validating '\w+' in schema.*, on instance.*\)$", reason), error
