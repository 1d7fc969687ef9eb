"""Compares the end of a load with everything that was answered. Each violation is a sentence.

* Consumers of one caller have the state that its last accepted write made. Writes of unknown outcome took effect for
  all their consumers or for none.
* No claim exceeded a capacity at any moment, and none was rejected that would have fitted (``capacity``).
* Each generation of a shared consumer was used by at most one accepted write, and its generation is their number. It
  has the allocations of one of them, also whenever it was read: if the last one named a generation, of that one.
* The generation of a provider grew by exactly what the accepted writes have to increment it
  (api-ref/rules.md#generations), and at most by the writes of unknown outcome. No two changes named the same one.
* The parent of a provider was set by a move that no accepted move surely followed, and each tree has one root and no
  loop.
* An audit finds nothing wrong in the tables that requests may not cause, such as a wrong usage.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placement.ops.audit import audit
from placement.ops.audit.kinds import KINDS
from tests.support import applications
from tests.support.history import capacity
from tests.support.history.client import Client
from tests.support.history.load import Load
from tests.support.history.state import ClaimWrite, Consumer


def violations(load: Load, databases: Sequence[applications.Place] = ()) -> list[str]:
    """Every violation of a load that was stopped, and in the tables at each of ``databases``.

    Requests of unknown outcome get a second to end.
    """
    if load.unknown:
        time.sleep(1)
    with contextlib.closing(Client(load.urls, token=load.token)) as client:
        consumers = {
            consumer: Consumer.from_body(client.demand('GET', f'/allocations/{consumer}'))
            for consumer in [*load.shared, *load.consumers, *(c for lost in _lost_claims(load) for c in lost.after)]
        }
        providers = {uuid: client.demand('GET', f'/resource_providers/{uuid}') for uuid in load.providers}
    return [
        *load.violations,
        *capacity.problems(load),
        *_consumers(load, consumers),
        *_shared_consumers(load, consumers),
        *_generations(load, consumers, providers),
        *_trees(load, providers),
        *(sentence for url in databases for sentence in _tables(url)),
    ]


def assert_none(load: Load, databases: Sequence[applications.Place], *, interrupted: bool = False) -> None:
    """Every answer to a load that was stopped, and its end, is right.

    :param interrupted: whether requests may have been cut off, so that nobody knows what became of them.
    """
    print(load.summary())
    assert violations(load, databases) == []
    # 503 reports an outage of the database.
    assert {reply.status for reply in load.replies if reply.unknown} <= ({None, 503} if interrupted else set())
    assert sum(reply.accepted for reply in load.replies) > 100


def _lost_claims(load: Load) -> list[ClaimWrite]:
    """The writes of own consumers of unknown outcome."""
    return [claim for claim in load.claims if claim.before is not None and claim.reply.unknown]


def _consumers(load: Load, ended: Mapping[str, Consumer]) -> Iterator[str]:
    for consumer, known in load.consumers.items():
        if ended[consumer] != known:
            yield f'consumer {consumer}: is {ended[consumer]}, the accepted writes make it {known}'
    for lost in _lost_claims(load):
        states = {consumer: ended[consumer] for consumer in lost.after}
        if states not in (lost.before, lost.after):
            yield f'a lost write: its consumers are {states}, which is neither {lost.before} nor {lost.after}'


def _shared_consumers(load: Load, ended: Mapping[str, Consumer]) -> Iterator[str]:
    for consumer in load.shared:
        end = ended[consumer]
        sent = [write for write in load.claims if consumer in write.after and not capacity.is_rejected(write)]
        written = [write.after[consumer].allocations for write in sent]
        shown = [end, *(state for reader, state in load.shared_reads if reader == consumer)]
        yield from (
            f'consumer {consumer}: nobody wrote {state}' for state in shown if state.allocations not in [{}, *written]
        )
        if consumer == load.shared[-1]:
            # After a deletion the generations begin again.
            continue
        accepted = [write for write in sent if write.reply.accepted]
        if not len(accepted) <= end.generation <= len(sent):
            yield f'consumer {consumer}: generation {end.generation} after {len(accepted)} to {len(sent)} writes'
        named = Counter(write.generation for write in accepted if write.generation is not None)
        yield from (f'consumer {consumer}: generation {g} was used {n} times' for g, n in named.items() if n > 1)
        by_generation = {
            write.generation + 1: write.after[consumer].allocations
            for write in accepted
            if write.generation is not None
        }
        for state in shown:
            if state.allocations != by_generation.get(state.generation, state.allocations):
                yield f'consumer {consumer}: is {state}, the write before made it {by_generation[state.generation]}'


def _generations(load: Load, ended: Mapping[str, Consumer], providers: Mapping[str, Any]) -> Iterator[str]:
    # Every provider was given its inventories once.
    least, perhaps = Counter(load.providers), Counter[str]()
    for claim in load.claims:
        if claim.reply.accepted:
            least.update(claim.incremented)
        elif claim.reply.unknown and claim.before is None:
            perhaps.update(claim.incremented)
        elif claim.reply.unknown and all(ended[consumer] == state for consumer, state in claim.after.items()):
            least.update(claim.incremented)
    for write in load.provider_writes:
        (least if write.reply.accepted else perhaps)[write.provider] += write.increments
    for uuid, provider in providers.items():
        generation, expected = provider['generation'], range(least[uuid], least[uuid] + perhaps[uuid] + 1)
        if generation not in expected:
            yield f'provider {uuid}: generation is {generation}, the accepted writes make it one of {expected}'
    named = Counter((write.provider, write.generation) for write in load.provider_writes if write.reply.accepted)
    for (uuid, generation), count in named.items():
        if count > 1:
            yield f'provider {uuid}: {count} accepted changes of generation {generation}'


def _trees(load: Load, providers: Mapping[str, Any]) -> Iterator[str]:
    links = {uuid: (shown['parent_provider_uuid'], shown['root_provider_uuid']) for uuid, shown in providers.items()}
    for uuid, (end, _) in links.items():
        moves = [(parent, reply) for moved, parent, reply in load.moves if moved == uuid]
        last = max((reply.start for _, reply in moves if reply.accepted), default=None)
        possible = {parent for parent, reply in moves if last is None or reply.unknown or reply.end >= last}
        if last is None:
            possible.add(None)
        if end not in possible:
            yield f'provider {uuid}: is below {end}, the accepted moves make it {possible}'
    yield from link_problems(links)


def link_problems(links: Mapping[str, tuple[str | None, str]]) -> list[str]:
    """The providers whose root is not the top of their tree, and those that have no top because of a loop.

    :param links: parent and root of each provider.
    """
    problems = []
    for provider, (_, root) in links.items():
        chain = [provider]
        while (parent := links[chain[-1]][0]) is not None and parent not in chain:
            chain.append(parent)
        if parent is not None:
            problems.append(f'provider {provider}: is in or below a loop')
        elif chain[-1] != root:
            problems.append(f'provider {provider}: its root is {root}, and the top of its tree is {chain[-1]}')
    return problems


def _tables(url: applications.Place) -> list[str]:
    with applications.database(url) as db:
        conf = applications.options(url)
        faults = [name for name, kind in KINDS.items() if not kind.requests_can_cause]
        findings = [finding for kind in faults for finding in audit.find(db, conf, kind)]
    return [f'{finding.subject}: {finding.detail}' for finding in findings]
