"""Microversions: negotiation (contract A 1.4) and handlers that exist in windows of them."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator

import pytest
import webob
from webob import exc

from placement.web import microversion, util

Handler = Callable[[webob.Request], webob.Response]


def test_there_are_thirty() -> None:
    assert len(microversion.VERSIONS) == 30
    assert (microversion.min_version_string(), microversion.max_version_string()) == ('1.0', '1.29')


@pytest.mark.parametrize(
    ('header', 'version'),
    [
        (None, (1, 0)),
        ('', (1, 0)),
        ('placement 1.7', (1, 7)),
        ('placement 1.05', (1, 5)),
        ('PLACEMENT   1.7  ', (1, 7)),
        ('placement latest', (1, 29)),
        ('compute 2.38', (1, 0)),
        ('1.7', (1, 0)),
        ('placement', (1, 0)),
        ('placement 1.3, compute 9.9,placement 1.4', (1, 4)),
        ('placement 1.3, placement', (1, 3)),
        ('placement nonsense, placement 1.4', (1, 4)),
    ],
)
def test_the_last_pair_for_placement_counts(header: str | None, version: tuple[int, int]) -> None:
    assert microversion.negotiate(header) == version


@pytest.mark.parametrize(
    'text',
    ['pony.horse', '1', '1.2.3', 'v1.5', 'LATEST', '1.', '.5', '1_0.5', '\N{ARABIC-INDIC DIGIT ONE}.2', 'latest x'],
)
def test_what_is_no_version_is_a_bad_request(text: str) -> None:
    with pytest.raises(exc.HTTPBadRequest) as caught:
        microversion.negotiate(f'placement {text}')
    assert f'invalid version string: {text}' in caught.value.detail


@pytest.mark.parametrize('text', ['0.5', '1.30', '2.0', '-1.0', '1.-1', '999999999999999999999.0'])
def test_a_version_that_is_not_served_is_not_acceptable(text: str) -> None:
    with pytest.raises(microversion.UnacceptableVersion) as caught:
        microversion.negotiate(f'placement {text}')
    assert caught.value.detail == f'Unacceptable version header: {text}'
    assert caught.value.members == {'max_version': '1.29', 'min_version': '1.0'}


def test_stamp_keeps_what_vary_listed() -> None:
    version = microversion.negotiate('placement 1.4')
    assert microversion.stamp([('Vary', 'Origin'), ('X', 'y')], version) == [
        ('X', 'y'),
        ('OpenStack-API-Version', 'placement 1.4'),
        ('Vary', 'Origin, openstack-api-version'),
    ]


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    """A module to define handlers in, as a handlers module does."""
    made = types.ModuleType('placement_test_windows')
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def _define(module: types.ModuleType, text: str, since: str, until: str | None = None, status: int = 404) -> Handler:
    """Define a handler named ``show`` in the module, as its source would do one after the other."""

    def show(_req: webob.Request) -> webob.Response:
        return webob.Response(text)

    show.__module__ = module.__name__
    decorated = util.check_accept('text/html')(microversion.version_handler(since, until, status)(show))
    vars(module)['show'] = decorated
    return decorated


def _text(module: types.ModuleType, version: str) -> str:
    req = webob.Request.blank('/')
    req.environ[microversion.ENVIRON_KEY] = microversion.parse_version_string(version)
    text: str = module.show(req).text
    return text


def test_each_request_gets_the_function_of_its_window(module: types.ModuleType) -> None:
    _define(module, 'new', '1.7')
    _define(module, 'old', '1.2', '1.6')
    assert [_text(module, version) for version in ('1.2', '1.6', '1.7', '1.29')] == ['old', 'old', 'new', 'new']
    with pytest.raises(exc.HTTPNotFound):
        _text(module, '1.1')


def test_the_error_outside_of_all_windows_can_be_chosen(module: types.ModuleType) -> None:
    _define(module, 'text', '1.5', status=405)
    with pytest.raises(exc.HTTPMethodNotAllowed):
        _text(module, '1.4')


def test_windows_must_not_overlap(module: types.ModuleType) -> None:
    _define(module, 'one', '1.2', '1.6')
    with pytest.raises(ValueError, match='overlapping'):
        _define(module, 'two', '1.6')
