"""The rule that every ``detail`` of an error keeps: its last line alone states the reason (api-ref/errors.md)."""

from __future__ import annotations

import re
from typing import Any

#: The only lines that come before the reason, followed by an empty line.
_GENERAL = re.compile(r'The resource could not be found\.|The method \S+ is not allowed for this resource\.')


def check(document: Any) -> None:
    """Assert that the last line of a detail is the whole reason, as ``openstack`` prints nothing else of it.

    :param document: a JSON document that was received; only the documents of errors are checked.
    """
    if not isinstance(document, dict) or 'errors' not in document:
        return
    (error,) = document['errors']
    *before, reason = error['detail'].split('\n')
    assert re.match(r'\S', reason), error
    assert not before or (len(before) == 2 and _GENERAL.fullmatch(before[0]) and not before[1]), error
    if 'Failed validating' in reason:
        lead = 'JSON does not validate: |Invalid query string parameters: '
        assert re.match(rf"({lead}).+ \(Failed validating '\w+' in schema.*, on instance.*\)$", reason), error
