"""Metrics and health checks without an application: what is counted how, and invalid options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import webob

from placement import exception
from placement.observability.metrics import CLAIM_REJECTIONS, Metrics
from placement.web.request_log import RequestMetrics


def test_an_application_that_fails_counts_as_500() -> None:
    def failing(_environ: dict[str, Any], _start_response: Callable[..., Any]) -> Iterable[bytes]:
        raise RuntimeError

    counts = Metrics()
    with pytest.raises(RuntimeError):
        webob.Request.blank('/').get_response(RequestMetrics(failing, counts))
    labels = {'route': 'none', 'method': 'GET', 'microversion': 'none', 'status': '500'}
    assert counts.registry.get_sample_value('placement_requests_total', labels) == 1


@pytest.mark.parametrize(('kind', 'word'), CLAIM_REJECTIONS)
def test_a_rejected_claim_is_counted_under_its_reason(kind: type[exception.PlacementError], word: str) -> None:
    counts = Metrics()
    counts.initialize((), ())
    error = kind.__new__(kind)
    with pytest.raises(kind), counts.claim():
        raise error
    assert _claims(counts) == {word: 1}


def test_another_error_is_not_counted_as_a_claim() -> None:
    counts = Metrics()
    counts.initialize((), ())
    with pytest.raises(exception.DatabaseUnavailable), counts.claim():
        raise exception.DatabaseUnavailable
    assert _claims(counts) == {}


def _claims(counts: Metrics) -> dict[str, float]:
    """The numbers of claims that are not 0, by result."""
    samples = [sample for family in counts.registry.collect() for sample in family.samples]
    claims = [sample for sample in samples if sample.name == 'placement_claims_total']
    assert len(claims) == 1 + len(CLAIM_REJECTIONS)
    return {sample.labels['result']: sample.value for sample in claims if sample.value}
