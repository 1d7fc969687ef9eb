"""Bipartite matchings of variables to providers: whether each variable can get a provider, few of them the same one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from placement.search.solver.variables import Variable


class Matching:
    """Gives each variable a position of its domain, and each position at most a number of variables.

    Variables are added one by one, each along a shortest augmenting path: it takes a free position, or that of a
    variable which moves to another one, and so on. If there is no such path, no matching has all these variables.

    :param max_variables: the maximum number of variables by position.
    :param count: called with the number of positions that are visited next. It may raise an exception.
    """

    def __init__(self, max_variables: Mapping[int, int], count: Callable[[int], None]) -> None:
        self._max_variables = max_variables
        self._count = count
        self._position_of: dict[Variable, int] = {}
        self._variables_at: defaultdict[int, list[Variable]] = defaultdict(list)

    def add(self, variable: Variable, fixed: Collection[int] = ()) -> bool:
        """Give ``variable`` a position. Return whether this is possible; if not, nothing changes.

        :param fixed: positions whose variables must not move.
        """
        came_from: dict[int, Variable] = {}
        domains: set[int] = set()
        queue = [variable]
        for mover in queue:
            # Variables with equal domains share one tuple, so each is visited once.
            if id(mover.domain) in domains:
                continue
            domains.add(id(mover.domain))
            self._count(len(mover.domain))
            for position in mover.domain:
                if position in came_from:
                    continue
                came_from[position] = mover
                if len(self._variables_at[position]) < self._max_variables[position]:
                    self._move(came_from, position)
                    return True
                if position not in fixed:
                    queue.extend(self._variables_at[position])
        return False

    def _move(self, came_from: Mapping[int, Variable], free: int) -> None:
        while True:
            variable = came_from[free]
            before = self._position_of.get(variable)
            self._set(variable, free)
            if before is None:
                return
            free = before

    def _set(self, variable: Variable, position: int) -> None:
        before = self._position_of.get(variable)
        if before is not None:
            self._variables_at[before].remove(variable)
        self._variables_at[position].append(variable)
        self._position_of[variable] = position


class Isolation(Matching):
    """The matching that shows that the isolated variables can still get different providers.

    All of them are in it, also those that are assigned, which have the assigned position. So nothing has to be undone
    when an assignment is taken back.

    :param variables: the isolated variables.
    """

    def __init__(self, variables: Iterable[Variable], count: Callable[[int], None]) -> None:
        isolated = list(variables)
        positions = set().union(*(variable.domain for variable in isolated))
        super().__init__(dict.fromkeys(positions, 1), count)
        #: Whether each domain has a position for every variable. Then every choice leaves one for all others.
        self._is_certain = all(len(variable.domain) >= len(isolated) for variable in isolated)
        self._is_possible = self._is_certain or all(map(self.add, isolated))

    def reserve(self, variable: Variable, position: int, taken: Collection[int]) -> bool:
        """Give ``variable`` the position that it will be assigned to, and move others that are not assigned.

        :param taken: the positions of the assigned variables, without ``position``.
        :returns: whether all variables can then get different providers; if not, nothing changes.
        """
        if self._is_certain or not self._is_possible:
            return self._is_certain
        before = self._position_of[variable]
        if before == position:
            return True
        variables = self._variables_at[position]
        self._set(variable, position)
        if len(variables) == 1:
            return True
        other = variables[0]
        variables.remove(other)
        del self._position_of[other]
        if self.add(other, fixed={position, *taken}):
            return True
        self._set(variable, before)
        self._set(other, position)
        return False
