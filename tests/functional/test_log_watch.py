"""The fixture that watches the change log in every test notices a write that does not record one of its providers."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import sqlalchemy as sa

from placement.db import change_log
from placement.objects.resource_provider import ResourceProvider
from placement.web.context import RequestContext
from tests.support.log_watch import Watch
from tests.support.objects import claim, create_provider


@pytest.fixture
def hosts(context: RequestContext) -> list[ResourceProvider]:
    return [create_provider(context, VCPU=8) for _ in range(2)]


def claim_of_both(context: RequestContext, hosts: list[ResourceProvider]) -> None:
    claim(context, {host.uuid: {'VCPU': 1} for host in hosts})


def seen(watch: Watch) -> list[str]:
    """What the watch found; taking it keeps it from failing the test."""
    names = [line.partition(',')[0] for line in watch.unrecorded]
    watch.unrecorded.clear()
    return names


def omit_last(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make writers leave out the provider with the largest id from now on."""
    whole = getattr(change_log, name)

    def partly(tx: sa.Connection, provider_ids: Iterable[int]) -> None:
        whole(tx, sorted(provider_ids)[:-1])

    monkeypatch.setattr(change_log, name, partly)


def test_a_claim_that_does_not_note_one_provider(
    watch: Watch, context: RequestContext, hosts: list[ResourceProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = watch.seen
    claim_of_both(context, hosts)
    assert (watch.seen, seen(watch)) == (before + 1, [])
    omit_last(monkeypatch, 'record_usage')
    claim_of_both(context, hosts)
    assert seen(watch) == [f'provider {hosts[1].id} changed (USAGE)']
