"""Counts how often a plan misses a placement that exists: ``python -m bench.plan_quality --help``.

Small clouds are decided by trying all ways. Large ones are feasible by construction: what is drained is first placed on
the other hosts, and each of these then has that room and a slack, of every class. The same arguments give the same
clouds, and so the same figures on every machine.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Iterator

from placement.ops.planning import drain, loads
from placement.ops.planning.drain import Verdict
from placement.ops.planning.eligibility import Eligibility
from placement.ops.planning.failures import check_failures
from placement.ops.planning.hosts import read_state
from placement.ops.planning.loads import PlanOptions
from placement.ops.planning.nested import TreeSolver
from placement.ops.planning.packing import POLICIES, Fit, attempts
from tests.support.clouds import Cloud, Provider
from tests.support.small_clouds import KINDS, Model, hosts_of, random_cloud, stored

#: VCPU, memory and disk of consumers. Of sizes in one proportion, each class is as full as the others.
_PROPORTIONAL = ((1, 4096, 20), (2, 8192, 40), (4, 16384, 80), (8, 32768, 160))
_MIXED = (*_PROPORTIONAL, (1, 2048, 20), (2, 16384, 40), (4, 32768, 20), (8, 8192, 160))
_SIZES = {'proportional': _PROPORTIONAL, 'mixed': _MIXED, 'distinct': _PROPORTIONAL}
#: A host of a large cloud: what it has, what stays on it, how many consumers it has if it is drained, and on how many
#: others of each drained host these fit at most.
_HOST = {'VCPU': 128, 'MEMORY_MB': 524288, 'DISK_GB': 8000}
_RESIDENT = {'VCPU': 60, 'MEMORY_MB': 200000, 'DISK_GB': 2000}
_CONSUMERS_PER_HOST, _MOST_TARGETS = 18, 8


def main() -> None:
    """Count, and print the rates."""
    parser = argparse.ArgumentParser('python -m bench.plan_quality', description=__doc__)
    parser.add_argument('--small', type=int, default=1000, metavar='N', help='small clouds of each kind')
    parser.add_argument('--large', type=int, default=50, metavar='N', help='large clouds of each kind')
    parser.add_argument('--hosts', type=int, default=400, help='hosts of a large cloud')
    parser.add_argument('--slack', type=float, default=0.1, help='which part of the room on the others stays free')
    arguments = parser.parse_args()
    for kind in KINDS:
        missed, feasible = Counter[str](), Counter[str]()
        for seed in range(arguments.small):
            _count_small(kind, seed, missed, feasible)
        for question in sorted(feasible):
            _print(f'small {kind}, {question}', missed[question], feasible[question])
    for sizes in _SIZES:
        for drained in (1, arguments.hosts // 10):
            missed = Counter()
            for seed in range(arguments.large):
                missed.update(_missed(_large_cloud(arguments.hosts, drained, arguments.slack, seed, sizes), drained))
            name = f'{drained} of {arguments.hosts} hosts, {sizes} sizes'
            for way in ('plan', *(f'only {fit.name.lower()} fit' for fit in POLICIES)):
                _print(f'{name}, {way}', missed[way], arguments.large)


def _print(name: str, missed: int, feasible: int) -> None:
    share = f'{missed / feasible:.2%}' if feasible else '-'
    print(f'{name:55} {missed:5} of {feasible:5} feasible not placed: {share}', flush=True)


def _count_small(kind: str, seed: int, missed: Counter[str], feasible: Counter[str]) -> None:
    cloud = random_cloud(kind, seed)
    model, hosts = Model(cloud), hosts_of(cloud)
    choice = random.Random(seed)
    drained = set(choice.sample(hosts, choice.choice([1, 1, 2][: len(hosts)])))
    with stored(cloud) as db:
        plan = drain.plan_drain(db, sorted(drained), None, PlanOptions())
        report = check_failures(db, PlanOptions())
    unproved = {host.host.name for host in report.not_evacuable_hosts if host.verdict is Verdict.NOT_FOUND}
    if model.fits(model.loads(cloud, drained), drained):
        feasible['drain'] += 1
        missed['drain'] += plan.verdict is not Verdict.FITS
    for host in hosts:
        if (load := model.loads(cloud, {host})) and model.fits(load, {host}):
            feasible['failure'] += 1
            missed['failure'] += host in unproved


def _large_cloud(hosts: int, drained: int, slack: float, seed: int, sizes: str) -> Cloud:
    """Make a cloud in which all that is on the hosts ``from-*`` fits on some of the hosts ``host-*``."""
    choice = random.Random(seed)
    cloud = Cloud()
    names = [f'host-{number}' for number in range(hosts - drained)]
    # From much room on few hosts to little on many.
    targets = choice.sample(names, choice.randint(drained, min(len(names), _MOST_TARGETS * drained)))
    moved = {name: Counter[str]() for name in names}
    for number in range(drained * _CONSUMERS_PER_HOST):
        cpus, memory, disk = choice.choice(_SIZES[sizes])
        if sizes == 'distinct':
            memory, disk = memory + choice.randrange(4096), disk + choice.randrange(20)
        size = {'VCPU': cpus, 'MEMORY_MB': memory, 'DISK_GB': disk}
        moved[choice.choice(targets)].update(size)
        cloud.allocations[f'moved-{number}'] = {f'from-{number % drained}': size}
    for name, amounts in moved.items():
        inventories = {key: {'total': used + math.ceil(amounts[key] / (1 - slack))} for key, used in _RESIDENT.items()}
        cloud.providers.append(Provider(name, inventories))
        cloud.allocations[f'resident of {name}'] = {name: _RESIDENT}
    full = {key: {'total': total} for key, total in _HOST.items()}
    cloud.providers += [Provider(f'from-{number}', full) for number in range(drained)]
    return cloud


def _missed(cloud: Cloud, drained: int) -> Iterator[str]:
    """Yield the ways to place all that is on the hosts ``from-*`` which do not place all."""
    with stored(cloud) as db, db.reader() as tx:
        hosts = read_state(tx)
        trees = hosts.find_trees([f'from-{number}' for number in range(drained)], None)
        hosts, grouped = loads.read_loads(tx, hosts, trees, PlanOptions())
    eligibility, solver = Eligibility(hosts, grouped.shapes, trees), TreeSolver(hosts, isolate=False)
    demand = Counter(grouped.shape.tolist())
    verdict, *_ = drain.solve(eligibility, demand, solver, (Fit.FEWEST, *POLICIES))
    if verdict is not Verdict.FITS:
        yield 'plan'
    for fit in POLICIES:
        if next(attempts(eligibility, demand, solver, [fit])).remaining:
            yield f'only {fit.name.lower()} fit'


if __name__ == '__main__':
    main()
