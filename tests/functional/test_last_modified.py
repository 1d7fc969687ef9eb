"""The value of Last-Modified: the time of the latest write of what is shown."""

from __future__ import annotations

import datetime as dt
import functools
import uuid
from typing import Any

import pytest
import sqlalchemy as sa

from placement.db import change_log, tables
from placement.db.api import Database
from tests.support.http_client import claim_body, create_provider, demand

CLASS = 'CUSTOM_CLASS'
TRAIT = 'CUSTOM_TRAIT'
TOTAL = {'total': 9}


def day(number: int) -> dt.datetime:
    """A day long ago, used as the time of a write."""
    return dt.datetime(2001, 1, number, 12, 30, 15)


class Service:
    """The application with two hosts; ``date`` sets the times of stored rows."""

    def __init__(self, app: Any, db: Database) -> None:
        self._db = db
        #: Sends a request that has to succeed.
        self.call = functools.partial(demand, app)
        self.hosts = [create_provider(app, VCPU=8, DISK_GB=100) for _ in range(2)]
        self.consumer = str(uuid.uuid4())
        self.call('PUT', f'/resource_classes/{CLASS}')
        self.call('PUT', f'/traits/{TRAIT}')
        traits = {'resource_provider_generation': 1, 'traits': [TRAIT, 'HW_CPU_X86_AVX']}
        self.call('PUT', f'/resource_providers/{self.hosts[0]}/traits', traits)

    def claim(self, amounts: dict[str, int], generation: int | None = None) -> None:
        """Claim resources of the first host for the consumer."""
        body = claim_body({self.hosts[0]: amounts}, generation)
        self.call('PUT', f'/allocations/{self.consumer}', body)

    def date(self, table: sa.Table, created: int, updated: int | None, *only: sa.ColumnElement[bool]) -> None:
        """Set the days on which the rows of a table, or some of them, were created and updated."""

        def work(tx: sa.Connection) -> None:
            written = None if updated is None else day(updated)
            tx.execute(table.update().where(*only).values(created_at=day(created), updated_at=written))
            change_log.record_reload(tx)

        self._db.write(work)

    def modified(self, path: str) -> dt.datetime:
        """The value of Last-Modified."""
        when = self.call('GET', path).last_modified
        assert when is not None
        assert when.utcoffset() == dt.timedelta(0)
        return when.replace(tzinfo=None)


@pytest.fixture
def service(app: Any, db: Database) -> Service:
    return Service(app, db)


def provider(service: Service, number: int) -> sa.ColumnElement[bool]:
    return tables.resource_providers.c.uuid == service.hosts[number]


def test_last_modified_of_one_thing(service: Service) -> None:
    """The day of its update, or of its creation if it was never updated."""
    host = f'/resource_providers/{service.hosts[0]}'
    things = [
        (host, tables.resource_providers),
        (f'{host}/inventories/VCPU', tables.inventories),
        (f'/resource_classes/{CLASS}', tables.resource_classes),
        (f'/traits/{TRAIT}', tables.traits),
    ]
    for path, table in things:
        service.date(table, 3, None)
        assert service.modified(path) == day(3), path
        service.date(table, 3, 5)
        assert service.modified(path) == day(5), path
    # A PUT that confirms a trait has the time of the trait, too.
    assert service.call('PUT', f'/traits/{TRAIT}').last_modified == day(5).replace(tzinfo=dt.UTC)


