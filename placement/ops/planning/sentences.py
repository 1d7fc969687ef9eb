"""Puts plans into words and documents, for the command and the page."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from placement import units
from placement.ops.planning.bounds import Shortage
from placement.ops.planning.drain import DrainPlan, Verdict
from placement.ops.planning.failures import FailureReport
from placement.ops.planning.fits import FitCount
from placement.ops.planning.flavors import Flavor, FlavorFit
from placement.ops.planning.hosts import Hosts
from placement.ops.planning.loads import Role, Shape
from placement.ops.planning.ratio import RatioReport

#: What is printed below each answer about loads.
MEANING = (
    'A load is what a consumer holds on one tree. What sharing providers supply stays there, and they must reach the'
    ' destination. Disabled hosts are no destinations. The compute service may choose other hosts. See doc/plan.md.'
)

FITS_MEANING = (
    'A count assumes that all further instances are of one flavor. Disabled hosts do not count. "Prevented" is how'
    ' many more would fit if pools or traits were no limit, or if all that is free were in one place. See doc/plan.md.'
)


def amounts(resources: Mapping[str, int]) -> str:
    """Return amounts by class with their units, such as ``VCPU 4, MEMORY_MB 8 GiB``."""
    return ', '.join(f'{name} {units.amount(name, value)}' for name, value in resources.items())


def host_name(hosts: Hosts, tree: int) -> str:
    """Return the name of a host, or its uuid if it has none."""
    return hosts.trees[tree][0].display_name


def size(hosts: Hosts, shape: Shape) -> str:
    """Return what a shape has, the parts of several providers joined by ``+``."""
    return ' + '.join(units.size_text(_resources(hosts, role)) for role in (*shape.roles, *shape.shared))


def _resources(hosts: Hosts, role: Role) -> dict[str, int]:
    return {hosts.classes[column]: amount for column, amount in role}


# Drain -----------------------------------------------------------------------------------------------------------


def drain_sentences(plan: DrainPlan) -> list[str]:
    """Return what a plan says, the answer first."""
    what = f'{units.plural(plan.consumers, "consumer")} of {units.plural(len(plan.trees), "host")}'
    if not plan.consumers:
        sentences = [f'Nothing is allocated on {units.plural(len(plan.trees), "host")}.']
    elif plan.verdict is Verdict.FITS:
        destination_count = units.plural(len(destinations(plan)), 'other host')
        sentences = [f'The {what} {"fits" if plan.consumers == 1 else "fit"} on {destination_count}.']
    elif plan.verdict is Verdict.CANNOT:
        sentences = [f'The {what} cannot be placed on the other hosts: {_reason(plan.hosts, plan.shortage)}.']
    else:
        sentences = [f'No placement of the {what} was found. That is no proof that there is none.']
    if plan.verdict is not Verdict.FITS:
        sentences.append(f'The best plan makes {units.plural(len(plan.moves), "move")} and leaves {plan.left_count:,}.')
        unreached = sum(item.count for item in plan.unplaced if not item.eligible and item.shape.stays)
        if unreached and not plan.options.move_shared:
            of_pools = f'{unreached:,} of these hold resources of sharing providers that reach no eligible host'
            sentences.append(f'{of_pools}; --move-shared moves these, too.')
    return sentences + _doubts(plan)


def _reason(hosts: Hosts, shortage: Shortage | None) -> str:
    if shortage is None:
        return 'all ways were tried'
    if shortage.column is not None:
        name = hosts.classes[shortage.column]
        needed, free = (units.amount(name, value) for value in (shortage.needed, shortage.available))
        return f'they need {needed} of {name}, and {free} is free on providers that can take any of them'
    least = units.size_text(_resources(hosts, shortage.role or ()))
    verb = 'needs' if shortage.needed == 1 else 'need'
    room = f'room for only {shortage.available:,}' if shortage.available else 'no room for that'
    return f'{shortage.needed:,} {verb} at least {least}, and there is {room}'


def _doubts(report: DrainPlan | FailureReport) -> list[str]:
    if not report.without_inventory:
        return []
    count = units.plural(report.without_inventory, 'allocation')
    return [f'{count} without an inventory: the audit lists them.']


def destinations(plan: DrainPlan) -> list[tuple[int, int]]:
    """Return the trees that receive consumers, each with their number, the most first."""
    hosts = plan.hosts
    counts = Counter(int(hosts.tree_of[move.allocations[0][0]]) for move in plan.moves)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def drain_document(plan: DrainPlan) -> dict[str, Any]:
    """Return a plan as data."""
    hosts = plan.hosts
    return {
        'verdict': plan.verdict.value,
        'sentences': drain_sentences(plan),
        'read_at': plan.read_at,
        'hosts': [_host(hosts, tree) for tree in plan.trees],
        'consumers': plan.consumers,
        'left': plan.left_count,
        'proof': _proof(hosts, plan.shortage),
        'not_placed': [
            {
                'consumers': item.count,
                'resources': [_resources(hosts, role) for role in (*item.shape.roles, *item.shape.shared)],
                'eligible_hosts': item.eligible,
                'closest_host': None if item.closest is None else _host(hosts, item.closest),
                'closest_lacks': item.lacks,
            }
            for item in plan.unplaced
        ],
        'moves': [
            {
                'consumer': move.consumer,
                'from': _host(hosts, move.source),
                'to': _host(hosts, int(hosts.tree_of[move.allocations[0][0]])),
                'allocations': [
                    {'resource_provider': hosts.provider(row).uuid, 'resources': _resources(hosts, role)}
                    for row, role in move.allocations
                ],
            }
            for move in plan.moves
        ],
        'allocations_without_inventory': plan.without_inventory,
    }


def _host(hosts: Hosts, tree: int) -> dict[str, str]:
    return {'uuid': hosts.trees[tree][0].uuid, 'name': host_name(hosts, tree)}


def _proof(hosts: Hosts, shortage: Shortage | None) -> dict[str, Any] | None:
    if shortage is None:
        return None
    return {
        'resource_class': None if shortage.column is None else hosts.classes[shortage.column],
        'slots_of': _resources(hosts, shortage.role) if shortage.role else None,
        'needed': shortage.needed,
        'available': shortage.available,
    }


# Failures --------------------------------------------------------------------------------------------------------


def failure_sentences(report: FailureReport) -> list[str]:
    """Return what a report says, the answer first."""
    if not report.checked:
        return ['Nothing is allocated on hosts, so nothing is lost if they fail.', *_doubts(report)]
    if report.failed:
        count = len(report.failed)
        proved = sum(host.verdict is Verdict.CANNOT for host in report.failed)
        sentence = f'The load of {count:,} of {units.plural(report.checked, "host")} does not fit on the others'
        unproved = f'. For {count - proved:,} of these nothing proves that' if count > proved else ''
        return [f'{sentence}{unproved}.', 'Tolerated failures: 0.', *_doubts(report)]
    everything = f'The load of each of {units.plural(report.checked, "host")} fits on the others.'
    together = f'any {report.guaranteed:,} together' if (report.guaranteed or 0) > 1 else f'any {report.tolerated:,}'
    limit = f'the worst {report.at_most + 1:,} cannot'
    if report.at_most >= report.checked:
        limit = 'nothing proves that all cannot'
    return [everything, f'Tolerated failures: {together}; {limit}.', *_doubts(report)]


def failure_document(report: FailureReport, count: int | None = None) -> dict[str, Any]:
    """Return a report as data.

    :param count: maximum number of hosts to list; None for all.
    """
    hosts = report.hosts
    return {
        'sentences': failure_sentences(report),
        'read_at': report.read_at,
        'hosts': report.checked,
        'consumers': report.consumers,
        'tolerated_failures': report.tolerated,
        'guaranteed_together': report.guaranteed,
        'at_most_together': report.at_most,
        'not_evacuable': len(report.failed),
        'not_evacuable_hosts': [
            {
                **_host(hosts, host.tree),
                'verdict': host.verdict.value,
                'consumers': host.consumers,
                'left': host.left_count,
                'left_resources': host.left_amounts,
            }
            for host in report.failed[:count]
        ],
        'allocations_without_inventory': report.without_inventory,
    }


# Flavors and ratio -----------------------------------------------------------------------------------------------


def fit_text(count: FitCount, flavor: Flavor) -> str:
    """Return a number of instances with the words that say how sure it is."""
    if flavor.ignored:
        return f'{"about" if count.at_least else "at most"} {count.fit:,}'
    return f'{count.at_least}{count.fit:,}'


def flavor_sentences(fits: Sequence[FlavorFit]) -> list[str]:
    """Return for each flavor how many more fit, and what is stranded then."""
    sentences = []
    for fit in fits:
        stranded = {name: value for name, value in fit.stranded.items() if value > 0}
        rest = f'; {amounts(stranded)} would be stranded' if stranded else ''
        sentences.append(f'{fit.flavor.name}: {fit_text(fit.count, fit.flavor)} more fit{rest}.')
        if fit.flavor.ignored:
            names = ', '.join(fit.flavor.ignored)
            sentences.append(f'{fit.flavor.name}: fewer may fit, because only the compute service evaluates {names}.')
    return sentences


def flavors_document(fits: Sequence[FlavorFit], read_at: dt.datetime) -> dict[str, Any]:
    """Return counts as data.

    :param read_at: when the state was read.
    """
    flavors = [_flavor_document(fit) for fit in fits]
    return {'sentences': flavor_sentences(fits), 'read_at': read_at, 'flavors': flavors}


def _flavor_document(fit: FlavorFit) -> dict[str, Any]:
    return {
        'name': fit.flavor.name,
        'resources': fit.flavor.resources,
        'fit': fit.count.fit,
        'complete': fit.count.complete,
        'exact': fit.count.exact and not fit.flavor.ignored,
        'prevented_by_pools': fit.count.prevented_by_pools,
        'prevented_by_traits': fit.prevented_by_traits,
        'prevented_by_fragmentation': fit.prevented_by_fragmentation,
        'stranded': fit.stranded,
        'ignored_properties': fit.flavor.ignored,
        'by_aggregate': [{'aggregate': uuid, 'fit': count.fit} for uuid, count in fit.by_aggregate.items()],
    }


def ratio_sentences(report: RatioReport) -> list[str]:
    """Return what a change would do, the capacity first."""
    name, change = report.resource_class, report.after.capacity - report.before.capacity
    growth = f'{"grow" if change > 0 else "shrink"} by {units.amount(name, abs(change))}' if change else 'stay the same'
    inventories = units.plural(report.changed, 'inventory', 'inventories')
    above = units.plural(len(report.above), 'provider')
    return [
        f'At allocation ratio {report.ratio:g} the capacity of {name} would {growth}, in {inventories}.',
        f'{above} would be above capacity; now: {report.before.providers_over_committed:,}.',
    ]


def ratio_rows(report: RatioReport) -> list[tuple[str, str, str]]:
    """Return the rows of the table: a label, the figure now and the figure then."""
    name, now, then = report.resource_class, report.before, report.after
    return [
        ('Capacity', units.amount(name, now.capacity), units.amount(name, then.capacity)),
        ('Used', units.amount(name, now.used), units.amount(name, then.used)),
        ('Free', units.amount(name, now.free, round_down=True), units.amount(name, then.free, round_down=True)),
        ('Providers above capacity', f'{now.providers_over_committed:,}', f'{then.providers_over_committed:,}'),
        *(
            (f'Fit: {old.flavor.name}', fit_text(old.count, old.flavor), fit_text(new.count, new.flavor))
            for old, new in report.fits
        ),
    ]


def ratio_document(report: RatioReport, read_at: dt.datetime) -> dict[str, Any]:
    """Return a comparison as data.

    :param read_at: when the state was read.
    """
    return {
        'sentences': ratio_sentences(report),
        'read_at': read_at,
        'resource_class': report.resource_class,
        'allocation_ratio': report.ratio,
        'inventories_changed': report.changed,
        **{
            label: {
                'capacity': figures.capacity,
                'used': figures.used,
                'free': figures.free,
                'providers_above_capacity': figures.providers_over_committed,
            }
            for label, figures in (('before', report.before), ('after', report.after))
        },
        'above_capacity': [dataclasses.asdict(provider) for provider in report.above],
        'flavors': [
            {'name': old.flavor.name, 'before': old.count.fit, 'after': new.count.fit} for old, new in report.fits
        ],
    }
