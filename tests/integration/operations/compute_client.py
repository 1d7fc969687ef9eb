"""What the compute service asks of placement, made with its own report client. Runs in an environment that has nova.

Arguments: the configuration file of nova, and ``walk`` or ``check``. Prints JSON. A walk has the result of
each step of a compute node or a scheduler: it creates a tree, claims for an instance, moves inventory in use to new
NUMA cells, asks for ports with a guaranteed bandwidth, and moves the instance to another host.
"""

from __future__ import annotations

import copy
import json
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from nova import conf, context, objects
from nova.cmd import status
from nova.objects import request_spec
from nova.scheduler import utils
from nova.scheduler.client import report

OWNER = {'project_id': str(uuid.uuid4()), 'user_id': str(uuid.uuid4())}
FLAVOR = {'vcpus': 2, 'memory_mb': 512, 'root_gb': 10}
INVENTORY = {'min_unit': 1, 'step_size': 1, 'allocation_ratio': 1.0, 'reserved': 0}


def records(**totals: int) -> dict[str, Any]:
    """Inventory records by class."""
    return {name: {**INVENTORY, 'total': total, 'max_unit': total} for name, total in totals.items()}


def port(suffix: str, resources: dict[str, int], required: Sequence[str] = ()) -> Any:
    """A request group, as the network service makes it for a port."""
    return request_spec.RequestGroup(
        requester_id=suffix, use_same_provider=True, resources=resources, required_traits=set(required)
    )


def resource_request(*ports: Any, in_tree: str | None = None, policy: str | None = None, **levels: Any) -> Any:
    """The query of a scheduler for an instance with ``ports``; ``levels`` are the parameters of the whole request."""
    spec = objects.RequestSpec(
        flavor=objects.Flavor(**FLAVOR, ephemeral_gb=0, swap=0, extra_specs={'group_policy': policy} if policy else {}),
        image=objects.ImageMeta(properties=objects.ImageMetaProps()),
        requested_resources=list(ports),
        request_level_params=request_spec.RequestLevelParams(**levels),
    )
    request = utils.ResourceRequest.from_request_spec(spec, enable_pinning_translate=False)
    if in_tree:
        request.get_request_group(None).in_tree = in_tree
    return request


class Walk:
    """The steps, in their order; ``done`` has the result of each."""

    def __init__(self) -> None:
        self.client = report.SchedulerReportClient()
        self.client.clear_provider_cache(init=True)
        self.context = context.get_admin_context()
        self.names: dict[str, str] = {}
        self.done: dict[str, Any] = {}

    def tree(self, name: str, identity: str) -> Any:
        """The tree of a host, with its root made if it is missing."""
        self.names[identity] = name
        return self.client.get_provider_tree_and_ensure_root(self.context, identity, name=name)

    def child(self, tree: Any, name: str, parent: str) -> str:
        """A new child of a provider of a tree; its uuid."""
        identity = str(uuid.uuid4())
        self.names[identity] = name
        tree.new_child(name, parent, uuid=identity)
        return identity

    def candidates(self, request: Any) -> list[Any]:
        """The candidates for a request, as the scheduler asks for them."""
        candidates, _summaries, version = self.client.get_allocation_candidates(self.context, request)
        self.done.setdefault('microversion', version)
        return list(candidates)

    def claim(self, consumer: str, candidate: Any) -> bool:
        """Claim a candidate, as the scheduler does."""
        version = self.done['microversion']
        return bool(
            self.client.claim_resources(self.context, consumer, candidate, **OWNER, allocation_request_version=version)
        )

    def allocations(self, consumer: str) -> dict[str, Any]:
        """What a consumer holds, by the name of the provider."""
        allocations = self.client.get_allocs_for_consumer(self.context, consumer)['allocations']
        return {self.names[provider]: part['resources'] for provider, part in sorted(allocations.items())}


