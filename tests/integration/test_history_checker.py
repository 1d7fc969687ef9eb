"""The history checker on synthetic histories: each kind of violation is found.

Some similar histories without a violation follow. The random loads of all databases show that nothing else is reported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.history import chains, check
from tests.support.history.record import (
    UNCHECKED,
    Action,
    Allocations,
    Claim,
    ClaimWrite,
    ConsumerRead,
    ConsumerState,
    Event,
    History,
    Move,
    ProviderRead,
    ProviderState,
    ProviderWrite,
    Removal,
    Snapshot,
)

CAPACITY = 10.0
STALE = {'errors': [{'code': 'placement.concurrent_update', 'detail': 'consumer generation conflict - expected 2'}]}
FULL = {'errors': [{'code': 'placement.undefined_code', 'detail': 'The requested amount would exceed the capacity.'}]}


def taken(amount: int, provider: str = 'p') -> Allocations:
    """Allocations of ``amount`` VCPU on one provider."""
    return {provider: {'VCPU': amount}}


class Story:
    """Builds a history: one event per call, one second after another unless ``at`` gives the time."""

    def __init__(self, *providers: str) -> None:
        self._providers = providers or ('p',)
        self._events: list[Event] = []

    def add(
        self, action: Action, status: int | None = 204, body: Any = None, interval: tuple[float, float] | None = None
    ) -> Story:
        """Add one request and its answer."""
        number = len(self._events)
        start, end = interval or (float(number), number + 0.5)
        self._events.append(Event(number, 0, action, start, end, status, body))
        return self

    def put(
        self, consumer: str, amount: int, expected: int | str | None, status: int | None = 204, **options: Any
    ) -> Story:
        """Add a claim of ``amount`` VCPU (0 clears)."""
        claim = Claim(taken(amount) if amount else {}, expected)
        return self.add(ClaimWrite({consumer: claim}), status, **options)

    def ends(
        self,
        generations: Mapping[str, int],
        consumers: Mapping[str, tuple[int, Allocations]],
        **wrong: Any,
    ) -> History:
        """The history that ends with these provider generations and consumers; ``wrong`` overrides providers."""
        states = {uuid: ConsumerState(generation, allocations) for uuid, (generation, allocations) in consumers.items()}
        after = {}
        for provider in self._providers:
            listed = {c: s.allocations[provider] for c, s in states.items() if provider in s.allocations}
            used = sum(resources['VCPU'] for resources in listed.values())
            after[provider] = ProviderState(generations[provider], {'VCPU': CAPACITY}, {'VCPU': used}, listed)
            after[provider] = dataclasses.replace(after[provider], **wrong)
        empty = ProviderState(0, {'VCPU': CAPACITY}, {'VCPU': 0}, {})
        before = Snapshot(-1.0, dict.fromkeys(self._providers, empty), {})
        return History(before, tuple(self._events), Snapshot(1000.0, after, states))


def only(history: History, phrase: str, **options: Any) -> None:
    """Assert that the checker reports exactly one kind of violation."""
    violations = check.violations(history, **options)
    assert violations
    assert all(phrase in sentence for sentence in violations), violations


class TestConsumers:
    """Allocations of consumers, and their generations."""

    def test_create_change_and_delete(self) -> None:
        story = (
            Story().put('c', 3, None).put('c', 4, 1).put('c', 5, 1, 409, body=STALE).put('c', 0, 2).put('c', 1, None)
        )
        assert check.violations(story.ends({'p': 4}, {'c': (1, taken(1))})) == []

    def test_rejected_claim_took_effect(self) -> None:
        history = Story().put('c', 3, None, 409).ends({'p': 0}, {'c': (1, taken(3))})
        only(history, 'no order of its accepted writes explains')

    def test_two_winners_of_one_generation(self) -> None:
        story = Story().put('c', 3, None).put('c', 4, 1, interval=(1, 9)).put('c', 5, 1, interval=(1, 9))
        only(story.ends({'p': 3}, {'c': (3, taken(5))}), 'no order of its accepted writes explains')

    def test_conflict_without_another_write(self) -> None:
        history = Story().put('c', 3, None).put('c', 4, 1, 409, body=STALE).ends({'p': 1}, {'c': (1, taken(3))})
        only(history, 'no order of its accepted writes explains')

    def test_stale_read(self) -> None:
        shown: dict[str, Any] = {'allocations': {}}
        story = Story().put('c', 3, None).add(ConsumerRead('c'), 200, shown)
        history = story.ends({'p': 1}, {'c': (1, taken(3))})
        only(history, 'no order of its accepted writes explains')
        assert check.violations(history, strict_reads=False) == []

    def test_simultaneous_deletes_may_both_succeed(self) -> None:
        story = Story().put('c', 3, None).add(Removal('c'), interval=(2, 4)).add(Removal('c'), interval=(3, 5))
        assert check.violations(story.ends({'p': 1}, {'c': (0, {})})) == []

    def test_delete_of_what_is_held_finds_nothing(self) -> None:
        history = Story().put('c', 3, None).add(Removal('c'), 404).ends({'p': 1}, {'c': (1, taken(3))})
        only(history, 'no order of its accepted writes explains')

    def test_second_delete_succeeds_long_after(self) -> None:
        story = Story().put('c', 3, None).add(Removal('c'), interval=(2, 3)).add(Removal('c'), interval=(4, 5))
        only(story.ends({'p': 1}, {'c': (0, {})}), 'no order of its accepted writes explains')


class TestUnknown:
    """A write without an answer took effect once or not at all."""

    @pytest.mark.parametrize('status', [None, 503])
    @pytest.mark.parametrize(('generation', 'end'), [(0, (0, {})), (1, (1, taken(3)))])
    def test_unknown_write_happened_or_not(
        self, status: int | None, generation: int, end: tuple[int, Allocations]
    ) -> None:
        history = Story().put('c', 3, None, status).ends({'p': generation}, {'c': end})
        assert check.violations(history) == []

    def test_post_took_effect_for_one_of_two_consumers(self) -> None:
        write = ClaimWrite({'a': Claim(taken(1), None), 'b': Claim(taken(2), None)})
        history = Story().add(write, None).ends({'p': 1}, {'a': (1, taken(1)), 'b': (0, {})})
        only(history, 'a POST took effect for consumer a but not for b')

    def test_too_many_orders(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(chains, 'SEARCH_LIMIT', 10)
        story = Story()
        for amount in range(1, 9):
            story.put('c', amount, UNCHECKED, interval=(0, 9))
        only(story.ends({'p': 8}, {'c': (8, taken(8))}), 'too many possible orders')


class TestPost:
    """A POST takes effect for all its consumers or none, also in readings."""

    MOVE = ClaimWrite({'a': Claim({}, 1), 'b': Claim(taken(3), None)})

    def shown(self, *consumers: str) -> dict[str, Any]:
        """An answer to GET of the provider's allocations with these consumers."""
        entry = {'resources': {'VCPU': 3}, 'consumer_generation': 1}
        return {'allocations': dict.fromkeys(consumers, entry)}

    @pytest.mark.parametrize(('consumers', 'torn'), [(['a'], False), (['b'], False), (['a', 'b'], True), ([], True)])
    def test_reading_during_a_move(self, consumers: list[str], torn: bool) -> None:
        story = Story().put('a', 3, None).add(self.MOVE, interval=(2, 6))
        story.add(ProviderRead('p'), 200, self.shown(*consumers), interval=(3, 5))
        violations = check.violations(story.ends({'p': 2}, {'a': (0, {}), 'b': (1, taken(3))}))
        assert bool(violations) == torn
        assert all('after POST 1 and' in sentence for sentence in violations)

    def test_reading_of_amounts_that_were_never_allocated(self) -> None:
        story = Story().put('a', 4, None).add(ProviderRead('p'), 200, self.shown('a'))
        only(story.ends({'p': 1}, {'a': (1, taken(4))}), 'which is not what it held')

    def test_the_generation_of_a_cleared_provider_is_incremented_once(self) -> None:
        story = Story('p', 'q').add(ClaimWrite({'a': Claim(taken(3, 'q'), None)}))
        story.add(ClaimWrite({'a': Claim({}, 1), 'b': Claim(taken(3), None)}))
        ends = {'a': (0, {}), 'b': (1, taken(3))}
        assert check.violations(story.ends({'p': 1, 'q': 2}, ends)) == []
        only(story.ends({'p': 1, 'q': 1}, ends), 'provider q: generation is 1, the accepted writes make it 2')


