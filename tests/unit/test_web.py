"""The text of an error, whatever the reason quotes. Gabbits have the rest of the responses."""

from __future__ import annotations

import functools
from typing import Any

import webob
from webob import exc

from placement.web import error_responses

CONFLICT = 'There was a conflict when trying to complete your request.'


def _detail(reason: str) -> Any:
    req = webob.Request.blank('/')
    response = req.get_response(functools.partial(error_responses.respond, exc.HTTPConflict(reason)))
    return response.json['errors'][0]['detail']


def test_the_reason_is_one_line_of_text_that_can_be_encoded() -> None:
    assert _detail('name a\nb\r \ud800') == f'{CONFLICT}\n\n name a\\nb\\r ?'


def test_a_text_of_a_megabyte_is_shortened_in_the_middle() -> None:
    detail = _detail(f'start{"x" * 1_000_000}end')
    assert len(detail) < 10_000
    assert detail.startswith(f'{CONFLICT}\n\n start')
    assert detail.endswith('end')
