"""Plans for small random clouds, against exhaustive search, and executed with real claims."""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from placement.claims.claim import replace_allocations
from placement.claims.requested import ConsumerClaim
from placement.db.api import Database
from placement.ops.audit import audit
from placement.ops.audit.check import Finding
from placement.ops.audit.kinds import KINDS as AUDIT_KINDS
from placement.ops.planning.drain import DrainPlan, Verdict, plan_drain
from placement.ops.planning.failures import check_failures
from placement.ops.planning.loads import PlanOptions
from tests.support import applications
from tests.support.clouds import Cloud, uuid_of
from tests.support.search.topologies import thorough
from tests.support.small_clouds import KINDS, Model, hosts_of, random_cloud, stored

seeds = st.integers(0, 2**32)
kinds = st.sampled_from(KINDS)
flags = st.sampled_from([(), (), ('isolate',), ('keep_traits',), ('keep_aggregates',), ('spread',)])


@thorough(400)
@given(kinds, seeds, flags)
def test_a_drain_is_planned_exactly_if_there_is_a_placement(kind: str, seed: int, names: tuple[str, ...]) -> None:
    cloud = random_cloud(kind, seed)
    rng = random.Random(seed)
    hosts = hosts_of(cloud)
    drained = set(rng.sample(hosts, rng.choice([1, 1, 2, len(hosts)][: len(hosts)])))
    options = dict.fromkeys(names, True)
    model = Model(cloud, **options)
    loads = model.loads(cloud, drained)
    with stored(cloud) as db:
        plan = plan_drain(db, sorted(drained), None, PlanOptions(**options))
        assert plan.consumers == len({load.consumer for load in loads})
        assert plan.left_count + len(plan.moves) == len(loads)
        event(f'{plan.verdict.value}, {kind}')
        if plan.verdict is not Verdict.NOT_FOUND:
            is_possible = model.fits(loads, drained)
            assert is_possible == (plan.verdict is Verdict.FITS)
        execute(db, cloud, plan)
        assert not list(all_findings(db))
        if plan.verdict is Verdict.FITS:
            again = plan_drain(db, sorted(drained), None, PlanOptions())
            assert (again.consumers, again.left_count) == (0, 0)


def execute(db: Database, cloud: Cloud, plan: DrainPlan) -> None:
    """Claim what a plan says: what it moves leaves its tree, and all else of the consumer stays."""
    names = {uuid_of(name): name for name in cloud.allocations}
    trees = {provider.name: cloud_root(cloud, provider.name) for provider in cloud.providers}
    shares = {provider.name for provider in cloud.providers if 'MISC_SHARES_VIA_AGGREGATE' in provider.traits}
    current = {consumer: dict(by_provider) for consumer, by_provider in cloud.allocations.items()}
    for move in plan.moves:
        allocations = current[names[move.consumer]]
        moves_pools = len(move.allocations) == len(allocations) and plan.options.move_shared
        for provider in list(allocations):
            if (trees[provider] == move.from_.name and provider not in shares) or (moves_pools and provider in shares):
                del allocations[provider]
        for allocation in move.allocations:
            provider = allocation.resource_provider.name or ''
            present = Counter(allocations.get(provider, {}))
            present.update(allocation.resources)
            allocations[provider] = present
        claims = {uuid_of(provider): amounts for provider, amounts in allocations.items()}
        replace_allocations(db, [ConsumerClaim(move.consumer, 'project-blue', 'user-ada', claims)])


def cloud_root(cloud: Cloud, name: str) -> str:
    parents = {provider.name: provider.parent for provider in cloud.providers}
    while (parent := parents[name]) is not None:
        name = parent
    return name


def all_findings(db: Database) -> Iterator[Finding]:
    conf = applications.options('sqlite://')
    for kind in AUDIT_KINDS:
        yield from audit.find(db, conf, kind)


@thorough(400)
@given(kinds, seeds)
def test_hosts_that_fail_alone_and_together(kind: str, seed: int) -> None:
    cloud = random_cloud(kind, seed)
    model = Model(cloud)
    with stored(cloud) as db:
        report = check_failures(db, PlanOptions())
    hosts = [host for host in hosts_of(cloud) if model.loads(cloud, {host})]
    fits = functools.cache(lambda failed: model.fits(model.loads(cloud, failed), failed))
    verdicts = {host.host.name: host.verdict for host in report.not_evacuable_hosts}
    assert report.hosts == len(hosts)
    for host in hosts:
        verdict = verdicts.get(host, Verdict.FITS)
        event(f'{verdict.value}, {kind}')
        assert verdict is Verdict.NOT_FOUND or fits(frozenset({host})) == (verdict is Verdict.FITS)
    event(f'guaranteed: {report.guaranteed_together}, at most: {report.at_most_together}')
    for failed in itertools.combinations(hosts, report.guaranteed_together or 0):
        assert fits(frozenset(failed))
    if hosts and report.at_most_together < len(hosts):
        assert not all(fits(frozenset(failed)) for failed in itertools.combinations(hosts, report.at_most_together + 1))


@pytest.mark.parametrize('kind', KINDS)
def test_few_feasible_drains_have_no_plan(kind: str) -> None:
    """At most three in a thousand."""
    not_found = 0
    for seed in range(20):
        cloud = random_cloud(kind, seed, hosts=5)
        with stored(cloud) as db:
            plan = plan_drain(db, [hosts_of(cloud)[0]], None, PlanOptions())
        model, drained = Model(cloud), {hosts_of(cloud)[0]}
        not_found += plan.verdict is Verdict.NOT_FOUND and model.fits(model.loads(cloud, drained), drained)
    assert not_found == 0