class TestProviderGenerations:
    """Every accepted write increments the generation by one, nothing else changes it."""

    def test_lost_update(self) -> None:
        story = Story()
        for _ in range(2):
            story.add(ProviderWrite('p', 0), 200, {'resource_provider_generation': 1}, interval=(0, 9))
        violations = check.violations(story.ends({'p': 1}, {}))
        assert 'provider p: 2 accepted changes of generation 0' in violations

    def test_wrong_generation_in_an_answer(self) -> None:
        story = Story().add(ProviderWrite('p', 0), 200, {'resource_provider_generation': 2})
        only(story.ends({'p': 1}, {}), 'named generation 0, was given 2')

    @pytest.mark.parametrize(('generation', 'fine'), [(0, True), (1, True), (2, False)])
    def test_unknown_outcome(self, generation: int, fine: bool) -> None:
        violations = check.violations(Story().add(ProviderWrite('p', 0), None).ends({'p': generation}, {}))
        assert (violations == []) == fine


class TestCapacity:
    """Usage never exceeds the capacity, and no claim that fits is rejected."""

    def oversold(self, **second: Any) -> Story:
        """Two claims of 6 that begin at the same time."""
        return Story().put('a', 6, None, interval=(0, 9)).put('b', 6, None, interval=(1, 8), **second)

    def test_oversold_for_a_while(self) -> None:
        story = self.oversold().add(Removal('a'), interval=(20, 21)).add(Removal('b'), interval=(20, 22))
        only(story.ends({'p': 2}, {'a': (0, {}), 'b': (0, {})}), '12 VCPU held at once')

    def resize(self, story: Story, capacity: float, generation: int, interval: tuple[float, float]) -> Story:
        """Add an accepted change of the capacity."""
        action = ProviderWrite('p', generation, {'VCPU': capacity})
        return story.add(action, 200, {'resource_provider_generation': generation + 1}, interval=interval)

    def test_lowered_below_what_is_used(self) -> None:
        story = self.resize(Story().put('a', 6, None), 4.0, 1, (2, 3)).put('a', 6, 1, interval=(4, 5))
        history = story.ends({'p': 3}, {'a': (2, taken(6))}, capacities={'VCPU': 4.0})
        assert check.violations(history) == []

    def test_taken_after_it_was_raised_and_lowered(self) -> None:
        story = self.resize(self.resize(Story(), 20.0, 0, (0, 1)), 4.0, 1, (2, 3)).put('a', 6, None, interval=(4, 5))
        history = story.ends({'p': 3}, {'a': (1, taken(6))}, capacities={'VCPU': 4.0})
        only(history, '6 VCPU held at once, capacity 4, by a')

    def test_reading_above_capacity(self) -> None:
        entry = {'resources': {'VCPU': 11}, 'consumer_generation': 1}
        story = Story().put('a', 11, None, None).add(ProviderRead('p'), 200, {'allocations': {'a': entry}})
        violations = check.violations(story.ends({'p': 0}, {'a': (0, {})}))
        assert 'request 1: shows 11 VCPU on p, capacity 10' in violations

    def test_rejected_although_it_fits(self) -> None:
        history = (
            Story()
            .put('a', 6, None)
            .put('b', 4, None, 409, body=FULL)
            .ends({'p': 1}, {'a': (1, taken(6)), 'b': (0, {})})
        )
        only(history, 'request 1: rejected for want of capacity, although it fits')

    def test_rejection_for_want_of_capacity(self) -> None:
        story = Story().put('a', 6, None, interval=(0, 9)).put('b', 5, None, 409, body=FULL, interval=(1, 2))
        assert check.violations(story.ends({'p': 1}, {'a': (1, taken(6)), 'b': (0, {})})) == []


