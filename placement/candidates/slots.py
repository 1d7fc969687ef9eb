"""Which providers could take which part at one anchor, in the order in which the walk places the parts.

Providers are given by position: the tree, root first, and then the sharing providers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement.candidates.budget import Meter
from placement.candidates.collective import Later
from placement.candidates.parts import CompiledRequest, Part
from placement.candidates.providers import Anchor, Provider
from placement.candidates.reasons import Reason, Rejections

Providers = tuple[Provider, ...]
Options = tuple[int, ...]

_NOTHING = Later()

#: The steps that each anchor takes, whatever it has.
_OPENING = 10


@dataclass(eq=False)
class Slot:
    """One part at one anchor, with its ``options``: the positions of the providers that could take it, ascending.

    Slots with equal options share one tuple. Slots with the same ``run`` ask for the same amounts from the same
    providers, so that exchanging their providers gives the same candidate. ``isolated``: no other isolated slot may
    have the same provider. ``collective``: its provider counts for the traits that the unnumbered group requires.
    ``brings`` has the set of these traits by option, ``later`` knows what the collective slots after this one can
    bring, and ``tree_later`` says whether a slot after this one has an option in the anchor's tree.
    """

    __slots__ = ('brings', 'collective', 'isolated', 'later', 'options', 'part', 'run', 'tree_later')

    part: Part
    options: Options
    run: int
    isolated: bool
    collective: bool
    brings: Mapping[int, int]
    later: Later
    tree_later: bool


class Matcher:
    """Finds the options of each part of one request. Those among sharing providers are remembered for other anchors."""

    #: For how many groups of sharing providers the options are remembered.
    REMEMBERED = 64

    def __init__(self, compiled: CompiledRequest, rejections: Rejections | None = None) -> None:
        self._compiled = compiled
        self._rejections = rejections
        self._distinct = tuple(dict.fromkeys(compiled.parts))
        self._kinds = [self._distinct.index(part) for part in compiled.parts]
        self._shared: dict[Providers, list[Options]] = {}

    def slots(self, anchor: Anchor, meter: Meter) -> list[Slot]:
        """Return the slots in the order in which they are placed: fewest options first, then largest amounts.

        Empty if no provider can take one of the parts.

        :raises OutOfSteps: the steps of the request are used up.
        """
        meter.prepare(_OPENING)
        shared_from = len(anchor.tree)
        shared = self._from_sharing(anchor.sharing, meter) if anchor.sharing else None
        root = anchor.tree[0] if anchor.tree else None
        options = []
        for kind, part in enumerate(self._distinct):
            meter.prepare(1 + shared_from)
            fit = self._fitting(part, anchor.tree, root)
            if shared and shared[kind]:
                fit += tuple([shared_from + index for index in shared[kind]])
            if not fit:
                return []
            meter.prepare(len(fit) * len(part.resources))
            options.append(fit)
        return _in_order(self._compiled, anchor, [options[kind] for kind in self._kinds])

    def _from_sharing(self, sharing: Providers, meter: Meter) -> list[Options]:
        found = self._shared.get(sharing)
        if found is None:
            if len(self._shared) >= self.REMEMBERED:
                self._shared.clear()
            meter.prepare(len(sharing) * len(self._distinct))
            found = [self._fitting(part, sharing, None) for part in self._distinct]
            self._shared[sharing] = found
        return found

    def _fitting(self, part: Part, providers: Providers, root: Provider | None) -> Options:
        if self._rejections is None:
            return tuple([index for index, one in enumerate(providers) if part.rejection(one, root) is None])
        return tuple([i for i, one in enumerate(providers) if not self._is_rejected(part, part.rejection(one, root))])

    def _is_rejected(self, part: Part, reason: Reason | None) -> bool:
        if reason is not None and self._rejections is not None:
            self._rejections[part.group, reason] += 1
        return reason is not None


def _in_order(compiled: CompiledRequest, anchor: Anchor, options: Sequence[Options]) -> list[Slot]:
    """Make the slots in the order in which they are placed.

    :param options: those of each part of the compiled request.
    """
    runs: dict[tuple[object, ...], int] = {}
    same: dict[Options, Options] = {}
    slots = []
    for part, found in zip(compiled.parts, options, strict=True):
        fit = same.setdefault(found, found)
        isolated = compiled.isolate and part.numbered
        collective = bool(compiled.traits) and not part.numbered
        run = runs.setdefault((part.resources, fit, isolated, collective), len(runs))
        slots.append(Slot(part, fit, run, isolated, collective, {}, _NOTHING, False))
    slots.sort(key=lambda slot: (len(slot.options), -slot.part.size, slot.run))
    _look_ahead(compiled, anchor, slots)
    return slots


def _look_ahead(compiled: CompiledRequest, anchor: Anchor, slots: Sequence[Slot]) -> None:
    """Set what each slot knows of those after it: ``later``, ``tree_later``; and ``brings``."""
    tree_later = False
    later = _NOTHING
    brings = _brought(compiled, anchor, slots) if compiled.traits else {}
    for slot in reversed(slots):
        slot.tree_later = tree_later
        slot.later = later
        tree_later = tree_later or slot.options[0] < len(anchor.tree)
        if slot.collective:
            slot.brings = brings
            later = later.preceded_by(frozenset([brings[position] for position in slot.options]))


def _brought(compiled: CompiledRequest, anchor: Anchor, slots: Sequence[Slot]) -> dict[int, int]:
    providers = anchor.tree + anchor.sharing
    positions: set[int] = set().union(*(slot.options for slot in slots if slot.collective))
    return {position: compiled.traits.of(providers[position].traits) for position in positions}
