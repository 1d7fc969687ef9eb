"""Puts plans into words and documents, for the command and the page."""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from placement import units
from placement.cache.providers import Provider
from placement.ops.planning.bounds import Shortage
from placement.ops.planning.drain import DrainPlan, Verdict
from placement.ops.planning.failures import FailureReport
from placement.ops.planning.flavors import FlavorFit
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


def size(resources: Sequence[Mapping[str, int]]) -> str:
    """Return what a consumer has, the parts of several providers joined by ``+``."""
    return ' + '.join(map(units.size_text, resources))


def document(sentences: Sequence[str], report: Any, **further: Any) -> dict[str, Any]:
    """Return a report as data: its sentences, further members, and all its fields."""
    return {'sentences': sentences, **further, **data(report)}


def data(value: Any) -> Any:
    """Return a value with dataclasses as objects, providers as uuid and name, and enumerations as their values."""
    match value:
        case Provider():
            return {'uuid': value.uuid, 'name': value.display_name}
        case enum.Enum():
            return value.value
        case Mapping():
            return {key: data(item) for key, item in value.items()}
        case list() | tuple():
            return [data(item) for item in value]
    if dataclasses.is_dataclass(value):
        # ``from`` is a keyword.
        return {field.name.rstrip('_'): data(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


# Drain -----------------------------------------------------------------------------------------------------------


def drain_sentences(plan: DrainPlan) -> list[str]:
    """Return what a plan says, the answer first."""
    what = f'{units.plural(plan.consumers, "consumer")} of {units.plural(len(plan.hosts), "host")}'
    if not plan.consumers:
        sentences = [f'Nothing is allocated on {units.plural(len(plan.hosts), "host")}.']
    elif plan.verdict is Verdict.FITS:
        destination_count = units.plural(len(destinations(plan)), 'other host')
        sentences = [f'The {what} {"fits" if plan.consumers == 1 else "fit"} on {destination_count}.']
    elif plan.proof is not None:
        sentences = [f'The {what} cannot be placed on the other hosts: {_reason(plan.proof)}.']
    else:
        sentences = [f'No placement of the {what} was found. That is no proof that there is none.']
    if plan.verdict is not Verdict.FITS:
        sentences.append(f'The best plan makes {units.plural(len(plan.moves), "move")} and leaves {plan.left_count:,}.')
        unreached = sum(
            item.consumers for item in plan.not_placed if not item.eligible_hosts and item.sharing_providers
        )
        if unreached and not plan.options.move_shared:
            of_pools = f'{unreached:,} of these hold resources of sharing providers that reach no eligible host'
            sentences.append(f'{of_pools}; --move-shared moves these, too.')
    return sentences + _doubts(plan)


def _reason(proof: Shortage) -> str:
    if name := proof.resource_class:
        needed, free = (units.amount(name, value) for value in (proof.needed, proof.available))
        return f'they need {needed} of {name}, and {free} is free on providers that can take any of them'
    verb = 'needs' if proof.needed == 1 else 'need'
    room = f'room for only {proof.available:,}' if proof.available else 'no room for that'
    return f'{proof.needed:,} {verb} at least {units.size_text(proof.slots_of)}, and there is {room}'


def _doubts(report: DrainPlan | FailureReport) -> list[str]:
    if not report.allocations_without_inventory:
        return []
    count = units.plural(report.allocations_without_inventory, 'allocation')
    return [f'{count} without an inventory: the audit lists them.']


def destinations(plan: DrainPlan) -> list[tuple[Provider, int]]:
    """Return the hosts that receive consumers, each with their number, the most first."""
    hosts = {move.to.uuid: move.to for move in plan.moves}
    counts = Counter(move.to.uuid for move in plan.moves)
    return [(hosts[uuid], counts[uuid]) for uuid in sorted(counts, key=lambda uuid: (-counts[uuid], uuid))]


# Failures --------------------------------------------------------------------------------------------------------


def failure_sentences(report: FailureReport) -> list[str]:
    """Return what a report says, the answer first."""
    if not report.hosts:
        return ['Nothing is allocated on hosts, so nothing is lost if they fail.', *_doubts(report)]
    if report.not_evacuable:
        count = report.not_evacuable
        proved = sum(host.verdict is Verdict.CANNOT for host in report.not_evacuable_hosts)
        sentence = f'The load of {count:,} of {units.plural(report.hosts, "host")} does not fit on the others'
        unproved = f'. For {count - proved:,} of these nothing proves that' if count > proved else ''
        return [f'{sentence}{unproved}.', 'Tolerated failures: 0.', *_doubts(report)]
    everything = f'The load of each of {units.plural(report.hosts, "host")} fits on the others.'
    together = (
        f'any {report.guaranteed_together:,} together'
        if (report.guaranteed_together or 0) > 1
        else f'any {report.tolerated_failures:,}'
    )
    limit = f'the worst {report.at_most_together + 1:,} cannot'
    if report.at_most_together >= report.hosts:
        limit = 'nothing proves that all cannot'
    return [everything, f'Tolerated failures: {together}; {limit}.', *_doubts(report)]


# Flavors and ratio -----------------------------------------------------------------------------------------------


def fit_text(fit: FlavorFit, aggregate: str | None = None) -> str:
    """Return how many instances fit, in all or in one aggregate, with the words that say how sure that is."""
    count = fit.count if aggregate is None else fit.by_aggregate[aggregate]
    if fit.ignored_properties:
        return f'{"about" if count.at_least else "at most"} {count.fit:,}'
    return f'{count.at_least}{count.fit:,}'


def flavor_sentences(fits: Sequence[FlavorFit]) -> list[str]:
    """Return for each flavor how many more fit, and what is stranded then."""
    sentences = []
    for fit in fits:
        stranded = {name: value for name, value in fit.stranded.items() if value > 0}
        rest = f'; {units.amounts_text(stranded)} would be stranded' if stranded else ''
        sentences.append(f'{fit.name}: {fit_text(fit)} more fit{rest}.')
        if fit.ignored_properties:
            names = ', '.join(fit.ignored_properties)
            sentences.append(f'{fit.name}: fewer may fit, because only the compute service evaluates {names}.')
    return sentences


def ratio_sentences(report: RatioReport) -> list[str]:
    """Return what a change would do, the capacity first."""
    name, change = report.resource_class, report.after.capacity - report.before.capacity
    growth = f'{"grow" if change > 0 else "shrink"} by {units.amount(name, abs(change))}' if change else 'stay the same'
    inventories = units.plural(report.inventories_changed, 'inventory', 'inventories')
    above = units.plural(len(report.above_capacity), 'provider')
    return [
        f'At allocation ratio {report.allocation_ratio:g} the capacity of {name} would {growth}, in {inventories}.',
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
            (f'Fit: {old.name}', fit_text(old), fit_text(new))
            for old, new in zip(report.flavors_before, report.flavors_after, strict=True)
        ),
    ]
