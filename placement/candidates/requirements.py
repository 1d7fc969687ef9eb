"""Compiles a request into the requirements that single providers have to satisfy."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from placement.candidates.providers import Provider
from placement.candidates.reasons import Reason
from placement.candidates.request import NO_TREE, CandidateRequest, RequestGroup
from placement.candidates.trait_coverage import Traits


@dataclass(frozen=True)
class Requirement:
    """Requirements on one provider: those of a whole suffixed group, or of one class of the unsuffixed group.

    ``resources`` are pairs of class name and amount, none for a group without resources; the other fields are those of
    ``RequestGroup``. ``group`` is its suffix, and does not count when requirements are compared: requirements that ask
    for the same are equal.
    """

    group: str = field(compare=False)
    resources: tuple[tuple[str, int], ...]
    required: frozenset[str]
    forbidden: frozenset[str]
    member_of: tuple[frozenset[str], ...]
    use_same_provider: bool
    required_any: frozenset[frozenset[str]] = frozenset()
    forbidden_aggregates: frozenset[str] = frozenset()
    root_id: int | None = None

    @property
    def size(self) -> int:
        """The sum of the amounts: a rough measure, to sort by."""
        return sum(amount for _, amount in self.resources)

    def rejection(self, provider: Provider, root: Provider | None) -> Reason | None:
        """Return why ``provider`` cannot take this requirement, None when it can.

        :param root: the root of the anchor's tree if the provider is in that tree; None for a sharing provider of
            another tree. For a requirement of the unnumbered group the aggregates of the root count, too.
        """
        for name, amount in self.resources:
            inventory = provider.inventories.get(name)
            reason = inventory.rejection(amount) if inventory else Reason.NO_INVENTORY
            if reason:
                return reason
        if not self.required <= provider.traits:
            return Reason.MISSING_TRAIT
        if any(any_of.isdisjoint(provider.traits) for any_of in self.required_any):
            return Reason.MISSING_TRAIT
        if not self.forbidden.isdisjoint(provider.traits):
            return Reason.FORBIDDEN_TRAIT
        if self.member_of and not self._is_member(provider, root):
            return Reason.NOT_MEMBER
        if not self.forbidden_aggregates.isdisjoint(provider.aggregates):
            return Reason.FORBIDDEN_AGGREGATE
        if self.root_id is not None and (
            provider.root_id != self.root_id or (root is None and not self.use_same_provider)
        ):
            # In the tree of ``in_tree`` the unsuffixed group uses no sharing providers of other trees.
            return Reason.NOT_IN_TREE
        return None

    def _is_member(self, provider: Provider, root: Provider | None) -> bool:
        alternatives = [provider] if self.use_same_provider or root is None else [provider, root]
        return any(all(not any_of.isdisjoint(one.aggregates) for any_of in self.member_of) for one in alternatives)


@dataclass(frozen=True)
class CompiledRequest:
    """A request, compiled once for all anchors.

    ``groups`` are the suffixes, in the order of the request. ``collective`` are the sets of traits of which the
    unsuffixed group requires one each, ``traits`` the same with a bit for each. ``same_subtree`` has suffixes.

    The last three fields are about the root of an anchor: it must have all traits of ``root_required``, none of
    ``root_forbidden``, and be in none of ``root_forbidden_aggregates``.
    """

    groups: tuple[str, ...]

    requirements: tuple[Requirement, ...]
    collective: frozenset[frozenset[str]]
    traits: Traits
    isolate: bool
    nested_aware: bool
    with_mappings: bool
    same_subtree: tuple[frozenset[str], ...]
    root_required: frozenset[str]
    root_forbidden: frozenset[str]
    root_forbidden_aggregates: frozenset[str]

    @property
    def selects_roots(self) -> bool:
        """Whether not every root may be an anchor."""
        return bool(self.root_required or self.root_forbidden or self.root_forbidden_aggregates)

    def admits(self, traits: Collection[str], aggregates: Collection[str]) -> bool:
        """Return whether a root with these traits and aggregates may be an anchor."""
        return (
            self.root_required.issubset(traits)
            and self.root_forbidden.isdisjoint(traits)
            and self.root_forbidden_aggregates.isdisjoint(aggregates)
        )


def compile_request(request: CandidateRequest) -> CompiledRequest:
    """Divide the groups of ``request`` into requirements."""
    unsuffixed = [group for group in request.groups if not group.use_same_provider]
    collective = frozenset(any_of for group in unsuffixed for any_of in _any_of(group))
    return CompiledRequest(
        groups=tuple(group.suffix for group in request.groups),
        requirements=tuple(requirement for group in request.groups for requirement in _requirements(group)),
        collective=collective,
        traits=Traits(collective),
        isolate=request.isolate,
        nested_aware=request.nested_aware,
        with_mappings=request.with_mappings,
        same_subtree=request.same_subtree,
        root_required=request.root_required,
        root_forbidden=request.root_forbidden,
        root_forbidden_aggregates=frozenset().union(*(group.forbidden_aggregates for group in unsuffixed)),
    )


def _any_of(group: RequestGroup) -> frozenset[frozenset[str]]:
    """The traits that a group requires, as sets of which one trait each suffices."""
    return group.required_any.union(frozenset({name}) for name in group.required)


def _requirements(group: RequestGroup) -> list[Requirement]:
    resources = tuple(group.resources.items())
    root_id = NO_TREE if group.in_tree is not None and group.root_id is None else group.root_id
    whole = Requirement(
        group=group.suffix,
        resources=resources,
        required=group.required,
        forbidden=group.forbidden,
        member_of=group.member_of,
        use_same_provider=group.use_same_provider,
        required_any=group.required_any,
        forbidden_aggregates=group.forbidden_aggregates,
        root_id=root_id,
    )
    if group.use_same_provider:
        return [whole]
    # Traits that the unsuffixed group requires are those of all its providers together; no requirement requires them.
    return [replace(whole, resources=(one,), required=frozenset(), required_any=frozenset()) for one in resources]
