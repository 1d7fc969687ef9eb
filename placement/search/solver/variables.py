"""Builds the variables of one search unit: each requirement with the providers that satisfy it.

Providers are given by position: first the tree, with its root at 0, then the sharing providers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from placement.cache.providers import Provider
from placement.search.budget import StepCounter
from placement.search.requirements import CompiledRequest, Reason, Rejections, Requirement
from placement.search.search_units import Providers, SearchUnit
from placement.search.solver import subtree
from placement.search.solver.subtree import Domain, Subtree
from placement.search.solver.trait_coverage import Lookahead

_NO_LOOKAHEAD = Lookahead()

#: The steps of a search unit, and the additional ones for each group, and each class and ``same_subtree`` of a group.
_STEPS_PER_UNIT = 10
_STEPS_PER_PART = 3


@dataclass(eq=False, slots=True)
class Variable:
    """One requirement at one search unit. ``domain`` has the positions of providers that satisfy it, ascending.

    Variables with equal domains share one tuple. Variables of the same ``symmetry_class`` request the same amounts from
    the same providers, so exchanging their providers gives the same candidate. With mappings each variable has its own
    class. No two ``isolated`` variables may have the same provider. The provider of a ``collective`` variable counts
    for the traits that the unsuffixed group requires; ``provided_traits`` has the set of these traits by position.

    Three fields depend on the variables that are assigned after this one. ``lookahead`` knows which traits the
    collective ones can provide. ``tree_in_lookahead`` tells whether the domain of any of them has a provider of the
    tree. ``subtrees`` has the conditions ``same_subtree``, each with the union of the domains of its later variables.
    """

    requirement: Requirement
    domain: Domain
    symmetry_class: int
    isolated: bool
    collective: bool
    subtrees: tuple[tuple[Subtree, int], ...]
    provided_traits: Mapping[int, int]
    lookahead: Lookahead = _NO_LOOKAHEAD
    tree_in_lookahead: bool = False


class VariableBuilder:
    """Builds the variables of one request. For other search units, it caches which sharing providers are in domains."""

    #: The number of groups of sharing providers in this cache.
    CACHED_GROUPS = 64

    def __init__(self, compiled: CompiledRequest, rejections: Rejections | None = None) -> None:
        self._compiled = compiled
        self._rejections = rejections
        self._distinct = tuple(compiled.suffixes)
        indexes = {requirement: index for index, requirement in enumerate(self._distinct)}
        #: For each requirement its index in ``_distinct``, which has equal requirements once.
        self._indexes = [indexes[requirement] for requirement in compiled.requirements]
        self._subtrees = subtree.members(
            compiled.request.same_subtree, [requirement.group for requirement in compiled.requirements]
        )
        self._setup_steps = _STEPS_PER_PART * (
            sum(1 + len(requirement.resources) for requirement in compiled.requirements) + sum(map(len, self._subtrees))
        )
        self._sharing_domains: dict[Providers, list[Domain]] = {}

    def variables(self, search_unit: SearchUnit, counter: StepCounter) -> list[Variable]:
        """Return the variables in the order of assignment: smallest domain first, then largest amounts.

        There are none if the root is rejected, if no provider satisfies one of the requirements, or if a
        ``same_subtree`` has no top.

        :raises StepLimitReached: the steps of the request are used up.
        """
        compiled = self._compiled
        counter.count_setup(_STEPS_PER_UNIT + len(compiled.root.conditions))
        if search_unit.tree and compiled.root.rejection(search_unit.tree[0], None) is not None:
            self._count_rejection('', Reason.ROOT)
            return []
        distinct = self._domains(search_unit, counter)
        if not distinct:
            return []
        counter.count_setup(self._setup_steps)
        domains = [distinct[index] for index in self._indexes]
        subtrees: list[list[Subtree]] = [[] for _ in domains]
        if self._subtrees:
            above = subtree.above(search_unit)
            counter.count_setup(len(above))
            narrowed = subtree.narrow(self._subtrees, domains, above, counter)
            if narrowed is None:
                self._count_rejection('', Reason.SUBTREE)
                return []
            domains, tops = narrowed
            for condition, condition_tops in zip(self._subtrees, tops, strict=True):
                placed = Subtree(above, condition_tops)
                for number in condition:
                    subtrees[number].append(placed)
        return _sorted_variables(compiled, search_unit, domains, subtrees)

    def _domains(self, search_unit: SearchUnit, counter: StepCounter) -> list[Domain]:
        """Return the domain of each distinct requirement; an empty list if any domain is empty."""
        tree, sharing, tree_size = search_unit.tree, search_unit.sharing, search_unit.tree_size
        of_sharing = self._sharing_domains.get(sharing)
        if of_sharing is None:
            if len(self._sharing_domains) >= self.CACHED_GROUPS:
                self._sharing_domains.clear()
            counter.count_setup(len(sharing) * sum(len(requirement.conditions) for requirement in self._distinct))
            of_sharing = [self._domain(requirement, sharing, None) for requirement in self._distinct]
            self._sharing_domains[sharing] = of_sharing
        domains = []
        for requirement, shared in zip(self._distinct, of_sharing, strict=True):
            domain = self._domain(requirement, tree, tree[0]) if tree else ()
            if shared:
                domain += tuple([tree_size + index for index in shared])
            steps_of_domain = len(domain) * max(len(requirement.resources), 1)
            counter.count_setup(1 + tree_size * len(requirement.conditions) + steps_of_domain)
            if not domain:
                return []
            domains.append(domain)
        return domains

    def _domain(self, requirement: Requirement, providers: Providers, root: Provider | None) -> Domain:
        if self._rejections is None:
            return tuple([i for i, provider in enumerate(providers) if requirement.rejection(provider, root) is None])
        domain = []
        for index, provider in enumerate(providers):
            reason = requirement.rejection(provider, root)
            if reason is None:
                domain.append(index)
            else:
                self._count_rejection(requirement.group, reason)
        return tuple(domain)

    def _count_rejection(self, group: str, reason: Reason) -> None:
        if self._rejections is not None:
            self._rejections[group, reason] += 1


def _sorted_variables(
    compiled: CompiledRequest,
    search_unit: SearchUnit,
    domains: Sequence[Domain],
    subtrees: Sequence[Sequence[Subtree]],
) -> list[Variable]:
    """Make the variables in the order of assignment.

    :param domains: the domain of each requirement of the compiled request.
    :param subtrees: the conditions ``same_subtree`` of each requirement.
    """
    with_mappings, isolate = compiled.request.with_mappings, compiled.request.isolate
    collective_traits = bool(compiled.collective)
    classes: dict[Hashable, int] = {}
    same: dict[Domain, Domain] = {}
    provided: dict[int, int] = {}
    variables: list[Variable] = []
    for requirement, own_domain, conditions in zip(compiled.requirements, domains, subtrees, strict=True):
        domain = same.setdefault(own_domain, own_domain)
        isolated = isolate and requirement.use_same_provider
        collective = collective_traits and not requirement.use_same_provider
        # With mappings, exchanging providers gives another candidate.
        key: Hashable = (requirement.resources, domain, isolated, collective)
        symmetry_class = classes.setdefault(len(variables) if with_mappings else key, len(classes))
        if collective:
            for position in domain:
                if position not in provided:
                    provided[position] = compiled.traits.mask(search_unit.provider(position).traits)
        without_later = tuple([(condition, 0) for condition in conditions])
        variables.append(Variable(requirement, domain, symmetry_class, isolated, collective, without_later, provided))
    variables.sort(
        key=lambda variable: (
            len(variable.domain),
            -sum([amount for _, amount in variable.requirement.resources]),
            variable.symmetry_class,
        )
    )
    _add_lookahead(search_unit.tree_size, variables)
    return variables


def _add_lookahead(tree_size: int, variables: Sequence[Variable]) -> None:
    """Set the fields of each variable that depend on the variables after it."""
    tree_in_lookahead = False
    later_domains: dict[Subtree, int] = {}
    lookahead = _NO_LOOKAHEAD
    for variable in reversed(variables):
        variable.tree_in_lookahead = tree_in_lookahead
        variable.lookahead = lookahead
        tree_in_lookahead = tree_in_lookahead or variable.domain[0] < tree_size
        if variable.subtrees:
            domain = subtree.bits(variable.domain)
            variable.subtrees = tuple(
                [(condition, later_domains.get(condition, 0)) for condition, _ in variable.subtrees]
            )
            for condition, later in variable.subtrees:
                later_domains[condition] = later | domain
        if variable.collective:
            provided = variable.provided_traits
            lookahead = lookahead.with_variable(frozenset([provided[position] for position in variable.domain]))
