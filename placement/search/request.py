"""A request for candidates: request groups, typed and immutable (api-ref/allocation-candidates.md#request-groups)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class NameFilter:
    """The traits, or the uuids of aggregates, that a provider must have and must not have.

    It must have one name of each set of ``any_of``, which are distinct, and none of ``forbidden``.
    """

    any_of: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()

    @classmethod
    def all_of(cls, required: Iterable[str], forbidden: frozenset[str] = frozenset()) -> NameFilter:
        """Return the filter that requires each name of ``required``."""
        return cls(tuple([frozenset({name}) for name in required]), forbidden)

    @property
    def names(self) -> frozenset[str]:
        """Every name, required or forbidden."""
        return self.forbidden.union(*self.any_of)


@dataclass(frozen=True)
class RequestGroup:
    """The parameters with one suffix."""

    #: Empty for the unsuffixed group.
    suffix: str
    #: One provider has to satisfy all of it: suffixed groups, and the filters of a list of providers.
    use_same_provider: bool
    #: Amounts, 1 or more, by class. If there are none, the provider of the group supplies nothing.
    resources: Mapping[str, int] = field(default_factory=dict)
    #: The names in ``required``.
    traits: NameFilter = NameFilter()
    #: The uuids in ``member_of``.
    aggregates: NameFilter = NameFilter()
    #: The uuid of any provider of the tree that the provider has to be in.
    in_tree: str | None = None


@dataclass(frozen=True)
class CandidateRequest:
    """A whole query."""

    groups: tuple[RequestGroup, ...]
    group_policy: str | None = None
    #: The maximum number of candidates; None for all.
    limit: int | None = None
    #: Whether a candidate may use two different providers of one tree: since 1.29
    #: (api-ref/candidate-search.md#below-129).
    nested_aware: bool = True
    #: Whether candidates are also distinct if they differ only in which provider serves which group: since 1.34.
    with_mappings: bool = False
    #: The names in ``root_required``, for the root of an anchor.
    root_traits: NameFilter = NameFilter()
    #: For each ``same_subtree`` the suffixes of some groups. One of the providers of these groups must be at or above
    #: the providers of all of them.
    same_subtree: tuple[frozenset[str], ...] = ()

    @property
    def isolate(self) -> bool:
        """Whether no two suffixed groups may use the same provider."""
        return self.group_policy == 'isolate'

    @property
    def requested_classes(self) -> tuple[str, ...]:
        """The resource class of each amount in ``resources``, in order. Errors name the first unknown one."""
        return tuple(name for group in self.groups for name in group.resources)

    @property
    def trait_names(self) -> frozenset[str]:
        """Every trait named in any group or for the root, required or forbidden."""
        return self.root_traits.names.union(*[group.traits.names for group in self.groups])
