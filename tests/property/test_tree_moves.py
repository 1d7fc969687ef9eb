"""Changes of parents against a simple model of the rules (api-ref/resource-providers.md#the-rules-of-parents).

Hypothesis generates creations, moves and deletions. After each step the answer must be what the model says, and at the
end so must the list, which is answered from the cache, and each provider, which is read from the tables.
"""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import applications
from tests.support.http_client import send_request

#: A number stands for the provider with it, of those that were created so far; None for no parent.
Step = tuple[str, int, int | None, str]

_numbers = st.integers(0, 7)
_steps = st.lists(
    st.tuples(
        st.sampled_from(['create', 'create', 'move', 'move', 'move', 'delete']),
        _numbers,
        st.none() | _numbers,
        st.sampled_from(['1.36', '1.37', '1.37', '1.37', '1.39']),
    ),
    min_size=4,
    max_size=20,
)
_REPARENT = 're-parenting a provider is not currently allowed'
_UNPARENT = 'un-parenting a provider is not currently allowed'
_LOOP = 'creating loop in the provider tree is not allowed.'
_NO_PARENT = 'parent provider UUID does not exist'
_CHILDREN = 'It has child resource providers.'


class Model:
    """The parent of each provider."""

    def __init__(self) -> None:
        self.parents: dict[str, str | None] = {}

    def line(self, provider: str) -> list[str]:
        """A provider and those above it, the root last."""
        line = [provider]
        while (parent := self.parents[line[-1]]) is not None:
            line.append(parent)
        return line

    def create(self, provider: str, parent: str | None) -> str:
        """Create a provider. Returns the end of the error, which is empty if there is none."""
        if parent is not None and parent not in self.parents:
            return _NO_PARENT
        self.parents[provider] = parent
        return ''

    def move(self, provider: str, parent: str | None, version: str) -> str:
        """Change a parent. Returns as ``create``."""
        before = self.parents[provider]
        if parent == before:
            return ''
        if parent is None and version == '1.36':
            return _UNPARENT
        if parent is not None and parent not in self.parents:
            return _NO_PARENT
        if before is not None and version == '1.36':
            return _REPARENT
        if parent is not None and provider in self.line(parent):
            return _LOOP
        self.parents[provider] = parent
        return ''

    def delete(self, provider: str) -> str:
        """Delete a provider. Returns as ``create``."""
        if provider in self.parents.values():
            return _CHILDREN
        del self.parents[provider]
        return ''


@pytest.fixture(scope='module')
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One application for all examples; each uses providers of its own."""
    database: pathlib.Path = tmp_path_factory.mktemp('trees') / 'placement.sqlite'
    with applications.application(database, placement=applications.EVERY_MICROVERSION) as app:
        app.db.sync()
        yield app


@settings(max_examples=60, deadline=None)
@given(_steps)
def test_moves_follow_the_model(app: Any, steps: list[Step]) -> None:
    model = Model()
    created: list[str] = []
    for step in steps:
        _run(app, model, created, step)
        _compare(app, model)


def _run(app: Any, model: Model, created: list[str], step: Step) -> None:
    kind, number, parent_number, version = step
    if kind != 'create' and not created:
        return
    # Deleted providers are also named.
    parent = created[parent_number % len(created)] if created and parent_number is not None else None
    if kind == 'create':
        provider = str(uuid.uuid4())
        body = {'name': provider, 'uuid': provider, 'parent_provider_uuid': parent}
        expected = model.create(provider, parent)
        response = send_request(app, 'POST', '/resource_providers', body, version)
        created += [] if expected else [provider]
    else:
        provider = created[number % len(created)]
        path = f'/resource_providers/{provider}'
        if provider not in model.parents:
            assert send_request(app, 'GET', path).status_int == 404
            return
        if kind == 'move':
            expected = model.move(provider, parent, version)
            body = {'name': provider, 'parent_provider_uuid': parent}
            response = send_request(app, 'PUT', path, body, version)
        else:
            expected = model.delete(provider)
            response = send_request(app, 'DELETE', path, version=version)
    if expected:
        assert response.status_int == (409 if kind == 'delete' else 400)
        assert response.json['errors'][0]['detail'].endswith(expected)
    elif kind == 'delete':
        assert response.status_int == 204
    else:
        assert response.status_int == 200
        assert response.json == _shown(app, provider)


def _compare(app: Any, model: Model) -> None:
    """Each provider is shown with its parent and root, and listed with those of its tree, in which no other is."""
    trees: dict[str, set[str]] = {}
    for member in model.parents:
        trees.setdefault(model.line(member)[-1], set()).add(member)
    for root, members in trees.items():
        providers = send_request(app, 'GET', f'/resource_providers?in_tree={root}').json['resource_providers']
        assert {provider['uuid'] for provider in providers} == members
        for provider in providers:
            member = provider['uuid']
            assert (provider['parent_provider_uuid'], provider['root_provider_uuid']) == (model.parents[member], root)
            assert provider == _shown(app, member)
            assert provider['generation'] == 0


def _shown(app: Any, provider: str) -> Any:
    return send_request(app, 'GET', f'/resource_providers/{provider}').json