class TestTheEnd:
    """In the final snapshot, providers and consumers agree."""

    @pytest.mark.parametrize(
        ('wrong', 'phrase'),
        [
            ({'usages': {'VCPU': 2}}, "usages {'VCPU': 2} are not the sums {'VCPU': 3}"),
            ({'capacities': {'VCPU': 11.0}}, 'its inventory at the end is not the one that was accepted last'),
        ],
    )
    def test_wrong_provider(self, wrong: dict[str, Any], phrase: str) -> None:
        only(Story().put('c', 3, None).ends({'p': 1}, {'c': (1, taken(3))}, **wrong), phrase)

    def test_wrong_list(self) -> None:
        history = Story().put('c', 3, None).ends({'p': 1}, {'c': (1, taken(3))}, allocations={}, usages={'VCPU': 0})
        only(history, 'its list of allocations is not that of its consumers')


class TestTrees:
    """Parents that change."""

    @staticmethod
    def moved(story: Story, provider: str, parent: str | None, **options: Any) -> Story:
        return story.add(Move(provider, parent), 200, {'parent_provider_uuid': parent}, **options)

    @staticmethod
    def ends(story: Story, **links: tuple[str | None, str]) -> History:
        """The history that ends with these parents and roots."""
        history = story.ends(dict.fromkeys('pqr', 0), {})
        providers = {
            name: dataclasses.replace(state, parent=links[name][0], root=links[name][1])
            for name, state in history.after.providers.items()
        }
        return dataclasses.replace(history, after=dataclasses.replace(history.after, providers=providers))

    def test_a_move_that_another_one_surely_followed(self) -> None:
        story = self.moved(self.moved(Story(*'pqr'), 'p', 'q'), 'p', 'r')
        only(self.ends(story, p=('q', 'q'), q=(None, 'q'), r=(None, 'r')), 'its parent at the end is q')

    def test_a_rejected_move_took_effect(self) -> None:
        story = Story(*'pqr').add(Move('p', 'q'), 400, {})
        only(self.ends(story, p=('q', 'q'), q=(None, 'q'), r=(None, 'r')), 'its parent at the end is q')

    def test_an_answer_with_another_parent(self) -> None:
        story = Story(*'pqr').add(Move('p', 'q'), 200, {'parent_provider_uuid': None})
        only(self.ends(story, p=('q', 'q'), q=(None, 'q'), r=(None, 'r')), 'named the parent q, was shown None')

    def test_a_loop(self) -> None:
        story = self.moved(self.moved(Story(*'pqr'), 'p', 'q'), 'q', 'p')
        only(self.ends(story, p=('q', 'q'), q=('p', 'q'), r=(None, 'r')), 'is in or below a loop')

    def test_a_wrong_root(self) -> None:
        story = self.moved(self.moved(Story(*'pqr'), 'p', 'q'), 'q', 'r')
        only(self.ends(story, p=('q', 'q'), q=('r', 'r'), r=(None, 'r')), 'its root is q, and the top of its tree is r')


