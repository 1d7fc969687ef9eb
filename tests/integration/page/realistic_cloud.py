"""A cloud of 4,600 providers in 49 aggregates, with the names, trees and troubles of real ones."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping
from typing import Any

from tests.support.clouds import CREATED, Amounts, Cloud, Owner, Provider, uuid_of

DOMAIN = 'eu-central-1.cloud.example.org'
#: Some of the hosts, by what is special about them.
OVER_COMMITTED = f'compute-0005.az3.{DOMAIN}'
NUMA_HOST = f'numa-004.hpc.{DOMAIN}'
LONG_NAME = f'{NUMA_HOST}_NUMA0_pf_enp59s0f0'
#: An instance on ``NUMA_HOST``, and the project of some hundred instances.
NUMA_INSTANCE = 'numa-instance-004-0'
PROJECT = uuid_of('project-0').replace('-', '')
AVAILABILITY_ZONE = 'az1'

_FLAT, _NUMA, _GPU, _BARE_METAL, _AGENTS, _SUBNETS, _RACKS = 2444, 160, 48, 400, 96, 11, 40
_CPU_FLAGS = ('MMX', 'SSE', 'SSE2', 'SSE41', 'SSE42', 'SSSE3', 'AVX', 'AVX2', 'FMA3', 'BMI', 'BMI2', 'AESNI', 'VMX')
_TRAITS = (
    *(f'HW_CPU_X86_{flag}' for flag in _CPU_FLAGS),
    'COMPUTE_NODE',
    'COMPUTE_VOLUME_EXTEND',
    'COMPUTE_NET_ATTACH_INTERFACE',
    'COMPUTE_TRUSTED_CERTS',
    'COMPUTE_IMAGE_TYPE_QCOW2',
)
_FLAVORS: tuple[tuple[int, Amounts], ...] = (
    (60, {'VCPU': 4, 'MEMORY_MB': 8192, 'DISK_GB': 40}),
    (25, {'VCPU': 8, 'MEMORY_MB': 32768, 'DISK_GB': 80}),
    (15, {'VCPU': 32, 'MEMORY_MB': 131072, 'DISK_GB': 200}),
)
_MEMORY, _BANDWIDTH = 393216, 25_000_000
_BANDWIDTH_CLASSES = ('NET_BW_EGR_KILOBIT_PER_SEC', 'NET_BW_IGR_KILOBIT_PER_SEC')

Inventories = dict[str, dict[str, Any]]


def realistic() -> Cloud:
    """Make the cloud: flat hosts, hosts with NUMA nodes and network cards, hosts with GPUs, bare metal, subnets."""
    cloud = Cloud()
    rng = random.Random(23)
    for number in range(_FLAT):
        _add_flat_host(cloud, number, rng)
    for number in range(_NUMA):
        _add_numa_host(cloud, number)
    for number in range(_GPU):
        _add_gpu_host(cloud, number)
    for number in range(_BARE_METAL):
        _add_bare_metal(cloud, number)
    sharing = ('MISC_SHARES_VIA_AGGREGATE',)
    ceph = {'DISK_GB': {'total': 2_000_000, 'reserved': 100_000}}
    cloud.providers.append(Provider('ceph-ssd.az3', ceph, (*sharing, 'STORAGE_DISK_SSD'), ('ceph', 'az3')))
    for number in range(_SUBNETS):
        inventories = {'IPV4_ADDRESS': {'total': 4094, 'reserved': 2}}
        cloud.providers.append(
            Provider(f'Neutron segment id {uuid_of(f"segment-{number}")}', inventories, (), ('subnets',))
        )
    consumers = list(cloud.allocations.items())
    rng.shuffle(consumers)
    cloud.allocations = dict(consumers)
    assert len(cloud.providers) == 4600
    return cloud


def _own(cloud: Cloud, consumer: str, number: int, consumer_type: str | None = 'INSTANCE') -> None:
    project, user = (uuid_of(f'{kind}-{number % 37}').replace('-', '') for kind in ('project', 'user'))
    cloud.owners[consumer] = Owner(project, user, consumer_type)


def _add_flat_host(cloud: Cloud, number: int, rng: random.Random) -> None:
    """Add a compute host; some are over-committed, some reserved whole, disabled, full or empty."""
    zone = f'az{number % 3 + 1}'
    name = f'compute-{number:04}.{zone}.{DOMAIN}'
    inventories: Inventories = {
        'VCPU': {'total': 96, 'allocation_ratio': 4.0},
        'MEMORY_MB': {'total': _MEMORY, 'reserved': 8192},
    }
    if zone != 'az3':
        inventories['DISK_GB'] = {'total': 7200, 'reserved': 100}
    traits = _TRAITS
    instances = int((number % _RACKS) / _RACKS * 18) + rng.randrange(3)
    if number % 271 == 5:
        # The ratio was lowered when the instances were there.
        changed = CREATED + dt.timedelta(days=29, hours=21)
        inventories['VCPU'] |= {'allocation_ratio': 0.5, 'updated_at': changed}
        instances = 16
    elif number % 349 == 7:
        inventories, traits, instances = _reserved_whole(inventories), (*_TRAITS, 'COMPUTE_STATUS_DISABLED'), 0
    cloud.providers.append(Provider(name, inventories, traits, (f'rack-{number % _RACKS:02}', zone)))
    if number < _AGENTS:
        _add_agent(cloud, name)
    free = {'MEMORY_MB': _MEMORY - 8192, 'DISK_GB': 7100, 'VCPU': 384}
    for index in range(instances):
        flavor = rng.choices([amounts for _, amounts in _FLAVORS], [weight for weight, _ in _FLAVORS])[0]
        if any(free[class_] < amount for class_, amount in flavor.items()):
            break
        free = {class_: amount - flavor[class_] for class_, amount in free.items()}
        _add_instance(cloud, f'instance-{number:04}-{index}', number * 7 + index, name, flavor)


def _add_instance(cloud: Cloud, consumer: str, number: int, host: str, flavor: Amounts) -> None:
    local = {class_: amount for class_, amount in flavor.items() if class_ != 'DISK_GB' or '.az3.' not in host}
    cloud.allocations[consumer] = {host: local}
    if '.az3.' in host:
        cloud.allocations[consumer]['ceph-ssd.az3'] = {'DISK_GB': flavor['DISK_GB']}
    _own(cloud, consumer, number, 'MIGRATION' if number % 97 == 0 else 'INSTANCE')


def _reserved_whole(inventories: Mapping[str, Mapping[str, Any]]) -> Inventories:
    return {class_: {**inventory, 'reserved': inventory['total']} for class_, inventory in inventories.items()}


def _add_agent(cloud: Cloud, host: str) -> None:
    agent = f'{host}:Open vSwitch agent'
    cloud.providers.append(Provider(agent, {}, ('CUSTOM_VNIC_TYPE_NORMAL',), parent=host))
    inventories = {name: {'total': _BANDWIDTH} for name in _BANDWIDTH_CLASSES}
    cloud.providers.append(Provider(f'{agent}:br-physnet1', inventories, ('CUSTOM_PHYSNET_PHYSNET1',), parent=agent))


def _add_numa_host(cloud: Cloud, number: int) -> None:
    host = f'numa-{number:03}.hpc.{DOMAIN}'
    traits = (*_TRAITS, 'CUSTOM_HPC') + (('COMPUTE_STATUS_DISABLED',) if number % 40 == 4 else ())
    cloud.providers.append(
        Provider(host, {'DISK_GB': {'total': 3600, 'reserved': 100}}, traits, ('hpc', f'rack-{number % 4 + 4:02}'))
    )
    for node in range(2):
        numa = f'{host}_NUMA{node}'
        inventories: Inventories = {
            'PCPU': {'total': 48, 'max_unit': 48, 'step_size': 2},
            'VCPU': {'total': 16, 'allocation_ratio': 4.0, 'max_unit': 16},
            'MEMORY_MB': {'total': 524288, 'reserved': 4096, 'max_unit': 524288, 'min_unit': 1024, 'step_size': 1024},
        }
        cloud.providers.append(Provider(numa, inventories, ('HW_NUMA_ROOT', 'CUSTOM_HPC'), (), host))
        for port in range(2):
            card = f'{numa}_pf_enp{59 + node * 64}s0f{port}'
            vfs = {'SRIOV_NET_VF': {'total': 16}, **{name: {'total': _BANDWIDTH} for name in _BANDWIDTH_CLASSES}}
            physnet = f'CUSTOM_PHYSNET_PHYSNET{port + 1}'
            cloud.providers.append(Provider(card, vfs, (physnet, 'CUSTOM_VNIC_TYPE_DIRECT'), (), numa))
        for index in range(number % 5 + 1 if node == 0 else number % 3):
            consumer = f'numa-instance-{number:03}-{index + node * 10}'
            bandwidth = dict.fromkeys(_BANDWIDTH_CLASSES, 2_500_000)
            cloud.allocations[consumer] = {
                host: {'DISK_GB': 100},
                numa: {'PCPU': 8, 'MEMORY_MB': 65536},
                f'{numa}_pf_enp{59 + node * 64}s0f0': {'SRIOV_NET_VF': 3, **bandwidth},
            }
            _own(cloud, consumer, number)


def _add_gpu_host(cloud: Cloud, number: int) -> None:
    host = f'gpu-{number:02}.ai.{DOMAIN}'
    inventories = {
        'VCPU': {'total': 128},
        'MEMORY_MB': {'total': 2 * 1024 * 1024, 'reserved': 16384},
        'DISK_GB': {'total': 14000},
    }
    cloud.providers.append(Provider(host, inventories, (*_TRAITS, 'CUSTOM_GPU_H100'), ('gpu', 'rack-39')))
    for device in range(8):
        card = f'{host}_0000:{device * 17 + 16:02x}:00.0'
        cloud.providers.append(Provider(card, {'CUSTOM_PCI_10DE_2330': {'total': 1}}, (), (), host))
        if device < number % 9:
            consumer = f'gpu-instance-{number:02}-{device}'
            amounts = {'VCPU': 16, 'MEMORY_MB': 196608, 'DISK_GB': 1000}
            cloud.allocations[consumer] = {host: amounts, card: {'CUSTOM_PCI_10DE_2330': 1}}
            _own(cloud, consumer, 5 + number)


def _add_bare_metal(cloud: Cloud, number: int) -> None:
    """Add a node of ironic, whose name is its uuid. It has one unit, which is allocated, reserved or free."""
    size = 'GOLD' if number % 4 else 'SILVER'
    name, resource_class = uuid_of(f'node-{number}'), f'CUSTOM_BAREMETAL_{size}'
    reserved = 1 if number % 21 == 20 else 0
    inventories = {resource_class: {'total': 1, 'reserved': reserved, 'max_unit': 1}}
    cloud.providers.append(Provider(name, inventories, (f'CUSTOM_CLASS_{size}',), ('bare-metal', 'bare-metal-row-1')))
    if number % 3 and not reserved:
        cloud.allocations[f'bare-metal-instance-{number}'] = {name: {resource_class: 1}}
        _own(cloud, f'bare-metal-instance-{number}', number)
