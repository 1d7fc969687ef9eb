"""Microversions: negotiation, and handlers that exist for a range of microversions."""

from __future__ import annotations

import re
import tracemalloc

import pytest
from webob import exc

from placement import conf as placement_conf
from placement.conf.options import MICROVERSION_CHOICES
from placement.web import microversion
from tests.support.pages import ROOT

DEFAULT = '1.29'


def test_the_option_goes_from_the_default_to_the_newest_microversion_that_there_is() -> None:
    assert [f'1.{minor}' for minor in range(len(microversion.VERSIONS))] == microversion.VERSIONS
    assert microversion.VERSIONS[29:] == MICROVERSION_CHOICES
    assert placement_conf.load(config_files=[]).placement.max_microversion == DEFAULT


@pytest.mark.parametrize('file', ['api-ref/microversions.md', 'doc/differences.md'])
def test_documents_name_the_default_and_the_newest_microversion(file: str) -> None:
    text = (ROOT / file).read_text()
    [(default, newest)] = re.findall(
        r'`\[placement\] max_microversion`.* default.*?`(1\.\d+)`.* up to `(1\.\d+)`', text
    )
    assert (default, newest) == (DEFAULT, MICROVERSION_CHOICES[-1])


@pytest.mark.parametrize('newest', MICROVERSION_CHOICES)
def test_what_is_served_ends_at_the_newest(newest: str) -> None:
    assert microversion.served(newest)[-1] == newest
    latest = microversion.negotiate('placement latest', newest)
    assert str(latest) == str(microversion.negotiate(f'placement {newest}', newest)) == newest
    assert (str(latest.min_version), str(latest.max_version)) == ('1.0', newest)
    minor = int(newest.partition('.')[2])
    with pytest.raises(microversion.UnacceptableVersion) as caught:
        microversion.negotiate(f'placement 1.{minor + 1}', newest)
    assert caught.value.members == {'max_version': newest, 'min_version': '1.0'}


@pytest.mark.parametrize(
    'text',
    ['one.five', '1', '1.2.3', 'v1.5', 'LATEST', '1.', '.5', '1_0.5', '\N{ARABIC-INDIC DIGIT ONE}.2', 'latest x'],
)
def test_a_malformed_version_is_a_bad_request(text: str) -> None:
    with pytest.raises(exc.HTTPBadRequest) as caught:
        microversion.negotiate(f'placement {text}', DEFAULT)
    assert f'invalid version string: {text}' in caught.value.detail


def test_long_headers_of_clients_do_not_stay_in_memory() -> None:
    tracemalloc.start()
    try:
        for number in range(100):
            microversion.negotiate(f'placement 1.{number % 30}, compute {number}{"0" * 100_000}', DEFAULT)
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()
