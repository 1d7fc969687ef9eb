"""How many more instances of each flavor fit, in the whole cloud and by aggregate, and what prevents more."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placement import exception
from placement.cache.snapshot import Snapshot
from placement.ops.planning.fits import FitCount, count_fits, enabled_roots
from placement.ops.reports import capacity_report
from placement.ops.reports.tree_filter import TreeFilter
from placement.search.request import CandidateRequest, NameSetFilter, RequestGroup

#: Maximum number of searches for one count, so that it takes minutes at most.
_SEARCHES = 100_000
_PROPERTY = re.compile(r"""\s*([\w:.\-]+)\s*=\s*'((?:[^'\\]|\\.)*)'\s*(?:,|$)""")
_GROUP = re.compile(r'(resources|trait)([A-Za-z0-9_-]*):(\w+)$')
#: Properties with which the compute service restricts hosts, or requests more than this service can tell from them.
_UNKNOWN = re.compile(
    r'pci_passthrough:alias|accel:device_profile|hw:(numa_nodes|numa_cpus|numa_mem|mem_page_size|pmem|cpu_dedicated_mask)'
)


class BadFlavors(exception.Invalid):
    template = '{path} is not the JSON output of "openstack flavor list --all --long -f json": {reason}'


class UnreadableFlavors(BadFlavors):
    template = 'Cannot read {path}: {reason}.'


@dataclass(frozen=True)
class Flavor:
    """What the compute service requests for an instance of a flavor."""

    name: str
    #: Without the filter of enabled hosts (``enabled_roots``).
    request: CandidateRequest
    #: The properties that restrict more than the request does, so that fewer may fit.
    ignored: tuple[str, ...] = ()

    @property
    def resources(self) -> Mapping[str, int]:
        """The sum of all groups by class."""
        sums = Counter[str]()
        for group in self.request.groups:
            sums.update(group.resources)
        return sums


@dataclass(frozen=True)
class FlavorFit:
    """How many more instances fit if all are of one flavor, and how many more would fit without each obstacle."""

    name: str
    resources: Mapping[str, int]
    ignored_properties: Sequence[str]
    count: FitCount
    #: If no trait were required or forbidden.
    prevented_by_traits: int
    #: If all that is free on enabled hosts were in one place.
    prevented_by_fragmentation: int
    #: What is then left of each requested class on enabled hosts and on sharing providers.
    stranded: Mapping[str, int]
    by_aggregate: Mapping[str, FitCount]


def read_flavors(path: str) -> list[Flavor]:
    """Read a file.

    :raises BadFlavors: it has another form, or cannot be read.
    """
    try:
        with open(path, encoding='utf-8') as file:
            return [parse_flavor(entry) for entry in json.load(file)]
    except OSError as error:
        raise UnreadableFlavors(path=path, reason=error.strerror) from error
    except KeyError as error:
        raise BadFlavors(path=path, reason=f'an entry has no {error.args[0]!r}.') from error
    except (TypeError, AttributeError) as error:
        raise BadFlavors(path=path, reason='it is no list of flavors.') from error
    except ValueError as error:
        raise BadFlavors(path=path, reason=f'{error}.') from error


