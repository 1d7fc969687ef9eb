"""What a caller asks for: request groups, typed and immutable (api-ref/allocation-candidates.md#request-groups)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: A provider with this trait shares its inventory with the trees of all providers that are in one of its aggregates.
SHARING_TRAIT = 'MISC_SHARES_VIA_AGGREGATE'


@dataclass(frozen=True)
class RequestGroup:
    """The ``resources``, ``required`` and ``member_of`` parameters of one suffix.

    ``suffix`` is empty for the unnumbered group. ``use_same_provider`` is true for numbered groups, which one provider
    has to serve. ``resources`` maps class name to amount (1 or more). ``required`` and ``forbidden`` are trait names.
    For each set of ``member_of`` (aggregate uuids) the provider has to be in at least one of the aggregates.
    """

    suffix: str
    use_same_provider: bool
    resources: Mapping[str, int]
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    member_of: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True)
class CandidateRequest:
    """A whole query. ``limit`` is the largest number of candidates, None for all.

    ``nested_aware`` is false below microversion 1.29, where a candidate may not use two different providers of one tree
    (api-ref/candidate-search.md#below-129). ``with_traits`` says whether the answer shows the traits of providers (from
    1.17 on).
    """

    groups: tuple[RequestGroup, ...]
    group_policy: str | None = None
    limit: int | None = None
    nested_aware: bool = True
    with_traits: bool = field(default=True, compare=False)

    @property
    def isolate(self) -> bool:
        """Whether no two numbered groups may use the same provider."""
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
