"""Searches in which several sites share one search, or candidates differ in little: each has its own answer."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from oslo_config import cfg

from tests.support import applications
from tests.support.http_client import create_provider, demand

_SHARING = 'MISC_SHARES_VIA_AGGREGATE'


@pytest.fixture
def conf(tmp_path: pathlib.Path) -> cfg.ConfigOpts:
    """Options of a process that serves all microversions."""
    return applications.options(tmp_path / 'placement.sqlite', placement=applications.EVERY_MICROVERSION)


def sharing(app: Any, aggregate: str, parent: str | None = None, **totals: int) -> str:
    """Create a sharing provider in an aggregate."""
    uuid_ = create_provider(app, **totals)
    path = f'/resource_providers/{uuid_}'
    if parent is not None:
        demand(app, 'PUT', path, {'name': uuid_, 'parent_provider_uuid': parent})
    demand(app, 'PUT', f'{path}/traits', {'traits': [_SHARING], 'resource_provider_generation': 1})
    demand(app, 'PUT', f'{path}/aggregates', {'aggregates': [aggregate], 'resource_provider_generation': 2})
    return uuid_


def host(app: Any, aggregate: str) -> str:
    uuid_ = create_provider(app, VCPU=8)
    body = {'aggregates': [aggregate], 'resource_provider_generation': 1}
    demand(app, 'PUT', f'/resource_providers/{uuid_}/aggregates', body)
    return uuid_


def mappings(app: Any, query: str) -> list[Mapping[str, Sequence[str]]]:
    candidates = demand(app, 'GET', f'/allocation_candidates?{query}', version='1.36').json['allocation_requests']
    return [candidate['mappings'] for candidate in candidates]


@pytest.mark.parametrize('related_first', [True, False])
def test_whether_sharing_providers_are_one_below_the_other(app: Any, related_first: bool) -> None:
    """Two hosts are reached by sharing providers of equal inventories, which are in one tree only at one of them."""
    hosts = {}
    for related in (related_first, not related_first):
        aggregate = str(uuid.uuid4())
        hosts[related] = host(app, aggregate)
        disk = sharing(app, aggregate, DISK_GB=100)
        port = sharing(app, aggregate, disk if related else None, SRIOV_NET_VF=4)
        if related:
            expected = {'': [hosts[related]], '_DISK': [disk], '_PORT': [port]}
    groups = 'resources=VCPU:1&resources_DISK=DISK_GB:1&resources_PORT=SRIOV_NET_VF:1&group_policy=none'
    assert {mapping[''][0] for mapping in mappings(app, groups)} == set(hosts.values())
    assert mappings(app, f'{groups}&same_subtree=_DISK,_PORT') == [expected]


def test_exchanged_sharing_providers(app: Any) -> None:
    """Candidates of sharing providers alone that differ only in which provider serves which group."""
    aggregate = str(uuid.uuid4())
    first, other = sharing(app, aggregate, DISK_GB=100), sharing(app, aggregate, DISK_GB=100)
    host(app, aggregate)
    query = 'resources_A=DISK_GB:5&resources_B=DISK_GB:5&group_policy=isolate'
    assert sorted((mapping['_A'], mapping['_B']) for mapping in mappings(app, query)) == sorted(
        [([first], [other]), ([other], [first])]
    )
