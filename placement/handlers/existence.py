"""That there is no such provider, told before anything that is wrong with the body of the request."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from webob import exc

from placement.objects.resource_provider import ResourceProvider
from placement.web.context import RequestContext


@contextlib.contextmanager
def before(context: RequestContext, uuid: str) -> Iterator[None]:
    """Look for a provider only when the block, which reads the body, fails; else the write that follows finds out.

    :param uuid: of the path.
    :raises ResourceProviderNotFound: the block failed, and there is no such provider.
    """
    try:
        yield
    except exc.HTTPBadRequest:
        ResourceProvider.get_by_uuid(context, uuid)
        raise
