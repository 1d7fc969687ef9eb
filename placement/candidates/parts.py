"""The compiled request: the parts that one provider each must take, and what that provider has to satisfy."""

from __future__ import annotations

from dataclasses import dataclass, field

from placement.candidates.collective import Traits
from placement.candidates.providers import Provider
from placement.candidates.reasons import Reason
from placement.candidates.request import CandidateRequest, RequestGroup


@dataclass(frozen=True)
class Part:
    """What goes to one provider: a numbered group whole, or one class of the unnumbered group.

    Steps that ask for the same are equal, whatever the number of their group.
    """

    group: str = field(compare=False)
    resources: tuple[tuple[str, int], ...]
    required: frozenset[str]
    forbidden: frozenset[str]
    member_of: tuple[frozenset[str], ...]
    numbered: bool

    @property
    def size(self) -> int:
        """A rough measure of how much it takes."""
        return sum(amount for _, amount in self.resources)

    def rejection(self, provider: Provider, root: Provider | None) -> Reason | None:
        """Return why ``provider`` cannot take this part, None when it can.

        ``root`` is the root of the anchor's tree when the provider belongs to it, None for a sharing provider of
        another tree: only tree members of the unnumbered group pass by their root's aggregates.
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
        judged = [provider] if self.numbered or root is None else [provider, root]
        return any(all(not any_of.isdisjoint(one.aggregates) for any_of in self.member_of) for one in judged)


@dataclass(frozen=True)
class CompiledRequest:
    """A request, compiled once for all anchors.

    ``collective`` are the traits that the unnumbered group requires, ``traits`` the same as sets of bits.
    """

    parts: tuple[Part, ...]
    collective: frozenset[str]
    traits: Traits
    isolate: bool
    nested_aware: bool


def compile_request(request: CandidateRequest) -> CompiledRequest:
    """Turn request groups into parts."""
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
    # Required traits of the unnumbered group are collective: no single provider has to have them.
    return [Part(group.suffix, (one,), frozenset(), group.forbidden, group.member_of, False) for one in resources]
