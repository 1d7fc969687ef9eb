"""The traits that the unnumbered group requires of all its providers together (contract B 5.3)."""

from __future__ import annotations

from collections.abc import Sequence

from placement.candidates.rows import Provider

Traits = frozenset[str]

#: How much work one question may take, and how many answers are remembered. Beyond it the walk is slower, not wrong.
_MOST = 10000


class Later:
    """What the slots of the unnumbered group that are placed later can bring, one option of each slot.

    Without it, a walk would place every combination of providers before it sees that their traits do not add up.

    ``choices`` holds for each of these slots the sets of wanted traits that its options have.
    """

    def __init__(self, choices: tuple[frozenset[Traits], ...] = ()) -> None:
        self._choices = choices
        self._largest = [max(map(len, choice)) for choice in choices]
        self._known: dict[Traits, bool] = {}

    def preceded_by(self, wanted: Traits, options: Sequence[Provider]) -> Later:
        """Return the same preceded by one more slot, which has ``options``."""
        choice = frozenset([wanted.intersection(one.traits) for one in options])
        return Later((choice, *self._choices)) if any(choice) else self

    def can_bring(self, missing: Traits) -> bool:
        """Whether the traits in ``missing`` can still come. True, too, where finding out would take too long."""
        if not missing:
            return True
        answer = self._known.get(missing)
        if answer is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            answer = self._known[missing] = self._find_out(missing)
        return answer

    def _find_out(self, missing: Traits) -> bool:
        most_after = sum(self._largest)
        reachable = {missing}
        for choice, largest in zip(self._choices, self._largest, strict=True):
            if len(reachable) * len(choice) > _MOST:
                return True
            most_after -= largest
            left = {before - brought for before in reachable for brought in choice}
            reachable = {some for some in left if len(some) <= most_after}
        return frozenset() in reachable
