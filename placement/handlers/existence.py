"""The order of two errors: a provider that does not exist is reported before an invalid body."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from webob import exc

from placement.objects.resource_provider import ResourceProvider
from placement.web.context import RequestContext


@contextlib.contextmanager
def reported_first(context: RequestContext, uuid: str) -> Iterator[None]:
    """Check whether a provider exists, but only when the block, which reads the body of the request, fails.

    When the block succeeds, no statement is needed here: the write that follows detects a missing provider.

    :param uuid: of the provider in the path.
    :raises ResourceProviderNotFound: the block raised HTTPBadRequest, and there is no such provider.
    """
    try:
        yield
    except exc.HTTPBadRequest:
        ResourceProvider.get_by_uuid(context, uuid)
        raise
