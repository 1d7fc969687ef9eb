"""Builds the variables of one search unit: each requirement with the providers that satisfy it.

Providers are given by position: first the tree, with its root at 0, then the sharing providers.

The providers of the unsuffixed group must have its traits together (api-ref/candidate-search.md#the-unsuffixed-group).
A *trait requirement* is one trait of a set; a plain required trait is a set of one. Here a set of trait requirements is
an integer with one bit for each of them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from placement.search.budget import Reason, StepCounter
from placement.search.conditions import Requirement
from placement.search.request import CompiledRequest
from placement.search.search_units import SearchUnit
from placement.search.solver import subtree
from placement.search.solver.subtree import Domain, Subtree

#: The steps of a search unit, and the additional ones for each requirement.
_STEPS_PER_UNIT, _STEPS_PER_REQUIREMENT = 10, 6

#: Maximum number of combinations of sets that one call of ``Lookahead.can_provide`` tries.
_MAX_COMBINATIONS = 10_000


class Lookahead:
    """The traits that the unassigned variables of the unsuffixed group can still provide.

    They tell a search early that no combination of providers has the traits, so that it does not try each.

    :param choices: for each of these variables, the sets of trait requirements that the providers of its domain
        satisfy.
    :param combinations: the number of combinations of one set per variable; any number above ``_MAX_COMBINATIONS`` if
        there are more.
    """

    def __init__(self, choices: Sequence[frozenset[int]] = (), combinations: int = 1) -> None:
        self._choices = choices
        self._combinations = combinations
        self._results: dict[int, bool] = {}

    def with_variable(self, choice: frozenset[int]) -> Lookahead:
        """Return the lookahead with one more variable in front. ``choice`` has the sets for its domain."""
        if not any(choice):
            return self
        return Lookahead((choice, *self._choices), min(self._combinations * len(choice), _MAX_COMBINATIONS + 1))

    def can_provide(self, missing: int, counter: StepCounter) -> bool:
        """Return whether the variables can satisfy all of ``missing``; also True if this would take too long.

        :param missing: a set of trait requirements.
        :raises StepLimitReached: the steps of the tree or of the request are used up.
        """
        if not missing:
            return True
        result = self._results.get(missing)
        if result is None:
            result = self._decide(missing, counter)
            if counter.reserve(1):
                self._results[missing] = result
        return result

    def _decide(self, missing: int, counter: StepCounter) -> bool:
        # Operations on sets of several thousand bits take longer.
        counter.count_steps((1 + sum(map(len, self._choices))) * (1 + missing.bit_length() // 512))
        upper_bound = sum([max([(traits & missing).bit_count() for traits in choice]) for choice in self._choices])
        if upper_bound < missing.bit_count():
            return False
        choices = self._without_excluded(missing, counter)
        if choices is None:
            return False
        if min(self._combinations, 1 << missing.bit_count()) > _MAX_COMBINATIONS:
            return True
        return _can_cover(choices, missing, counter)

    def _without_excluded(self, missing: int, counter: StepCounter) -> Sequence[frozenset[int]] | None:
        """Return the choices without the sets that no solution contains; None if there is no solution.

        If only one variable can satisfy a trait requirement, it has to choose a set with this requirement. Repeat this
        until nothing changes.
        """
        choices = [frozenset([traits & missing for traits in choice]) for choice in self._choices]
        while True:
            counter.count_steps(sum(map(len, choices)))
            unions = [functools.reduce(operator.or_, choice, 0) for choice in choices]
            once = twice = 0
            for union in unions:
                twice |= once & union
                once |= union
            if missing & ~once:
                return None
            alone = once & ~twice
            remaining = [
                frozenset([traits for traits in choice if traits & alone == union & alone])
                for choice, union in zip(choices, unions, strict=True)
            ]
            if remaining == choices:
                return choices
            if not all(remaining):
                return None
            choices = remaining


def _can_cover(choices: Sequence[frozenset[int]], missing: int, counter: StepCounter) -> bool:
    """Return whether one set of each choice can together contain ``missing``; also True if this would take too long."""
    reachable = {missing}
    tried = 0
    for choice in choices:
        pairs = len(reachable) * len(choice)
        tried += pairs
        if tried > _MAX_COMBINATIONS:
            return True
        counter.count_steps(pairs)
        reachable = {before & ~provided for before in reachable for provided in choice}
    return 0 in reachable


_NO_LOOKAHEAD = Lookahead()


@dataclass(eq=False, slots=True)
class Variable:
    """One requirement at one search unit. ``domain`` has the positions of providers that satisfy it, ascending.

    Variables with equal domains share one tuple. Variables of the same ``symmetry_class`` are exchangeable: they
    request the same amounts from the same providers, so if they exchange their providers, the candidate stays the same.
    Its mappings would not; with mappings, each variable has its own class. No two ``isolated`` variables may have the
    same provider. The provider of a ``collective`` variable counts for the traits that the unsuffixed group requires;
    ``provided_traits`` has for each position the set of these traits as bits.

    Three fields depend on the variables that are assigned after this one. ``lookahead`` knows which traits the
    collective ones can provide. ``tree_in_lookahead`` tells whether the domain of any of them has a provider of the
    tree. ``subtrees`` has each ``same_subtree`` of the group, with the union of the domains of its later variables.
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


def build_variables(search_unit: SearchUnit, compiled: CompiledRequest, counter: StepCounter) -> list[Variable]:
    """Return the variables in the order of assignment: smallest domain first, then largest amounts.

    There are none if no provider satisfies one of the requirements, or if a ``same_subtree`` has no top.

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
            counter.reject(Reason.SUBTREE)
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
