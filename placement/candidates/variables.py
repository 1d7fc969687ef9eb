"""Which providers could take which requirement at one anchor, in the order in which the walk places the requirements.

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
Domain = tuple[int, ...]

_NOTHING = Lookahead()

#: The steps that each anchor takes, whatever it has.
_OPENING = 10


@dataclass(eq=False)
class Variable:
    """One requirement at one anchor. Its ``domain`` are the positions of the providers that satisfy it, ascending.

    Slots with equal domains share one tuple. Slots with the same ``symmetry_class`` ask for the same amounts from the
    same providers, so that exchanging their providers gives the same candidate; there are none if candidates have
    mappings. ``isolated``: no other isolated variable may have the same provider. ``collective``: its provider counts
    for the traits that the unsuffixed group requires. ``provided_traits`` has the set of these traits by option,
    ``lookahead`` knows what the collective variables after this one can bring, and ``tree_in_lookahead`` says whether a
    variable after this one has an option in the anchor's tree. ``subtrees`` are its conditions ``same_subtree``, each
    with the set of the domains of the variables of that condition that are placed after this one.
    """

    __slots__ = (
        'collective',
        'domain',
        'isolated',
        'lookahead',
        'provided_traits',
        'requirement',
        'subtrees',
        'symmetry_class',
        'tree_in_lookahead',
    )

    requirement: Requirement
    domain: Domain
    symmetry_class: int
    isolated: bool
    collective: bool
    provided_traits: Mapping[int, int]
    lookahead: Lookahead
    tree_in_lookahead: bool
    subtrees: tuple[tuple[Subtree, int], ...]


class VariableBuilder:
    """Finds the domains of the requirements of one request. Caches those among sharing providers for other anchors."""

    #: For how many groups of sharing providers the domains are remembered.
    REMEMBERED = 64

    def __init__(self, compiled: CompiledRequest, rejections: Rejections | None = None) -> None:
        self._compiled = compiled
        self._rejections = rejections
        self._distinct = tuple(dict.fromkeys(compiled.requirements))
        self._kinds = [self._distinct.index(requirement) for requirement in compiled.requirements]
        self._shared: dict[Providers, list[Domain]] = {}

    def variables(self, anchor: Anchor, counter: StepCounter) -> list[Variable]:
        """Return the variables in the order in which they are placed: fewest domains first, then largest amounts.

        Empty if the root may not be an anchor, or no provider can take one of the requirements.

        :raises StepLimitReached: the steps of the request are used up.
        """
        counter.count_setup(_OPENING)
        tree_size = len(anchor.tree)
        shared = self._from_sharing(anchor.sharing, counter) if anchor.sharing else None
        root = anchor.tree[0] if anchor.tree else None
        if root is not None and not self._compiled.admits(root.traits, root.aggregates):
            self._is_rejected('', Reason.ROOT)
            return []
        domains = []
        for kind, requirement in enumerate(self._distinct):
            counter.count_setup(1 + tree_size)
            fit = self._fitting(requirement, anchor.tree, root)
            if shared and shared[kind]:
                fit += tuple([tree_size + index for index in shared[kind]])
            if not fit:
                return []
            counter.count_setup(len(fit) * max(len(requirement.resources), 1))
            domains.append(fit)
        return self._in_order(anchor, [domains[kind] for kind in self._kinds], counter)

    def _in_order(self, anchor: Anchor, domains: list[Domain], counter: StepCounter) -> list[Variable]:
        """Return the variables of some domains. Empty if no provider can be the top of a ``same_subtree``."""
        groups = [requirement.group for requirement in self._compiled.requirements]
        conditions = subtree.members(self._compiled.same_subtree, groups)
        if not conditions:
            return _in_order(self._compiled, anchor, domains, [() for _ in groups])
        above = subtree.above(anchor)
        counter.count_setup(len(above))
        narrowed = subtree.narrow(conditions, domains, above, counter)
        if narrowed is None:
            self._is_rejected('', Reason.SUBTREE)
            return []
        domains, tops = narrowed
        of_part: list[tuple[Subtree, ...]] = [() for _ in groups]
        for condition, some in zip(conditions, tops, strict=True):
            one = Subtree(above, some)
            for number in condition:
                of_part[number] = (*of_part[number], one)
        return _in_order(self._compiled, anchor, domains, of_part)

    def _from_sharing(self, sharing: Providers, counter: StepCounter) -> list[Domain]:
        found = self._shared.get(sharing)
        if found is None:
            if len(self._shared) >= self.REMEMBERED:
                self._shared.clear()
            counter.count_setup(len(sharing) * len(self._distinct))
            found = [self._fitting(requirement, sharing, None) for requirement in self._distinct]
            self._shared[sharing] = found
        return found

    def _fitting(self, requirement: Requirement, providers: Providers, root: Provider | None) -> Domain:
        if self._rejections is None:
            return tuple([index for index, one in enumerate(providers) if requirement.rejection(one, root) is None])
        return tuple(
            [
                i
                for i, one in enumerate(providers)
                if not self._is_rejected(requirement.group, requirement.rejection(one, root))
            ]
        )

    def _is_rejected(self, group: str, reason: Reason | None) -> bool:
        if reason is not None and self._rejections is not None:
            self._rejections[group, reason] += 1
        return reason is not None


def _in_order(
    compiled: CompiledRequest, anchor: Anchor, domains: Sequence[Domain], subtrees: Sequence[tuple[Subtree, ...]]
) -> list[Variable]:
    """Make the variables in the order in which they are placed.

    :param domains: those of each requirement of the compiled request.
    :param subtrees: the conditions ``same_subtree`` of each requirement.
    """
    symmetry_classes: dict[Hashable, int] = {}
    same: dict[Domain, Domain] = {}
    variables: list[Variable] = []
    for requirement, found, conditions in zip(compiled.requirements, domains, subtrees, strict=True):
        fit = same.setdefault(found, found)
        isolated = compiled.isolate and requirement.use_same_provider
        collective = bool(compiled.traits) and not requirement.use_same_provider
        # With mappings, candidates of exchanged providers differ.
        key: Hashable = len(variables) if compiled.with_mappings else (requirement.resources, fit, isolated, collective)
        symmetry_class = symmetry_classes.setdefault(key, len(symmetry_classes))
        variables.append(
            Variable(
                requirement,
                fit,
                symmetry_class,
                isolated,
                collective,
                {},
                _NOTHING,
                False,
                tuple([(one, 0) for one in conditions]),
            )
        )
    variables.sort(key=lambda variable: (len(variable.domain), -variable.requirement.size, variable.symmetry_class))
    _look_ahead(compiled, anchor, variables)
    return variables


def _look_ahead(compiled: CompiledRequest, anchor: Anchor, variables: Sequence[Variable]) -> None:
    """Set the fields of each variable that depend on the variables after it, and ``provided_traits``."""
    tree_in_lookahead = False
    later_domains: dict[Subtree, int] = {}
    lookahead = _NOTHING
    provided_traits = _brought(compiled, anchor, variables) if compiled.traits else {}
    for variable in reversed(variables):
        variable.tree_in_lookahead = tree_in_lookahead
        variable.lookahead = lookahead
        tree_in_lookahead = tree_in_lookahead or variable.domain[0] < len(anchor.tree)
        if variable.subtrees:
            own = subtree.bits(variable.domain)
            variable.subtrees = tuple([(one, later_domains.get(one, 0)) for one, _ in variable.subtrees])
            for one, _ in variable.subtrees:
                later_domains[one] = later_domains.get(one, 0) | own
        if variable.collective:
            variable.provided_traits = provided_traits
            lookahead = lookahead.preceded_by(frozenset([provided_traits[position] for position in variable.domain]))


def _brought(compiled: CompiledRequest, anchor: Anchor, variables: Sequence[Variable]) -> dict[int, int]:
    providers = anchor.tree + anchor.sharing
    positions: set[int] = set().union(*(variable.domain for variable in variables if variable.collective))
    return {position: compiled.traits.of(providers[position].traits) for position in positions}