@pytest.mark.parametrize('newest', [0, 1])
@pytest.mark.parametrize('updated', [False, True])
def test_last_modified_of_lists(service: Service, newest: int, updated: bool) -> None:
    """The newest day of the list, at any position and whether a creation or an update."""
    service.claim({'VCPU': 1, 'DISK_GB': 1})
    host = f'/resource_providers/{service.hosts[0]}'
    inventories, allocations = tables.inventories, tables.allocations
    lists = [
        ('/resource_providers', tables.resource_providers, provider(service, newest)),
        (f'{host}/inventories', inventories, inventories.c.resource_class_id == 2 * newest),
        ('/resource_classes', tables.resource_classes, tables.resource_classes.c.id == 7 * newest),
        ('/traits', tables.traits, tables.traits.c.name == ['HW_CPU_X86_AVX', TRAIT][newest]),
        (f'{host}/traits', tables.traits, tables.traits.c.name == ['HW_CPU_X86_AVX', TRAIT][newest]),
        (f'/allocations/{service.consumer}', allocations, allocations.c.resource_class_id == 2 * newest),
        (f'{host}/allocations', allocations, allocations.c.resource_class_id == 2 * newest),
    ]
    for path, table, condition in lists:
        service.date(table, 3, None)
        if updated:
            # Created before all others.
            service.date(table, 2, 9, condition)
        else:
            service.date(table, 9, None, condition)
        assert service.modified(path) == day(9), path


def test_only_what_is_listed_counts(service: Service) -> None:
    service.date(tables.resource_providers, 3, 4)
    service.date(tables.resource_providers, 3, 9, provider(service, 0))
    assert service.modified(f'/resource_providers?uuid={service.hosts[1]}') == day(4)
    service.date(tables.traits, 3, 9)
    service.date(tables.traits, 3, 4, tables.traits.c.name.in_([TRAIT, 'HW_CPU_X86_AVX']))
    assert service.modified(f'/resource_providers/{service.hosts[0]}/traits') == day(4)


def test_a_claim_is_no_modification_of_the_inventory(service: Service) -> None:
    """Neither a new claim, nor a changed one, nor its deletion."""
    path = f'/resource_providers/{service.hosts[0]}/inventories'

    def unmodified() -> bool:
        return [service.modified(path), service.modified(f'{path}/VCPU')] == [day(5), day(4)]

    vcpu = tables.inventories.c.resource_class_id == 0
    service.date(tables.inventories, 3, 5)
    service.date(tables.inventories, 4, None, vcpu)
    assert unmodified()
    service.claim({'VCPU': 2, 'DISK_GB': 10})
    assert unmodified()
    service.claim({'VCPU': 1, 'DISK_GB': 20}, 1)
    assert unmodified()
    service.call('DELETE', f'/allocations/{service.consumer}')
    assert unmodified()
    inventory = {'resource_provider_generation': 4, 'total': 9}
    service.call('PUT', f'{path}/VCPU', inventory)
    assert service.modified(f'{path}/VCPU') == service.modified(path) > day(31)


def test_a_claim_is_a_modification_of_its_provider_and_consumer(service: Service, db: Database) -> None:
    """It increments the generation. The list, which is answered from the cache, has the same time as the provider."""
    service.date(tables.resource_providers, 3, 4)
    assert service.modified('/resource_providers') == day(4)
    service.claim({'VCPU': 2})
    shown = service.modified(f'/resource_providers/{service.hosts[0]}')
    assert service.modified('/resource_providers') == shown > day(31)
    assert service.modified(f'/resource_providers/{service.hosts[1]}') == day(4)
    service.date(tables.consumers, 3, None)
    service.claim({'VCPU': 1}, 1)
    ((updated,),) = db.fetch_all(sa.select(tables.consumers.c.updated_at))
    assert updated > day(31)


@pytest.mark.parametrize(
    ('below', 'body'),
    [
        # One inventory is kept, one removed, one added.
        ('/inventories', {'inventories': {'VCPU': TOTAL, 'MEMORY_MB': TOTAL}, 'resource_provider_generation': 2}),
        ('/traits', {'traits': [], 'resource_provider_generation': 2}),
        ('', {'name': 'renamed'}),
    ],
)
def test_a_write_to_a_provider_is_a_modification_of_this_one_only(
    service: Service, below: str, body: dict[str, Any]
) -> None:
    host, other = (f'/resource_providers/{uuid_}' for uuid_ in service.hosts)
    for table in (tables.resource_providers, tables.inventories):
        service.date(table, 3, 4)
    service.call('PUT', f'{host}{below}', body)
    assert service.modified(host) > day(31)
    assert (service.modified(f'{host}/inventories/VCPU') > day(31)) == (below == '/inventories')
    assert service.modified(other) == service.modified(f'{other}/inventories') == day(4)
