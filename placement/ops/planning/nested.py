"""Places shapes of several roles in one tree with the solver of the search. Results are remembered by state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from placement.cache.providers import Provider
from placement.ops.planning.hosts import Hosts, Matrix
from placement.ops.planning.loads import Role, Shape, amounts_of
from placement.search.assignments import find_assignments
from placement.search.budget import SearchBudget
from placement.search.request import CandidateRequest, CompiledRequest, RequestGroup, compile_request
from placement.search.search_units import SearchUnit

_MAX_STEPS = 20_000
_MAX_REMEMBERED = 200_000


class TreeSolver:
    """Assigns the roles of one consumer to rows of one tree.

    :param isolate: whether two roles may not use the same provider.
    """

    def __init__(self, hosts: Hosts, isolate: bool) -> None:
        self._hosts = hosts
        self._isolate = isolate
        #: For each set of roles, a request with one group for each role, and the sum of their amounts by class.
        self._requests: dict[tuple[Role, ...], tuple[CompiledRequest, NDArray[np.int64]]] = {}
        self._known: dict[object, tuple[int, ...] | None] = {}
        self._forms: dict[int, bytes] = {}

    def assign(self, shape: Shape, tree: int, free: Matrix) -> tuple[int, ...] | None:
        """Return the row of each role; None if the shape does not fit in the tree.

        :param free: what is free in each row of the tree.
        """
        if shape.roles not in self._requests:
            groups = [RequestGroup(f'_{n}', True, self._hosts.resources(role)) for n, role in enumerate(shape.roles)]
            request = CandidateRequest(tuple(groups), 'isolate' if self._isolate else 'none', with_mappings=True)
            sums = amounts_of([shape.roles], len(self._hosts.classes))[0]
            self._requests[shape.roles] = compile_request(request, self._hosts.snapshot), sums
        compiled, needs = self._requests[shape.roles]
        # More than all roles need together makes no difference.
        free = np.minimum(free, needs)
        rows = self._hosts.rows(tree)
        if tree not in self._forms:
            # All that an assignment depends on, except what is free.
            parts = (self._hosts.min_unit, self._hosts.max_unit, self._hosts.step_size, self._hosts.is_own)
            self._forms[tree] = b''.join(part[rows].tobytes() for part in parts)
        key = shape.roles, self._forms[tree], free.tobytes()
        if key not in self._known:
            if len(self._known) > _MAX_REMEMBERED:
                self._known.clear()
            self._known[key] = self._solve(compiled, tree, free)
        positions = self._known[key]
        return None if positions is None else tuple([rows.start + position for position in positions])

    def _solve(self, compiled: CompiledRequest, tree: int, free: Matrix) -> tuple[int, ...] | None:
        is_own = self._hosts.is_own[self._hosts.rows(tree)].tolist()
        providers = tuple(map(self._with_free, self._hosts.trees[tree], free.tolist(), is_own))
        unit = SearchUnit(providers, (), compiled.bits_at(providers, ()))
        for assignment in find_assignments(unit, compiled, SearchBudget(max_steps=_MAX_STEPS)):
            if assignment is not None:
                return tuple(positions[0] for positions in assignment.mappings)
        return None

    def _with_free(self, provider: Provider, free: Sequence[int], is_own: bool) -> Provider:
        inventories = {
            name: inventory.with_used(inventory.capacity - free[self._hosts.classes.index(name)])
            for name, inventory in provider.inventories.items()
            if is_own
        }
        return replace(provider, inventories=inventories)
