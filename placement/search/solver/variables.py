"""Builds the variables of one search unit: each requirement with the providers that satisfy it.

Providers are given by position: first the tree, with its root at 0, then the sharing providers.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from placement.search.budget import StepCounter
from placement.search.requirements import CompiledRequest, Requirement
from placement.search.search_units import SearchUnit
from placement.search.solver import subtree
from placement.search.solver.subtree import Domain, Subtree
from placement.search.solver.trait_coverage import Lookahead

_NO_LOOKAHEAD = Lookahead()

#: The steps of a search unit, and the additional ones for each requirement.
_STEPS_PER_UNIT, _STEPS_PER_REQUIREMENT = 10, 6


class Reason(enum.Enum):
    """Why the providers of a search unit cannot be assigned to all requirements together."""

    COMBINED_AMOUNT = 'a provider has too little free capacity for the sum of several groups'
    ISOLATED = 'a provider already serves another suffixed group'
    SUBTREE = 'a provider is not in one subtree with the providers of other groups'
    SAME_TREE = 'a provider is the second one of its tree (below 1.29)'
    COLLECTIVE_TRAITS = 'no provider of the combination has a required trait'
    OTHER_TREE = 'a provider is a sharing one, and the candidate would use no provider of the tree'
    TOO_LITTLE_CAPACITY = 'all groups together request more of a class than is free'
    TOO_FEW_WITH_CAPACITY = 'the tree has too few providers with enough capacity for all groups'
    TOO_FEW_PROVIDERS = 'the tree has too few providers for isolated groups'


#: The number of rejected search units and assignments, by reason.
Rejections = Counter[Reason]


@dataclass(eq=False, slots=True)
class Variable:
    """One requirement at one search unit. ``domain`` has the positions of providers that satisfy it, ascending.

    Variables with equal domains share one tuple. Variables of the same ``symmetry_class`` request the same amounts from
    the same providers, so exchanging their providers gives the same candidate. With mappings each variable has its own
    class. No two ``isolated`` variables may have the same provider. The provider of a ``collective`` variable counts
    for the traits that the unsuffixed group requires; ``provided_traits`` has for each position the set of these traits
    as bits (``trait_coverage``).

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
    provided_traits: Sequence[int]
    lookahead: Lookahead = _NO_LOOKAHEAD
    tree_in_lookahead: bool = False


def build_variables(
    search_unit: SearchUnit, compiled: CompiledRequest, counter: StepCounter, rejections: Rejections | None = None
) -> list[Variable]:
    """Return the variables in the order of assignment: smallest domain first, then largest amounts.

    There are none if no provider satisfies one of the requirements, or if a ``same_subtree`` has no top.

    :param rejections: if given, counts the reason.
    :raises StepLimitReached: the steps of the request are used up.
    """
    bits = search_unit.bits()
    domains = _domains(bits, compiled, counter)
    if not domains:
        return []
    subtrees: list[list[tuple[Subtree, int]]] = [[] for _ in domains]
    if compiled.subtrees:
        narrowed = subtree.narrow(compiled.subtrees, domains, subtree.positions_above(search_unit), counter)
        if narrowed is None:
            if rejections is not None:
                rejections[Reason.SUBTREE] += 1
            return []
        for condition, members in zip(narrowed, compiled.subtrees, strict=True):
            for index in members:
                subtrees[index].append((condition, 0))
    with_mappings, isolate = compiled.request.with_mappings, compiled.request.isolate
    traits = [provider_bits >> len(compiled.distinct) for provider_bits in bits] if compiled.collective.sets else []
    classes: dict[Hashable, int] = {}
    same: dict[Domain, Domain] = {}
    variables: list[Variable] = []
    for requirement, own_domain, conditions in zip(compiled.requirements, domains, subtrees, strict=True):
        domain = same.setdefault(own_domain, own_domain)
        isolated = isolate and requirement.use_same_provider
        collective = bool(traits) and not requirement.use_same_provider
        # With mappings, exchanging providers gives another candidate.
        key: Hashable = len(variables) if with_mappings else (requirement.resources, domain, isolated, collective)
        symmetry_class = classes.setdefault(key, len(classes))
        variables.append(Variable(requirement, domain, symmetry_class, isolated, collective, tuple(conditions), traits))
    variables.sort(
        key=lambda variable: (
            len(variable.domain),
            -sum([amount for _, amount in variable.requirement.resources]),
            variable.symmetry_class,
        )
    )
    _add_lookahead(search_unit.tree_size, variables)
    return variables


def _domains(bits: Sequence[int], compiled: CompiledRequest, counter: StepCounter) -> list[Domain]:
    """Return the domain of each requirement; an empty list if any domain is empty.

    :param bits: those of the search unit.
    """
    counter.count_setup(_STEPS_PER_UNIT)
    distinct: list[Domain] = []
    for number, requirement in enumerate(compiled.distinct):
        bit = 1 << number
        domain = tuple([position for position, provider_bits in enumerate(bits) if provider_bits & bit])
        counter.count_setup(1 + len(bits) // 8 + len(domain) * max(len(requirement.resources), 1))
        if not domain:
            return []
        distinct.append(domain)
    counter.count_setup(_STEPS_PER_REQUIREMENT * len(compiled.requirements))
    return [distinct[index] for index in compiled.indexes]


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
            domain = subtree.position_set(variable.domain)
            variable.subtrees = tuple(
                [(condition, later_domains.get(condition, 0)) for condition, _ in variable.subtrees]
            )
            for condition, later in variable.subtrees:
                later_domains[condition] = later | domain
        if variable.collective:
            provided = variable.provided_traits
            lookahead = lookahead.with_variable(frozenset([provided[position] for position in variable.domain]))
