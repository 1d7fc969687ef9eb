"""Microversions: the list of all, and the negotiation of the microversion of a request."""

from __future__ import annotations

import functools
import re

import microversion_parse
from webob import Request, exc

from placement.conf.options import MICROVERSION_CHOICES

SERVICE_TYPE = 'placement'
ENVIRON_KEY = 'placement.microversion'
HEADER = 'OpenStack-API-Version'

#: Every microversion, oldest first; api-ref/microversions.md has the changes of each. An application serves all up to
#: ``[placement] max_microversion``.
VERSIONS = [*(f'1.{minor}' for minor in range(29)), *MICROVERSION_CHOICES]

_WELL_FORMED = re.compile(r'-?[0-9]+\.-?[0-9]+')


class UnacceptableVersion(exc.HTTPNotAcceptable):
    """The microversion in the request is not served. The response has the oldest and newest ones that are."""

    def __init__(self, text: str, newest: str) -> None:
        super().__init__(f'Unacceptable version header: {text}')
        #: For the log: whether ``[placement] max_microversion`` can allow this microversion.
        self.advice = (
            f'set [placement] max_microversion = {text} or newer'
            if text in MICROVERSION_CHOICES
            else f'this release has {VERSIONS[0]} to {VERSIONS[-1]}'
        )
        self.members = {'max_version': newest, 'min_version': VERSIONS[0]}


def served(newest: str) -> list[str]:
    """Return the microversions that are served when ``[placement] max_microversion`` is ``newest``, oldest first."""
    return VERSIONS[: VERSIONS.index(newest) + 1]


def parse_version_string(text: str) -> microversion_parse.Version:
    """Read two integers joined by a dot; ``1.05`` is 1.5.

    :raises TypeError: ``text`` is something else.
    """
    if not _WELL_FORMED.fullmatch(text):
        raise TypeError(f'invalid version string: {text}')
    return microversion_parse.parse_version_string(text)


def requested(req: Request) -> microversion_parse.Version:
    """Return the negotiated microversion. It can be compared with tuples: ``requested(req) >= (1, 14)``."""
    return req.environ[ENVIRON_KEY]


def text_in(header: str | None) -> str | None:
    """Return the microversion in the header of a request as the client wrote it; None without one."""
    return microversion_parse.get_version({HEADER.lower(): header or ''}, SERVICE_TYPE)


def negotiate(header: str | None, newest: str) -> microversion_parse.Version:
    """Return the microversion in the header of a request; without a header, the oldest one.

    :param header: the value of ``OpenStack-API-Version``, or several values joined with commas; None without a header.
    :param newest: the newest microversion that is served, such as ``1.29``; the result has it as ``max_version``.
    :raises HTTPBadRequest: the header has no microversion.
    :raises UnacceptableVersion: the microversion is not served.
    """
    return _served_version(text_in(header) or VERSIONS[0], newest)


# There are only some forty. Each has at most 4300 digits, even with leading zeros, while a header may have 128 KiB.
@functools.lru_cache(maxsize=64)
def _served_version(text: str, newest: str) -> microversion_parse.Version:
    if text == 'latest':
        text = newest
    try:
        version = parse_version_string(text)
    except TypeError as error:
        raise exc.HTTPBadRequest(str(error)) from error
    if str(version) not in served(newest):
        raise UnacceptableVersion(text, newest)
    version.min_version = parse_version_string(VERSIONS[0])
    version.max_version = parse_version_string(newest)
    return version