def walk() -> dict[str, Any]:
    """Make all steps; returns the results."""
    steps = Walk()
    hosts = [str(uuid.uuid4()) for _ in range(2)]
    for number, host in enumerate(hosts):
        tree = steps.tree(f'compute{number}', host)
        tree.update_inventory(host, records(VCPU=16, MEMORY_MB=4096, DISK_GB=100))
        tree.update_traits(host, ['COMPUTE_NODE', 'HW_CPU_X86_VMX'])
        steps.client.update_from_provider_tree(steps.context, tree)

    instance = str(uuid.uuid4())
    levels: dict[str, Any] = {'root_required': {'COMPUTE_NODE'}, 'root_forbidden': {'COMPUTE_STATUS_DISABLED'}}
    steps.done['hosts'] = len(steps.candidates(resource_request(**levels)))
    one_host = resource_request(in_tree=hosts[0], **levels)
    (first,) = steps.candidates(one_host)
    steps.done['claimed'] = steps.claim(instance, first)
    steps.done['held'] = steps.allocations(instance)

    # The host reports its processors and memory on NUMA cells from now on: a reshape, for the instance holds some.
    # It does so at its start, so it has nothing in its cache.
    steps.client.clear_provider_cache()
    tree = steps.tree('compute0', hosts[0])
    allocations = steps.client.get_allocations_for_provider_tree(steps.context, 'compute0')
    cells = [steps.child(tree, f'cell{number}', hosts[0]) for number in range(2)]
    for cell in cells:
        tree.update_inventory(cell, records(VCPU=8, MEMORY_MB=2048))
        tree.update_traits(cell, ['HW_NUMA_ROOT'])
    tree.update_inventory(hosts[0], records(DISK_GB=100))
    moved = copy.deepcopy(allocations)
    resources = moved[instance]['allocations'][hosts[0]]['resources']
    cell_part = {name: resources.pop(name) for name in ('VCPU', 'MEMORY_MB')}
    moved[instance]['allocations'][cells[0]] = {'resources': cell_part}
    steps.client.update_from_provider_tree(steps.context, tree, allocations=moved)
    steps.done['reshaped'] = steps.allocations(instance)

    # A port that guarantees packets, of the agent below the host, and bandwidth, of one of the devices of that agent.
    tree = steps.tree('compute0', hosts[0])
    agent = steps.child(tree, 'agent', hosts[0])
    tree.update_inventory(agent, records(NET_PACKET_RATE_KILOPACKET_PER_SEC=1000))
    for network in ('RED', 'BLUE'):
        device = steps.child(tree, f'device-{network.lower()}', agent)
        tree.update_inventory(device, records(NET_BW_EGR_KILOBIT_PER_SEC=1000, NET_BW_IGR_KILOBIT_PER_SEC=1000))
        tree.update_traits(device, [f'CUSTOM_PHYSNET_{network}'])
    steps.client.update_from_provider_tree(steps.context, tree)
    ports = [
        port('_bw', {'NET_BW_EGR_KILOBIT_PER_SEC': 100}, ['CUSTOM_PHYSNET_RED']),
        port('_pps', {'NET_PACKET_RATE_KILOPACKET_PER_SEC': 10}),
    ]
    subtree = [['_bw', '_pps']]
    candidates = steps.candidates(resource_request(*ports, in_tree=hosts[0], policy='none', same_subtree=subtree))
    steps.done['ways'] = len(candidates)
    consumer = str(uuid.uuid4())
    # With processors and memory of the second cell.
    chosen = max(candidates, key=lambda candidate: sorted(map(steps.names.__getitem__, candidate['allocations'])))
    steps.done['port claimed'] = steps.claim(consumer, chosen)
    steps.done['port held'] = steps.allocations(consumer)

    # The instance moves: its allocations go to the migration, and it claims on the other host.
    migration = str(uuid.uuid4())
    steps.done['moved'] = steps.client.move_allocations(steps.context, instance, migration)
    steps.done['migration'] = steps.allocations(migration)
    target = steps.candidates(resource_request(in_tree=hosts[1]))
    steps.done['claimed again'] = steps.claim(instance, target[0])
    steps.done['held again'] = steps.allocations(instance)
    steps.done['released'] = steps.client.delete_allocation_for_instance(steps.context, migration, force=True)
    steps.done['migration in the end'] = steps.allocations(migration)
    return steps.done


def check() -> str:
    """The verdict of ``nova-status upgrade check`` about placement."""
    return str(status.UpgradeCommands()._check_placement().code.name.title())


if __name__ == '__main__':
    conf.CONF([], project='nova', default_config_files=[sys.argv[1]])
    objects.register_all()
    print(json.dumps({'walk': walk, 'check': check}[sys.argv[2]]()))
