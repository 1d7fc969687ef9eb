"""Clouds of a chosen shape and size, as rows in memory. The same arguments always make the same cloud."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable

HOST = {'VCPU': 64, 'MEMORY_MB': 262144}
DISK = {'DISK_GB': 4000}

#: Five racks hold half of the flat hosts, one host in ten each.
RACKS = 5
#: One flat host in thirty has it: the administrator has disabled its compute service.
DISABLED = 'COMPUTE_STATUS_DISABLED'
#: Every host has the first; two of three have the second; one of three has the third.
CPU_TRAITS = ('HW_CPU_X86_SSE42', 'HW_CPU_X86_AVX2', 'HW_CPU_X86_AVX512F')

_HOSTS_PER_SHARED_DISK = 100
_DEVICES = 16


class Cloud:
    """Providers with their inventories, traits and aggregates. Ids count from 1, so that they are known beforehand."""

    def __init__(self, shape: str, size: int) -> None:
        self.shape = shape
        self.size = size
        #: id, uuid, name, parent's id, root's id
        self.providers: list[tuple[int, str, str, int | None, int]] = []
        #: provider's id, resource class, total
        self.inventories: list[tuple[int, str, int]] = []
        #: provider's id, trait
        self.traits: list[tuple[int, str]] = []
        #: uuid of each aggregate; its id is the position, from 1
        self.aggregates: list[str] = []
        #: provider's id, aggregate's id
        self.members: list[tuple[int, int]] = []
        self._random = random.Random(f'{shape} {size}')

    def add(self, name: str, totals: dict[str, int], traits: Iterable[str] = (), parent: int | None = None) -> int:
        """Add a provider and return its id. Parents come before their children."""
        id_ = len(self.providers) + 1
        root = id_ if parent is None else self.providers[parent - 1][4]
        self.providers.append((id_, self._uuid(), name, parent, root))
        self.inventories += [(id_, resource_class, total) for resource_class, total in totals.items()]
        self.traits += [(id_, trait) for trait in traits]
        return id_

    def add_aggregate(self) -> int:
        """Add an aggregate and return its id."""
        self.aggregates.append(self._uuid())
        return len(self.aggregates)

    def uuid_of(self, id_: int) -> str:
        """Return the uuid of a provider."""
        return self.providers[id_ - 1][1]

    def host(self, number: int) -> str:
        """Return the uuid of a flat host; numbers above the last start again at the first."""
        return self.providers[number % self.size][1]

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


def flat(hosts: int) -> Cloud:
    """Hosts without children, with three classes and one to three traits; half of them in one of five racks."""
    cloud = Cloud('flat', hosts)
    racks = [cloud.add_aggregate() for _ in range(RACKS)]
    for number in range(hosts):
        disabled = [DISABLED] if number % 30 == 7 else []
        host = cloud.add(f'host{number}', HOST | DISK, [*CPU_TRAITS[: number % 3 + 1], *disabled])
        if number % 10 >= RACKS:
            cloud.members.append((host, racks[number % 10 - RACKS]))
    return cloud


def nested(hosts: int) -> Cloud:
    """Trees of seven: a host with the disk, two NUMA nodes, and below each a network card and a device of its own."""
    cloud = Cloud('nested', hosts)
    for number in range(hosts):
        host = cloud.add(f'host{number}', DISK, CPU_TRAITS[:2])
        for node in range(2):
            numa = cloud.add(f'host{number}-numa{node}', {'VCPU': 32, 'MEMORY_MB': 131072}, ['HW_NUMA_ROOT'], host)
            cloud.add(f'host{number}-nic{node}', {'SRIOV_NET_VF': 8}, ['HW_NIC_SRIOV'], numa)
            cloud.add(f'host{number}-fpga{node}', {'CUSTOM_FPGA': 2}, ['HW_NIC_ACCEL_SSL'], numa)
    return cloud


def shared(hosts: int) -> Cloud:
    """Hosts without a disk; each hundred of them share a disk through an aggregate."""
    cloud = Cloud('shared', hosts)
    for number in range(hosts):
        if number % _HOSTS_PER_SHARED_DISK == 0:
            aggregate = cloud.add_aggregate()
            disk = cloud.add(f'disk{aggregate}', {'DISK_GB': 1_000_000}, ['MISC_SHARES_VIA_AGGREGATE'])
            cloud.members.append((disk, aggregate))
        cloud.members.append((cloud.add(f'host{number}', HOST, CPU_TRAITS[:2]), aggregate))
    return cloud


def symmetric(trees: int) -> Cloud:
    """Trees of sixteen equal devices."""
    cloud = Cloud('symmetric', trees)
    for number in range(trees):
        host = cloud.add(f'host{number}', {'VCPU': 64})
        for device in range(_DEVICES):
            cloud.add(f'host{number}-nic{device}', {'SRIOV_NET_VF': 8}, parent=host)
    return cloud


#: Every shape by name.
SHAPES: dict[str, Callable[[int], Cloud]] = {'flat': flat, 'nested': nested, 'shared': shared, 'symmetric': symmetric}
