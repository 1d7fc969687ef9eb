"""Real clients drive a running placement-api: the ``openstack`` command with osc-placement, and openstacksdk."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import openstack
import pytest
from keystoneauth1 import session, token_endpoint

from tests.support import servers
from tests.support.applications import NEWEST_MICROVERSION


@pytest.fixture(scope='module')
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service on an empty SQLite database, with every microversion, for all tests of this module."""
    home = tmp_path_factory.mktemp('clients')
    with servers.serving(f'sqlite:///{home}/placement.sqlite', home, metrics=False) as server:
        yield server.url


class Shell:
    """The ``openstack`` command on one service, with the output as data."""

    def __init__(self, url: str) -> None:
        self.environ = servers.clean_environ(
            PYTHONWARNINGS='ignore',
            OS_AUTH_TYPE='admin_token',
            OS_ENDPOINT=url,
            OS_TOKEN='admin',
            OS_PLACEMENT_API_VERSION=NEWEST_MICROVERSION,
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``openstack <words>``; return the ended process, whatever its exit code."""
        return self._process(str(servers.BIN / 'openstack'), *words)

    def _process(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env=self.environ,
        )

    def each(self, *commands: str) -> list[Any]:
        """Run commands that must succeed in one process, since its start takes longer than any of them.

        Returns what they printed as JSON, in order; nothing for a command that prints nothing.
        """
        # Not "openstack" that reads them: that fails with some versions of cmd2, as those of OpenStack 2026.2.
        script = (
            'import shlex, sys; from openstackclient.shell import main; [main(shlex.split(c)) for c in sys.argv[1:]]'
        )
        ended = self._process(sys.executable, '-c', script, *commands)
        # A command that fails says so.
        assert (ended.returncode, ended.stderr) == (0, ''), commands
        printed, rest = [], ended.stdout.strip()
        while rest:
            document, end = json.JSONDecoder().raw_decode(rest)
            printed.append(document)
            rest = rest[end:].lstrip()
        return printed


def test_openstack_command(url: str) -> None:
    """A tree, searches, and a consumer with a type; a provider that is moved, and the whole reason of a rejection."""
    shell = Shell(url)
    host, other, child, consumer, aggregate = (str(uuid.uuid4()) for _ in range(5))
    alone = shell.run('resource', 'provider', 'create', 'old-host', '--uuid', host, '-f', 'json')
    assert alone.returncode == 0, alone.stderr
    created = json.loads(alone.stdout)
    assert (created['uuid'], created['generation'], created['parent_provider_uuid']) == (host, 0, None)

    inventory = '--resource VCPU=8 --resource MEMORY_MB=4096 --resource MEMORY_MB:reserved=512'
    either, neither = 'CUSTOM_CLI,HW_CPU_X86_VMX', 'HW_CPU_X86_VMX,HW_CPU_X86_SGX'
    search = f'--resource VCPU=2 --resource MEMORY_MB=1024 --required CUSTOM_CLI --member-of {aggregate}'
    claim = f'--allocation rp={child},VCPU=2,MEMORY_MB=1024 --project-id p --user-id u --consumer-type INSTANCE'
    _, _, inventories, traits, shown, aggregates, *listed, (allocation,), usages, moved = shell.each(
        f'resource provider create new-host --uuid {other} -f json',
        f'resource provider create child --uuid {child} --parent-provider {host} -f json',
        f'resource provider inventory set {child} {inventory} -f json',
        'trait create CUSTOM_CLI',
        f'resource provider trait set {child} --trait CUSTOM_CLI -f json',
        f'resource provider show {child} -f json',
        f'resource provider aggregate set {child} --aggregate {aggregate} --generation 2 -f json',
        f'resource provider list --required {either} -f json',
        f'resource provider list --required {neither} -f json',
        f'allocation candidate list {search} --required {either} -f json',
        f'allocation candidate list {search} --required {neither} -f json',
        f'resource provider allocation set {consumer} {claim} -f json',
        f'resource provider usage show {child} -f json',
        f'resource provider set {child} --name child --parent-provider {other} -f json',
    )
    assert {row['resource_class']: (row['total'], row['reserved']) for row in inventories} == {
        'VCPU': (8, 0),
        'MEMORY_MB': (4096, 512),
    }
    assert traits == [{'name': 'CUSTOM_CLI'}]
    assert shown['generation'] == 2
    assert aggregates == [{'uuid': aggregate}]
    providers_listed = [[row.get('uuid') or row['resource provider'] for row in rows] for rows in listed]
    assert providers_listed == [[child], [], [child], []]
    assert allocation['resource_provider'] == child
    assert (allocation['consumer_type'], allocation['resources']) == ('INSTANCE', {'VCPU': 2, 'MEMORY_MB': 1024})
    assert {row['resource_class']: row['usage'] for row in usages} == {'VCPU': 2, 'MEMORY_MB': 1024}
    assert (moved['parent_provider_uuid'], moved['root_provider_uuid']) == (other, other)

    rejected = shell.run('resource', 'provider', 'inventory', 'delete', child)
    assert rejected.returncode != 0
    assert re.match(f"Inventory for '.*' on resource provider '{child}' in use", rejected.stderr)

    (providers,) = shell.each(
        f'resource provider allocation delete {consumer}',
        f'resource provider delete {child}',
        'trait delete CUSTOM_CLI',
        'resource provider list --name child -f json',
    )
    assert providers == []


@pytest.fixture
def cloud(url: str) -> Iterator[openstack.connection.Connection]:
    """An openstacksdk connection that speaks microversion 1.29 to the service."""
    connection = openstack.connection.Connection(
        session=session.Session(token_endpoint.Token(url, 'admin')),
        placement_endpoint_override=url,
        placement_default_microversion='1.29',
    )
    yield connection
    connection.close()


# The library gives deprecation warnings about its own calls.
@pytest.mark.filterwarnings('ignore::PendingDeprecationWarning:openstack')
def test_openstacksdk(cloud: openstack.connection.Connection) -> None:
    placement: Any = cloud.placement
    host, consumer, aggregate = (str(uuid.uuid4()) for _ in range(3))

    provider = placement.create_resource_provider(name='sdk-host', id=host)
    assert (provider.id, provider.generation, provider.root_provider_id) == (host, 0, host)

    placement.create_resource_class(name='CUSTOM_SDK')
    for name, total in (('VCPU', 8), ('CUSTOM_SDK', 3)):
        placement.create_resource_provider_inventory(host, name, total=total)
    totals = {item.resource_class: item.total for item in placement.resource_provider_inventories(host)}
    assert totals == {'VCPU': 8, 'CUSTOM_SDK': 3}

    placement.create_trait('CUSTOM_SDK_TRAIT')
    if not hasattr(placement, 'allocation_candidates'):
        pytest.skip('until openstacksdk 4.21 is the oldest supported: earlier ones have no more than this')
    current = placement.get_resource_provider_trait(host)
    placement.set_resource_provider_trait(current, traits=['CUSTOM_SDK_TRAIT'])
    assert placement.get_resource_provider_trait(host).traits == ['CUSTOM_SDK_TRAIT']

    placement.set_resource_provider_aggregates(placement.get_resource_provider(host), aggregate)
    assert placement.fetch_resource_provider_aggregates(host).aggregates == [aggregate]

    (candidate,) = placement.allocation_candidates(resources='VCPU:2,CUSTOM_SDK:1', required='CUSTOM_SDK_TRAIT')
    assert candidate.allocations == {host: {'resources': {'VCPU': 2, 'CUSTOM_SDK': 1}}}

    owner = {'project_id': 'sdk-project', 'user_id': 'sdk-user'}
    placement.create_allocations(
        {consumer: {'allocations': candidate.allocations, 'consumer_generation': None, **owner}}
    )
    allocation = placement.get_allocation(consumer)
    assert (allocation.project_id, allocation.consumer_generation) == ('sdk-project', 1)
    assert allocation.allocations[host]['resources'] == {'VCPU': 2, 'CUSTOM_SDK': 1}
    assert placement.fetch_resource_provider_usages(host).usages == {'VCPU': 2, 'CUSTOM_SDK': 1}

    too_much = {'allocations': {host: {'resources': {'VCPU': 9}}}, 'consumer_generation': 1, **owner}
    with pytest.raises(openstack.exceptions.ConflictException) as rejected:
        placement.create_allocations({consumer: too_much})
    assert rejected.value.response is not None
    assert 'would exceed the capacity' in rejected.value.response.text

    placement.delete_allocation(consumer, ignore_missing=False)
    placement.delete_resource_provider(host, ignore_missing=False)
    placement.delete_resource_class('CUSTOM_SDK', ignore_missing=False)
    placement.delete_trait('CUSTOM_SDK_TRAIT', ignore_missing=False)
    assert [item for item in placement.resource_providers() if item.id == host] == []
