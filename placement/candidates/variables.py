"""Which providers could take which part at one anchor, in the order in which the walk places the parts.

Providers are given by position: the tree, root first, and then the sharing providers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from placement.candidates import subtree
from placement.candidates.limits import StepCounter
from placement.candidates.providers import Anchor, Provider
from placement.candidates.reasons import Reason, Rejections
from placement.candidates.requirements import CompiledRequest, Requirement
from placement.candidates.subtree import Subtree
from placement.candidates.trait_coverage import Lookahead

Providers = tuple[Provider, ...]
Options = tuple[int, ...]

_NOTHING = Lookahead()

#: The steps that each anchor takes, whatever it has.
_OPENING = 10


@dataclass(eq=False)
class Variable:
    """One part at one anchor, with its ``options``: the positions of the providers that could take it, ascending.

    Slots with equal options share one tuple. Slots with the same ``run`` ask for the same amounts from the same
    providers, so that exchanging their providers gives the same candidate; there are none if candidates have mappings.
    ``isolated``: no other isolated slot may have the same provider. ``collective``: its provider counts for the traits
    that the unsuffixed group requires. ``brings`` has the set of these traits by option, ``later`` knows what the
    collective slots after this one can bring, and ``tree_later`` says whether a slot after this one has an option in
    the anchor's tree. ``subtrees`` are its conditions ``same_subtree``, each with the set of the options of the slots
    of that condition that are placed after this one.
    """

    __slots__ = ('brings', 'collective', 'isolated', 'later', 'options', 'part', 'run', 'subtrees', 'tree_later')

    part: Requirement
    options: Options
    run: int
    isolated: bool
    collective: bool
    brings: Mapping[int, int]
    later: Lookahead
    tree_later: bool
    subtrees: tuple[tuple[Subtree, int], ...]


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

    def slots(self, anchor: Anchor, meter: StepCounter) -> list[Variable]:
        """Return the slots in the order in which they are placed: fewest options first, then largest amounts.

        Empty if the root may not be an anchor, or no provider can take one of the parts.

        :raises StepLimitReached: the steps of the request are used up.
        """
        meter.prepare(_OPENING)
        shared_from = len(anchor.tree)
        shared = self._from_sharing(anchor.sharing, meter) if anchor.sharing else None
        root = anchor.tree[0] if anchor.tree else None
        if root is not None and not self._compiled.admits(root.traits, root.aggregates):
            self._is_rejected('', Reason.ROOT)
            return []
        options = []
        for kind, part in enumerate(self._distinct):
            meter.prepare(1 + shared_from)
            fit = self._fitting(part, anchor.tree, root)
            if shared and shared[kind]:
                fit += tuple([shared_from + index for index in shared[kind]])
            if not fit:
                return []
            meter.prepare(len(fit) * max(len(part.resources), 1))
            options.append(fit)
        return self._in_order(anchor, [options[kind] for kind in self._kinds], meter)

    def _in_order(self, anchor: Anchor, options: list[Options], meter: StepCounter) -> list[Variable]:
        """Make the slots of the options of each part. Empty if no provider can be the top of a ``same_subtree``."""
        groups = [part.group for part in self._compiled.parts]
        conditions = subtree.members(self._compiled.same_subtree, groups)
        if not conditions:
            return _in_order(self._compiled, anchor, options, [() for _ in groups])
        above = subtree.above(anchor)
        meter.prepare(len(above))
        narrowed = subtree.narrow(conditions, options, above, meter)
        if narrowed is None:
            self._is_rejected('', Reason.SUBTREE)
            return []
        options, tops = narrowed
        of_part: list[tuple[Subtree, ...]] = [() for _ in groups]
        for condition, some in zip(conditions, tops, strict=True):
            one = Subtree(above, some)
            for number in condition:
                of_part[number] = (*of_part[number], one)
        return _in_order(self._compiled, anchor, options, of_part)

    def _from_sharing(self, sharing: Providers, meter: StepCounter) -> list[Options]:
        found = self._shared.get(sharing)
        if found is None:
            if len(self._shared) >= self.REMEMBERED:
                self._shared.clear()
            meter.prepare(len(sharing) * len(self._distinct))
            found = [self._fitting(part, sharing, None) for part in self._distinct]
            self._shared[sharing] = found
        return found

    def _fitting(self, part: Requirement, providers: Providers, root: Provider | None) -> Options:
        if self._rejections is None:
            return tuple([index for index, one in enumerate(providers) if part.rejection(one, root) is None])
        return tuple(
            [i for i, one in enumerate(providers) if not self._is_rejected(part.group, part.rejection(one, root))]
        )

    def _is_rejected(self, group: str, reason: Reason | None) -> bool:
        if reason is not None and self._rejections is not None:
            self._rejections[group, reason] += 1
        return reason is not None


def _in_order(
    compiled: CompiledRequest, anchor: Anchor, options: Sequence[Options], subtrees: Sequence[tuple[Subtree, ...]]
) -> list[Variable]:
    """Make the slots in the order in which they are placed.

    :param options: those of each part of the compiled request.
    :param subtrees: the conditions ``same_subtree`` of each part.
    """
    runs: dict[Hashable, int] = {}
    same: dict[Options, Options] = {}
    slots: list[Variable] = []
    for part, found, conditions in zip(compiled.parts, options, subtrees, strict=True):
        fit = same.setdefault(found, found)
        isolated = compiled.isolate and part.numbered
        collective = bool(compiled.traits) and not part.numbered
        # With mappings, candidates of exchanged providers differ.
        key: Hashable = len(slots) if compiled.with_mappings else (part.resources, fit, isolated, collective)
        run = runs.setdefault(key, len(runs))
        slots.append(
            Variable(part, fit, run, isolated, collective, {}, _NOTHING, False, tuple([(one, 0) for one in conditions]))
        )
    slots.sort(key=lambda slot: (len(slot.options), -slot.part.size, slot.run))
    _look_ahead(compiled, anchor, slots)
    return slots


def _look_ahead(compiled: CompiledRequest, anchor: Anchor, slots: Sequence[Variable]) -> None:
    """Set what each slot knows of those after it: ``later``, ``tree_later``, in ``subtrees``; and ``brings``."""
    tree_later = False
    options_later: dict[Subtree, int] = {}
    later = _NOTHING
    brings = _brought(compiled, anchor, slots) if compiled.traits else {}
    for slot in reversed(slots):
        slot.tree_later = tree_later
        slot.later = later
        tree_later = tree_later or slot.options[0] < len(anchor.tree)
        if slot.subtrees:
            own = subtree.bits(slot.options)
            slot.subtrees = tuple([(one, options_later.get(one, 0)) for one, _ in slot.subtrees])
            for one, _ in slot.subtrees:
                options_later[one] = options_later.get(one, 0) | own
        if slot.collective:
            slot.brings = brings
            later = later.preceded_by(frozenset([brings[position] for position in slot.options]))


def _brought(compiled: CompiledRequest, anchor: Anchor, slots: Sequence[Variable]) -> dict[int, int]:
    providers = anchor.tree + anchor.sharing
    positions: set[int] = set().union(*(slot.options for slot in slots if slot.collective))
    return {position: compiled.traits.of(providers[position].traits) for position in positions}
