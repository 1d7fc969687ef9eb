"""A request for candidates: request groups, typed and immutable (api-ref/allocation-candidates.md#request-groups)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RequestGroup:
    """The ``resources``, ``required``, ``member_of`` and ``in_tree`` parameters of one suffix.

    ``suffix`` is empty for the unsuffixed group. ``use_same_provider`` is true for suffixed groups and for the filters
    of a list of providers: one provider has to satisfy them. ``resources`` maps class name to amount (1 or more). If it
    is empty, the provider of the group supplies nothing. ``required`` and ``forbidden`` are trait names. Each set of
    ``required_any`` requires one of its traits. Each set of ``member_of`` (aggregate uuids) requires the provider to be
    in one of its aggregates. The provider must be in none of the ``forbidden_aggregates``. ``in_tree`` is the uuid of
    any provider of the tree that the provider has to be in.
    """

    suffix: str
    use_same_provider: bool
    resources: Mapping[str, int]
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    member_of: tuple[frozenset[str], ...] = ()
    required_any: frozenset[frozenset[str]] = frozenset()
    forbidden_aggregates: frozenset[str] = frozenset()
    in_tree: str | None = None

    @property
    def required_sets(self) -> list[frozenset[str]]:
        """The required traits, as distinct sets. One trait of each set suffices. Sets of one trait come first."""
        sets = self.required_any.union(frozenset({name}) for name in self.required)
        return sorted(sets, key=lambda any_of: (len(any_of) > 1, sorted(any_of)))

    @property
    def traits(self) -> frozenset[str]:
        """Every trait that the group names."""
        return self.required.union(self.forbidden, *self.required_any)


@dataclass(frozen=True)
class CandidateRequest:
    """A whole query. ``limit`` is the maximum number of candidates; None for all.

    ``nested_aware`` is false below microversion 1.29: then a candidate may not use two different providers of one tree
    (api-ref/candidate-search.md#below-129). With ``with_mappings`` (from 1.34 on) candidates are also distinct if they
    differ only in which provider serves which group.

    The root of an anchor must have all traits of ``root_required`` and none of ``root_forbidden``. Each item of
    ``same_subtree`` has the suffixes of some groups. One of the providers of these groups must be at or above the
    providers of all of them.
    """

    groups: tuple[RequestGroup, ...]
    group_policy: str | None = None
    limit: int | None = None
    nested_aware: bool = True
    with_mappings: bool = False
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtree: tuple[frozenset[str], ...] = ()

    @property
    def isolate(self) -> bool:
        """Whether no two suffixed groups may use the same provider."""
        return self.group_policy == 'isolate'

    @property
    def classes(self) -> frozenset[str]:
        """Every resource class named in any group."""
        return frozenset(name for group in self.groups for name in group.resources)

    @property
    def traits(self) -> frozenset[str]:
        """Every trait named in any group or for the root, required or forbidden."""
        return self.root_required.union(self.root_forbidden, *(group.traits for group in self.groups))