class TestOpenOrders:
    """Concurrent writes without generation, whose order follows from no answer."""

    def test_overselling_by_other_consumers_is_still_found(self) -> None:
        story = Story().put('c', 1, UNCHECKED, interval=(0, 1)).put('c', 2, UNCHECKED, interval=(0, 1))
        story.put('d', 6, None, interval=(2, 3)).put('e', 6, None, interval=(2, 3)).put('e', 1, 1, interval=(4, 5))
        history = story.put('c', 3, UNCHECKED, interval=(6, 7)).ends(
            {'p': 6}, {'c': (3, taken(3)), 'd': (1, taken(6)), 'e': (2, taken(1))}
        )
        only(history, '12 VCPU held at once, capacity 10')

    def test_a_clearing_may_have_incremented_either_provider(self) -> None:
        story = Story('p', 'q').add(ClaimWrite({'c': Claim(taken(1, 'p'), UNCHECKED)}), interval=(0, 1))
        story.add(ClaimWrite({'c': Claim(taken(1, 'q'), UNCHECKED)}), interval=(0, 1))
        story.add(ClaimWrite({'c': Claim({}, UNCHECKED)}), interval=(2, 3))
        for generations in ({'p': 2, 'q': 1}, {'p': 1, 'q': 2}):
            assert check.violations(story.ends(generations, {'c': (0, {})})) == []
        only(story.ends({'p': 1, 'q': 3}, {'c': (0, {})}), 'provider q: generation is 3')