def parse_flavor(entry: Mapping[str, Any]) -> Flavor:
    """Return the request of one entry of the list, by the rules of the compute service."""
    text = entry.get('Properties') or {}
    # Older clients write the properties as one text.
    properties = dict(_PROPERTY.findall(text)) if isinstance(text, str) else {name: str(text[name]) for name in text}
    is_dedicated = properties.get('hw:cpu_policy') == 'dedicated'
    disk = int(entry['Disk']) + int(entry.get('Ephemeral') or 0) + math.ceil(int(entry.get('Swap') or 0) / 1024)
    resources: defaultdict[str, dict[str, int]] = defaultdict(dict)
    cpus = int(entry['VCPUs']) + (is_dedicated and properties.get('hw:emulator_threads_policy') == 'isolate')
    resources[''] = {'PCPU' if is_dedicated else 'VCPU': cpus, 'MEMORY_MB': int(entry['RAM']), 'DISK_GB': disk}
    if properties.get('hw:mem_encryption', '').lower() == 'true':
        resources['']['MEM_ENCRYPTION_CONTEXT'] = 1
    traits: defaultdict[str, dict[str, str]] = defaultdict(dict)
    threads = {'require': 'required', 'isolate': 'forbidden'}.get(properties.get('hw:cpu_thread_policy', ''))
    if threads:
        traits['']['HW_CPU_HYPERTHREADING'] = threads
    for name, value in properties.items():
        if match := _GROUP.match(name):
            kind, suffix, subject = match.groups()
            if kind == 'resources':
                resources[suffix][subject] = int(value)
            else:
                traits[suffix][subject] = value
    groups = []
    for suffix, amounts in sorted(resources.items()):
        required = sorted(name for name, value in traits[suffix].items() if value == 'required')
        forbidden = frozenset(name for name, value in traits[suffix].items() if value == 'forbidden')
        # An amount of 0 removes a class.
        if positive := {name: amount for name, amount in amounts.items() if amount > 0}:
            groups.append(RequestGroup(suffix, bool(suffix), positive, NameSetFilter.all_of(required, forbidden)))
    request = CandidateRequest(tuple(groups), properties.get('group_policy', 'none'))
    return Flavor(str(entry['Name']), request, tuple(sorted(name for name in properties if _UNKNOWN.match(name))))


def count_flavors(
    snapshot: Snapshot,
    flavors: Sequence[Flavor],
    by_aggregate: bool = False,
    progress: Callable[[list[Flavor]], Iterable[Flavor]] = iter,
) -> list[FlavorFit]:
    """Count for each flavor alone.

    :param by_aggregate: whether to count in each aggregate, too.
    :param progress: yields the flavors.
    """
    aggregates = [row.aggregate for row in capacity_report.heat_map(snapshot).rows] if by_aggregate else []
    enabled = TreeFilter(root_forbidden=enabled_roots(snapshot).forbidden)
    free = {figures.resource_class: figures.free for figures in capacity_report.summary(snapshot, enabled).classes}
    return [_count_flavor(snapshot, flavor, free, aggregates) for flavor in progress(list(flavors))]


def _count_flavor(
    snapshot: Snapshot, flavor: Flavor, all_free: Mapping[str, int], aggregates: Sequence[str]
) -> FlavorFit:
    """Count for one flavor.

    :param all_free: what is free of each class on enabled hosts and sharing providers.
    """
    request = flavor.request
    count = _count(snapshot, request)
    groups = tuple(replace(group, traits=NameSetFilter()) for group in request.groups)
    without_traits = count if groups == request.groups else _count(snapshot, replace(request, groups=groups))
    resources = flavor.resources
    free = {name: all_free.get(name, 0) for name in resources}
    pooled = min([free[name] // amount for name, amount in resources.items()], default=0)
    return FlavorFit(
        flavor.name,
        resources,
        flavor.ignored,
        count,
        max(without_traits.fit - count.fit, 0),
        max(pooled - max(count.fit + count.prevented_by_pools, without_traits.fit), 0),
        {name: free[name] - count.fit * amount for name, amount in resources.items()},
        {uuid: _count(snapshot, request, NameSetFilter.all_of((uuid,))) for uuid in aggregates},
    )


def _count(snapshot: Snapshot, request: CandidateRequest, aggregates: NameSetFilter | None = None) -> FitCount:
    """Count how many fit on enabled hosts.

    :param aggregates: the filter that the compute service adds for an availability zone.
    """
    if not request.groups:
        return FitCount(0, True, 0)
    if aggregates is not None:
        first, *groups = request.groups
        request = replace(request, groups=(replace(first, aggregates=aggregates), *groups))
    try:
        return count_fits(snapshot, replace(request, root_traits=enabled_roots(snapshot)), _SEARCHES)
    except (exception.ResourceClassNotFound, exception.TraitNotFound):
        # No provider has what does not exist.
        return FitCount(0, True, 0)
