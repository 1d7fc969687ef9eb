"""Providers move in their trees while others create and delete children, claim, and move providers above and below."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.history import fleet, links
from tests.support.history.client import Client, Reply
from tests.support.races import Callers, Outcome, claim

_PROVIDERS = 9
#: How often a client repeats a request that failed only because another one wrote at the same time.
_MAX_REPETITIONS = 10
_LOOP = 'creating loop in the provider tree is not allowed.'
_NO_PARENT = 'parent provider UUID does not exist'
_CONFLICT = 'placement.concurrent_update'
_CHILDREN = 'It has child resource providers.'


def in_a_ring(racing: Callers, *, one_tree: bool) -> list[Reply]:
    """Each caller moves a branch below the leaf of the next caller's branch: all moves together would make a loop.

    :param one_tree: whether all branches are in one tree or each is one itself.
    """
    maker = racing.clients[0]
    root = create(maker) if one_tree else None
    tops = [create(maker, root) for _ in racing.clients]
    leaves = [create(maker, create(maker, top)) for top in tops]
    replies = racing.all_at_once(lambda client, number: move(client, tops[number], leaves[number - 1]))
    problems = problems_of_trees(maker, [*tops, *leaves])
    assert problems == [], problems
    return replies


def is_loop(reply: Reply) -> bool:
    """Whether a move was rejected because it would make a loop."""
    return reply.status == 400 and reply.error['detail'].endswith(_LOOP)


def at_random(racing: Callers, seconds: float) -> Outcome:
    """All callers move, create, delete and claim at random on few providers; then the trees are checked."""
    maker = racing.clients[0]
    providers = [fleet.create_provider(maker, {'VCPU': {'total': 100_000}}) for _ in range(_PROVIDERS)]
    children: list[str] = []
    outcome = Outcome({'move', 'detach', 'create', 'delete', 'claim'})
    choosers = [random.Random(number) for number in range(len(racing.clients))]
    racing.repeat(
        lambda client, number: _step(client, choosers[number], providers, children, outcome), seconds, outcome
    )
    outcome.wrong += problems_of_trees(maker, providers)
    return outcome


def _step(client: Client, choose: random.Random, providers: list[str], children: list[str], outcome: Outcome) -> None:
    """Send one request, and note its answer, and what is wrong with it."""
    # ``list`` because others append to it meanwhile.
    anyone = choose.choice(providers + list(children))
    accepted: tuple[str, ...] = ()
    kind = choose.choices(['move', 'detach', 'create', 'delete', 'claim'], [8, 2, 4, 3, 4])[0]
    if kind == 'move':
        mover, accepted = choose.choice(providers), (_LOOP, _NO_PARENT)
        reply = _repeated(lambda: move(client, mover, anyone))
    elif kind == 'detach':
        mover = choose.choice(providers)
        reply = _repeated(lambda: move(client, mover, None))
    elif kind == 'create':
        uuid_ = str(uuid.uuid4())
        body = {'name': uuid_, 'uuid': uuid_, 'parent_provider_uuid': anyone}
        reply, accepted = _repeated(lambda: client.request('POST', '/resource_providers', body)), (_NO_PARENT,)
        if reply.status == 200:
            children.append(uuid_)
    elif kind == 'delete' and children:
        child = choose.choice(children)
        reply = _repeated(lambda: client.request('DELETE', f'/resource_providers/{child}'))
        accepted = (_CHILDREN, f'No resource provider with uuid {child} found for delete')
    else:
        entry = claim(choose.sample(providers, 3), None)
        path, kind = f'/allocations/{uuid.uuid4()}', 'claim'
        reply = _repeated(lambda: client.request('PUT', path, entry))
    outcome.statuses[kind, reply.status] += 1
    detail = str(reply.error.get('detail', ''))
    if reply.status is None or reply.status >= 500 or (reply.status >= 400 and not any(t in detail for t in accepted)):
        outcome.wrong.append(f'{kind}: {reply.status} {detail}')


def _repeated(send: Callable[[], Reply]) -> Reply:
    """The answer to a request that is repeated while it fails because others write, as their error asks for.

    The retries of the service itself may not suffice when ten callers write to the same few trees.
    """
    for _ in range(_MAX_REPETITIONS):
        reply = send()
        if reply.status != 409 or reply.error['code'] != _CONFLICT:
            break
    return reply


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
    problems = links.problems(
        {name: (row['parent_provider_uuid'], row['root_provider_uuid']) for name, row in rows.items()}
    )
    for provider, entry in rows.items():
        shown = fleet.demand(client, 'GET', f'/resource_providers/{provider}')
        if shown != entry:
            problems.append(f'provider {provider} is listed as {entry} and shown as {shown}')
    return problems
