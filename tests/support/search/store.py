"""Stores the topologies of the candidate tests in a database, and sends queries to the whole application."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
import webob

from placement.db import tables
from placement.db.api import Database
from tests.support import clouds
from tests.support.http_client import send_request
from tests.support.search.oracle import RP, Body, Entry, Oracle
from tests.support.search.query_strings import uuid_of, with_uuids
from tests.support.search.topologies import TRAITS

_MEMBERS = (
    tables.allocations,
    tables.consumers,
    tables.inventories,
    tables.resource_provider_traits,
    tables.resource_provider_aggregates,
    tables.placement_aggregates,
    tables.projects,
    tables.users,
)


class Stored:
    """A topology in a database, reached over HTTP."""

    def __init__(self, app: Any, topology: list[RP]) -> None:
        self._app = app
        self.names = {uuid_of(rp.name): rp.name for rp in topology}
        store(app.db, topology)

    def request(self, path: str, minor: int, method: str = 'GET', body: Any = None) -> webob.Response:
        return send_request(self._app, method, path, body, f'1.{minor}')

    def candidates(self, query: str, minor: int = 29) -> dict[str, Any]:
        """The answer to a query, aggregates given by name."""
        response = self.request(f'/allocation_candidates?{with_uuids(query)}', minor)
        assert response.status_code == 200, response.text
        return response.json

    def bodies(self, answer: dict[str, Any]) -> list[Body]:
        """The allocations of the candidates of an answer, in the form of the oracle."""
        return [entry.body for entry in self.entries(answer)]

    def entries(self, answer: dict[str, Any]) -> list[Entry]:
        """The candidates of an answer with their mappings, in the form of the oracle."""
        return [self._entry(candidate) for candidate in answer['allocation_requests']]

    def _entry(self, candidate: dict[str, Any]) -> Entry:
        body = self._body(candidate['allocations'])
        if 'mappings' not in candidate:
            return Entry(body)
        for providers in candidate['mappings'].values():
            assert len(providers) == len(set(providers)), f'a provider is listed twice: {providers}'
        return Entry(
            body,
            frozenset(
                (suffix, frozenset(self.names[key] for key in providers))
                for suffix, providers in candidate['mappings'].items()
            ),
        )

    def _body(self, allocations: Any) -> Body:
        if isinstance(allocations, list):
            items = [(allocation['resource_provider']['uuid'], allocation['resources']) for allocation in allocations]
        else:
            items = [(key, entry['resources']) for key, entry in allocations.items()]
        return frozenset((self.names[key], rc, n) for key, resources in items for rc, n in resources.items())

    def summaries(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The summaries of an answer, in the form of the oracle."""
        summaries = {}
        for key, summary in answer['provider_summaries'].items():
            shown = summaries[self.names[key]] = dict(summary)
            if 'traits' in shown:
                shown['traits'] = sorted(shown['traits'])
            for link in ('parent_provider_uuid', 'root_provider_uuid'):
                if shown.get(link):
                    shown[link] = self.names[shown[link]]
        return summaries


def store(db: Database, topology: list[RP]) -> None:
    """Replace all providers by ``topology``. Usage becomes allocations of one consumer per inventory."""
    oracle = Oracle(topology)
    providers = [
        clouds.Provider(rp.name, rp.inventory, tuple(rp.traits), tuple(rp.aggregates), rp.parent)
        # A parent has to exist.
        for rp in sorted(topology, key=lambda rp: len(oracle.line(rp.name)))
    ]
    allocations: dict[str, dict[str, clouds.Amounts]] = {
        f'{rp.name}/{rc}': {rp.name: {rc: record['used']}}
        for rp in topology
        for rc, record in rp.inventory.items()
        if record['used']
    }

    def work(tx: sa.Connection) -> None:
        for table in _MEMBERS:
            tx.execute(table.delete())
        tx.execute(tables.resource_providers.update().values(root_provider_id=None, parent_provider_id=None))
        tx.execute(tables.resource_providers.delete())
        # Queries may name a trait that no provider of this topology has; it must exist nevertheless.
        clouds.insert_names(tx, tables.traits, set(TRAITS))
        clouds.insert_cloud(tx, clouds.Cloud(providers, allocations))

    db.write(work)
