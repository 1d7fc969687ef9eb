"""Moves of providers that together would make a loop, and what has to be true of trees afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from tests.support.history import check, fleet
from tests.support.history.client import Client, Reply
from tests.support.races import Callers

_LOOP = 'creating loop in the provider tree is not allowed.'


def in_a_ring(racing: Callers, *, one_tree: bool) -> list[Reply]:
    """Each caller moves a branch below the leaf of the next caller's branch: all moves together would make a loop.

    :param one_tree: whether all branches are in one tree or each is one itself.
    """
    maker = racing.clients[0]
    root = create(maker) if one_tree else None
    tops = [create(maker, root) for _ in racing.clients]
    leaves = [create(maker, create(maker, top)) for top in tops]
    responses = racing.all_at_once(lambda client, number: move(client, tops[number], leaves[number - 1]))
    problems = problems_of_trees(maker, [*tops, *leaves])
    assert problems == [], problems
    return responses


def is_loop(reply: Reply) -> bool:
    """Whether a move was rejected because it would make a loop."""
    return reply.status == 400 and reply.error['detail'].endswith(_LOOP)


def create(client: Client, parent: str | None = None) -> str:
    """A new provider below ``parent``."""
    uuid_ = str(uuid.uuid4())
    body = {'name': uuid_, 'uuid': uuid_, 'parent_provider_uuid': parent}
    fleet.demand(client, 'POST', '/resource_providers', body)
    return uuid_


def move(client: Client, provider: str, parent: str | None) -> Reply:
    """Give ``provider`` another parent, or none. Its name becomes its uuid."""
    body = {'name': provider, 'parent_provider_uuid': parent}
    return client.request('PUT', f'/resource_providers/{provider}', body, version='1.37')


def problems_of_trees(client: Client, members: Sequence[str]) -> list[str]:
    """What is wrong with the trees that have ``members``, as sentences. Call it while nobody writes."""
    by_tree: dict[str, list[dict[str, Any]]] = {}
    for member in members:
        listed = fleet.demand(client, 'GET', f'/resource_providers?in_tree={member}')['resource_providers']
        by_tree[listed[0]['root_provider_uuid']] = listed
    rows = {row['uuid']: row for listed in by_tree.values() for row in listed}
    problems = check.link_problems(
        {name: (row['parent_provider_uuid'], row['root_provider_uuid']) for name, row in rows.items()}
    )
    for provider, entry in rows.items():
        shown = fleet.demand(client, 'GET', f'/resource_providers/{provider}')
        if shown != entry:
            problems.append(f'provider {provider} is listed as {entry} and shown as {shown}')
    return problems
