"""The fixture that watches the change log in every test notices a write that does not record one of its providers."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import pytest
import sqlalchemy as sa

from placement.capacity import InventoryRecord
from placement.db import change_log
from placement.objects.resource_provider import ResourceProvider
from placement.objects.trait import Trait
from placement.web.context import RequestContext
from tests.support.log_watch import Watch
from tests.support.objects import claim, create_provider, set_inventories, set_traits


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


def test_a_change_noted_only_as_usage(
    watch: Watch, context: RequestContext, hosts: list[ResourceProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, 'record_providers', change_log.record_usage)
    set_traits(hosts[0], ['HW_CPU_X86_AVX2'])
    hosts[0].set_aggregates([str(uuid.uuid4())], increment_generation=True)
    set_inventories(hosts[0], ('VCPU', InventoryRecord(9)))
    hosts[0].rename('renamed')
    assert seen(watch) == [f'provider {hosts[0].id} changed (PROVIDER)'] * 4


def test_names(watch: Watch, context: RequestContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log.PendingChanges, 'verify_recorded', lambda _pending: None)
    Trait.create(context, 'CUSTOM_ONE')
    assert seen(watch) == []
    monkeypatch.setattr(change_log, 'record_names', lambda tx: change_log.record_usage(tx, [7]))
    monkeypatch.setattr(change_log, 'record_new_trait', change_log.record_new_class)
    Trait.create(context, 'CUSTOM_TWO')
    Trait.destroy(context, 'CUSTOM_ONE')
    assert seen(watch) == ['names changed (NAMES)'] * 2
