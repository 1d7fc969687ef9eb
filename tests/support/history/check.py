"""Checks a history: every violation of the API's rules, as sentences.

What is verified, and how strictly:

* Every consumer has an order of its writes that agrees with all answers about it and its state at the end
  (``chains``): accepted writes are present exactly once, rejected ones absent, unknown ones present once or absent,
  consumer generations count the accepted writes.
* A POST of unknown outcome, also a reshape, took effect for all its consumers or for none, and no reading of a provider
  shows one consumer after a POST and another before it.
* Each provider's generation grew by exactly the number of accepted writes that have to increment it
  (api-ref/rules.md#generations), plus at most the writes of unknown outcome; writes that named a generation
  got the next one.
* Capacity: at each moment the amounts that were *surely* held (answered, and no deletion sent yet) fit a capacity
  that can have been in force when the last of them was allocated. When one of them was part of a write that took
  no more than it released, which is allowed on over-committed inventory, the largest capacity until then is used.
  So an oversold inventory is found whenever the claims that oversold it were all held at one moment.
  Where the answers allow several orders of a consumer's writes (concurrent writes without generation), a set
  counts as surely held only until the first write began that may have replaced it.
* No claim was rejected for lack of capacity that would have fitted even if everything was held that possibly was.
* A move of a provider shows the parent that it named, and no generation moves. At the end each provider has the
  parent of an accepted move that no other accepted move of it surely followed, or of one of unknown outcome; each has
  the top of its tree as root, and there is no loop.
* At the end: allocations by provider are those by consumer, usages are their sums, and each inventory is the one
  that was accepted last.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.support.history import links, timeline, unknowns
from tests.support.history.record import (
    Claim,
    ClaimWrite,
    Event,
    History,
    Move,
    Outcome,
    ProviderRead,
    Removal,
    Reshape,
    of_type,
    provider_writes,
)

_WANT_OF_CAPACITY = 'would exceed the capacity'


@dataclasses.dataclass(frozen=True)
class _Case:
    """A history with what follows from the order of each consumer's writes.

    ``versions`` has the consumers whose answers allow one order, ``loose`` those whose answers allow several.
    """

    history: History
    strict_reads: bool
    undecided: frozenset[int]
    versions: Mapping[str, Sequence[timeline.Version]]
    loose: Sequence[timeline.Loose]
    allocated: Mapping[timeline.Inventory, Sequence[timeline.AllocatedAmount]]
    capacities: timeline.Capacities


def violations(history: History, *, strict_reads: bool = True) -> list[str]:
    """Every violation as one sentence; empty when there is none.

    With ``strict_reads`` each GET must show the state of a moment between its start and its end, which a service on
    several Galera nodes keeps only with ``mysql_wsrep_sync_wait`` set.
    """
    explained = unknowns.explain(history, strict_reads=strict_reads)
    case = _case(history, explained, strict_reads=strict_reads)
    # Without the order of a consumer's writes the other checks would only report its consequences.
    is_whole = all(explained.possible.get(consumer) for consumer in history.after.consumers)
    checks = (
        (_generations, _capacity, _rejections, _provider_reads, _trees, _end) if is_whole else (_capacity, _trees, _end)
    )
    return explained.violations + [sentence for check in checks for sentence in check(case)]


def _case(history: History, explained: unknowns.Explained, *, strict_reads: bool) -> _Case:
    events = {event.number: event for event in history.events}
    first = {consumer: possible[0] for consumer, possible in explained.possible.items() if possible}
    versions = {
        consumer: timeline.versions(consumer, explanation.order, events, history.after.time)
        for consumer, explanation in first.items()
        if explanation.is_the_only_one
    }
    loose = [
        timeline.Loose(consumer, explanation, events)
        for consumer, explanation in first.items()
        if not explanation.is_the_only_one
    ]
    allocated = timeline.holdings(versions, loose, timeline.increases(versions, loose))
    capacities = timeline.Capacities(history.before, history.events)
    return _Case(history, strict_reads, explained.undecided, versions, loose, allocated, capacities)


# Provider generations ------------------------------------------------------------------------------------------


def _generations(case: _Case) -> Iterator[str]:
    certain, possible = _moved_by_claims(case)
    accepted: Counter[tuple[str, int]] = Counter()
    for event, write in provider_writes(case.history.events):
        if event.outcome is Outcome.UNKNOWN:
            possible[write.provider] += write.moves
        if event.outcome is Outcome.ACCEPTED:
            certain[write.provider] += write.moves
            accepted[write.provider, write.generation] += 1
            got = event.body['resource_provider_generation'] if event.action is write else write.generation + 1
            if got != write.generation + 1:
                yield f'request {event.number}: named generation {write.generation}, was given {got}'
    for (provider, generation), count in accepted.items():
        if count > 1:
            yield f'provider {provider}: {count} accepted changes of generation {generation}'
    for uuid, before in case.history.before.providers.items():
        after = case.history.after.providers[uuid].generation
        least = before.generation + certain[uuid]
        if not least <= after <= least + possible[uuid]:
            expected = f'{least} to {least + possible[uuid]}' if possible[uuid] else str(least)
            yield f'provider {uuid}: generation is {after}, the accepted writes make it {expected}'


def _moved_by_claims(case: _Case) -> tuple[Counter[str], Counter[str]]:
    """How often claims surely and possibly incremented each generation."""
    removals = {event.number for event, _ in of_type(case.history.events, Removal)}
    moved: dict[int, set[str]] = defaultdict(set)
    for chain in case.versions.values():
        for before, version in itertools.pairwise(chain):
            if version.writer not in removals:
                moved[version.writer].update(version.allocations or before.allocations)
    perhaps: dict[int, set[str]] = defaultdict(set)
    for loose in case.loose:
        for number, replaced in loose.explanation.replaced.items():
            if number not in removals:
                sets = [set(loose.allocations(number) or loose.allocations(before)) for before in replaced]
                moved[number] |= set.intersection(*sets)
                perhaps[number] |= set.union(*sets)
    certain: Counter[str] = Counter()
    possible: Counter[str] = Counter()
    for number, providers in moved.items():
        (possible if number in case.undecided else certain).update(providers)
    for number, providers in perhaps.items():
        possible.update(providers - moved[number])
    return certain, possible


# Capacity ------------------------------------------------------------------------------------------------------


def _capacity(case: _Case) -> Iterator[str]:
    for inventory, allocated in case.allocated.items():
        for moment in sorted({amount.certain_from for amount in allocated}):
            surely = [amount for amount in allocated if amount.certain_from <= moment < amount.certain_to]
            total = sum(amount.amount for amount in surely)
            limit = _limit(case, inventory, surely, moment)
            if total > limit:
                takers = ', '.join(sorted(amount.consumer for amount in surely))
                yield f'provider {inventory[0]}: {total} {inventory[1]} held at once, capacity {limit:g}, by {takers}'
                break


def _limit(
    case: _Case, inventory: timeline.Inventory, surely: Sequence[timeline.AllocatedAmount], moment: float
) -> float:
    """The largest capacity that can have allowed all of ``surely`` to be held at ``moment``."""
    if not all(amount.is_increase for amount in surely):
        return case.capacities.largest(inventory, -math.inf, moment)
    first = max((amount.possible_from for amount in surely), default=-math.inf)
    last = max((amount.certain_from for amount in surely), default=moment)
    return case.capacities.largest(inventory, first, last)


def _rejections(case: _Case) -> Iterator[str]:
    for event, write in of_type(case.history.events, ClaimWrite):
        if _WANT_OF_CAPACITY not in event.detail or case.undecided:
            continue
        if all(_surely_fits(case, event, write, *requested) for requested in _requested(write.claims).items()):
            yield f'request {event.number}: rejected for want of capacity, although it fits'


def _surely_fits(case: _Case, event: Event, write: ClaimWrite, inventory: timeline.Inventory, amount: int) -> bool:
    held: dict[str, int] = defaultdict(int)
    for share in case.allocated.get(inventory, ()):
        if share.possible_from <= event.end and share.possible_to >= event.start:
            held[share.consumer] = max(held[share.consumer], share.amount)
    taken = sum(allocated for consumer, allocated in held.items() if consumer not in write.claims)
    limit = case.capacities.smallest(inventory, event.start, event.end)
    if isinstance(write, Reshape):
        # It is judged by its own inventories, which were not stored as it was rejected.
        capacities = [
            inventories.capacities.get(inventory[1])
            for inventories in write.inventories
            if inventories.provider == inventory[0] and inventories.capacities
        ]
        limit = min([limit, *(capacity for capacity in capacities if capacity is not None)])
    return taken + amount <= limit


def _requested(claims: Mapping[str, Claim]) -> Counter[timeline.Inventory]:
    requested: Counter[timeline.Inventory] = Counter()
    for claim in claims.values():
        for inventory, amount in timeline.amounts(claim.allocations):
            requested[inventory] += amount
    return requested


# Readings of providers -------------------------------------------------------------------------------------------


def _provider_reads(case: _Case) -> Iterator[str]:
    posts = [(e, w) for e, w in of_type(case.history.events, ClaimWrite) if len(w.claims) > 1]
    for event, read in of_type(case.history.events, ProviderRead):
        if event.outcome is not Outcome.ACCEPTED:
            continue
        yield from _read_total(case, event, read.provider)
        seen = {
            consumer: [index for index in range(len(chain)) if _can_show(case, event, read.provider, chain, index)]
            for consumer, chain in case.versions.items()
            if not any(version.writer in case.undecided for version in chain)
        }
        for consumer, indexes in seen.items():
            if not indexes:
                shown = event.body['allocations'].get(consumer, 'nothing')
                yield f'request {event.number}: shows {shown} of consumer {consumer}, which is not what it held'
        for post, write in posts:
            yield from _torn(case, event, post, write, seen)


def _read_total(case: _Case, event: Event, provider: str) -> Iterator[str]:
    totals: Counter[str] = Counter()
    for entry in event.body['allocations'].values():
        totals.update(entry['resources'])
    for resource_class, total in totals.items():
        limit = case.capacities.largest((provider, resource_class), -math.inf, event.end)
        if total > limit:
            yield f'request {event.number}: shows {total} {resource_class} on {provider}, capacity {limit:g}'


def _can_show(case: _Case, event: Event, provider: str, chain: Sequence[timeline.Version], index: int) -> bool:
    """Whether the reading ``event`` of ``provider`` can have seen that version of a consumer."""
    version = chain[index]
    until = chain[index + 1].latest if index + 1 < len(chain) else math.inf
    if version.earliest > event.end or (case.strict_reads and until < event.start):
        return False
    entry = event.body['allocations'].get(version.consumer)
    allocated = version.allocations.get(provider)
    if entry is None or allocated is None:
        return entry is None and allocated is None
    same: bool = entry['resources'] == allocated and entry['consumer_generation'] == version.generation
    return same


def _torn(
    case: _Case, event: Event, post: Event, write: ClaimWrite, seen: Mapping[str, Sequence[int]]
) -> Iterator[str]:
    """A reading that surely shows some consumers of a POST after it and some before it."""
    after, before = [], []
    for consumer in write.claims:
        writers = [version.writer for version in case.versions.get(consumer, ())]
        if post.number in writers and seen.get(consumer):
            position = writers.index(post.number)
            if min(seen[consumer]) >= position:
                after.append(consumer)
            elif max(seen[consumer]) < position:
                before.append(consumer)
    if after and before:
        yield f'request {event.number}: shows {after[0]} after POST {post.number} and {before[0]} before it'


# Trees ---------------------------------------------------------------------------------------------------------


def _trees(case: _Case) -> Iterator[str]:
    moves: dict[str, list[tuple[Event, Move]]] = defaultdict(list)
    for event, move in of_type(case.history.events, Move):
        if event.outcome is Outcome.ACCEPTED and event.body['parent_provider_uuid'] != move.parent:
            shown = event.body['parent_provider_uuid']
            yield f'request {event.number}: named the parent {move.parent}, was shown {shown}'
        if event.outcome is not Outcome.REJECTED:
            moves[move.provider].append((event, move))
    after = case.history.after.providers
    for provider, state in after.items():
        last = max(
            (event.start for event, _ in moves[provider] if event.outcome is Outcome.ACCEPTED), default=-math.inf
        )
        possible = {move.parent for event, move in moves[provider] if event.latest >= last}
        if last == -math.inf:
            possible.add(case.history.before.providers[provider].parent)
        if state.parent not in possible:
            yield f'provider {provider}: its parent at the end is {state.parent}, the accepted moves make it {possible}'
    yield from links.problems({provider: (state.parent, state.root or provider) for provider, state in after.items()})


# The end ---------------------------------------------------------------------------------------------------------


def _end(case: _Case) -> Iterator[str]:
    by_provider: dict[str, dict[str, Mapping[str, int]]] = defaultdict(dict)
    for consumer, state in case.history.after.consumers.items():
        for provider, resources in state.allocations.items():
            by_provider[provider][consumer] = resources
    for uuid, provider_state in case.history.after.providers.items():
        if provider_state.allocations != by_provider[uuid]:
            yield f'provider {uuid}: its list of allocations is not that of its consumers'
        sums = Counter(dict.fromkeys(provider_state.capacities, 0))
        for resources in provider_state.allocations.values():
            sums.update(resources)
        if provider_state.usages != sums:
            yield f'provider {uuid}: usages {dict(provider_state.usages)} are not the sums {dict(sums)}'
        if provider_state.capacities not in _last_inventories(case.history, uuid):
            yield f'provider {uuid}: its inventory at the end is not the one that was accepted last'


def _last_inventories(history: History, provider: str) -> list[Mapping[str, float]]:
    """The inventories that a provider can have at the end: the last accepted one, or a later unknown one."""
    last, first_generation = history.before.providers[provider].capacities, -1
    later = []
    for event, write in provider_writes(history.events):
        if write.provider != provider or write.capacities is None:
            continue
        if event.outcome is Outcome.UNKNOWN:
            later.append(write)
        elif event.outcome is Outcome.ACCEPTED and write.generation > first_generation:
            last, first_generation = write.capacities, write.generation
    return [last, *(write.capacities or {} for write in later if write.generation > first_generation)]
