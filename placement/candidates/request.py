"""What a caller asks for: request groups, typed and immutable (api-ref/allocation-candidates.md#request-groups)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: A provider with this trait offers its inventory to the trees that it has an aggregate in common with.
SHARING_TRAIT = 'MISC_SHARES_VIA_AGGREGATE'


@dataclass(frozen=True)
class RequestGroup:
    """The ``resources``, ``required`` and ``member_of`` parameters of one suffix.

    ``resources`` maps a class name to an amount of at least 1. ``member_of`` is a conjunction: each set of aggregate
    uuids must meet the provider's. ``use_same_provider`` is true for numbered groups, which one provider serves whole.
    """

    suffix: str
    use_same_provider: bool
    resources: Mapping[str, int]
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    member_of: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True)
class CandidateRequest:
    """A whole query. ``limit`` is the most candidates wanted, None for all of them.

    ``nested_aware`` is false below microversion 1.29, where a candidate may not use two different providers of one tree
    (api-ref/candidate-search.md#below-129). ``with_traits`` says whether the answer shows the traits of providers
    (1.17 and later).
    """

    groups: tuple[RequestGroup, ...]
    group_policy: str | None = None
    limit: int | None = None
    nested_aware: bool = True
    with_traits: bool = field(default=True, compare=False)

    @property
    def isolate(self) -> bool:
        """Whether the providers of numbered groups must be pairwise different."""
        return self.group_policy == 'isolate'

    @property
    def classes(self) -> frozenset[str]:
        """Every resource class named in any group."""
        return frozenset(name for group in self.groups for name in group.resources)

    @property
    def traits(self) -> frozenset[str]:
        """Every trait named in any group, required or forbidden."""
        return frozenset(name for group in self.groups for name in group.required | group.forbidden)

    @property
    def aggregates(self) -> frozenset[str]:
        """Every aggregate uuid named in any group."""
        return frozenset(uuid for group in self.groups for any_of in group.member_of for uuid in any_of)
