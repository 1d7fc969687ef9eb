"""The compiled request: its parts, each of which one provider has to take, and what that provider has to satisfy."""

from __future__ import annotations

from dataclasses import dataclass, field

from placement.candidates.collective import Traits
from placement.candidates.providers import Provider
from placement.candidates.reasons import Reason
from placement.candidates.request import CandidateRequest, RequestGroup


@dataclass(frozen=True)
class Part:
    """What one provider has to take: a whole numbered group, or one class of the unnumbered group.

    ``resources`` are pairs of class name and amount; the other fields are those of ``RequestGroup``. ``group`` is its
    suffix, and does not count when parts are compared: parts that ask for the same are equal.
    """

    group: str = field(compare=False)
    resources: tuple[tuple[str, int], ...]
    required: frozenset[str]
    forbidden: frozenset[str]
    member_of: tuple[frozenset[str], ...]
    numbered: bool

    @property
    def size(self) -> int:
        """The sum of the amounts: a rough measure, to sort by."""
        return sum(amount for _, amount in self.resources)

    def rejection(self, provider: Provider, root: Provider | None) -> Reason | None:
        """Return why ``provider`` cannot take this part, None when it can.

        :param root: the root of the anchor's tree if the provider is in that tree; None for a sharing provider of
            another tree. For a part of the unnumbered group the aggregates of the root count, too.
        """
        for name, amount in self.resources:
            inventory = provider.inventories.get(name)
            reason = inventory.rejection(amount) if inventory else Reason.NO_INVENTORY
            if reason:
                return reason
        if not self.required <= provider.traits:
            return Reason.MISSING_TRAIT
        if not self.forbidden.isdisjoint(provider.traits):
            return Reason.FORBIDDEN_TRAIT
        if self.member_of and not self._is_member(provider, root):
            return Reason.NOT_MEMBER
        return None

    def _is_member(self, provider: Provider, root: Provider | None) -> bool:
        alternatives = [provider] if self.numbered or root is None else [provider, root]
        return any(all(not any_of.isdisjoint(one.aggregates) for any_of in self.member_of) for one in alternatives)


@dataclass(frozen=True)
class CompiledRequest:
    """A request, compiled once for all anchors.

    ``collective`` are the traits that the unnumbered group requires, ``traits`` the same with a bit for each.
    """

    parts: tuple[Part, ...]
    collective: frozenset[str]
    traits: Traits
    isolate: bool
    nested_aware: bool


def compile_request(request: CandidateRequest) -> CompiledRequest:
    """Divide the groups of ``request`` into parts."""
    unnumbered = [group for group in request.groups if not group.use_same_provider]
    collective: frozenset[str] = frozenset().union(*(group.required for group in unnumbered))
    return CompiledRequest(
        parts=tuple(part for group in request.groups for part in _parts(group)),
        collective=collective,
        traits=Traits(collective),
        isolate=request.isolate,
        nested_aware=request.nested_aware,
    )


def _parts(group: RequestGroup) -> list[Part]:
    resources = tuple(group.resources.items())
    if group.use_same_provider:
        return [Part(group.suffix, resources, group.required, group.forbidden, group.member_of, True)]
    # Traits that the unnumbered group requires are those of all its providers together; no part requires them.
    return [Part(group.suffix, (one,), frozenset(), group.forbidden, group.member_of, False) for one in resources]
