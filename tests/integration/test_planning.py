"""Plans and fingerprints on the database servers: the answers of SQLite, from one state of the database."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from placement.cache.refresh import ProviderCache
from placement.claims.claim import replace_allocations
from placement.claims.requested import ConsumerClaim
from placement.db.api import Database
from placement.ops.fingerprint import read_fingerprint
from placement.ops.planning import drain, failures, flavors, plan_sentences, ratio
from placement.ops.planning.loads import PlanOptions
from tests.support import applications, logs
from tests.support.clouds import Provider, create_cloud, nested, uuid_of
from tests.support.event_hooks import listening

HOSTS = [f'compute-{number}' for number in range(4)]
OPTIONS = [PlanOptions(), PlanOptions(isolate=True, spread=True), PlanOptions(keep_aggregates=True, move_shared=True)]
FLAVORS = [
    flavors.parse_flavor({'Name': 'small', 'VCPUs': 4, 'RAM': 4096, 'Disk': 10}),
    flavors.parse_flavor(
        {'Name': 'nic', 'VCPUs': 4, 'RAM': 4096, 'Disk': 10, 'Properties': "resources1:SRIOV_NET_VF='2'"}
    ),
]


@contextlib.contextmanager
def stored(server: str, directory: pathlib.Path) -> Iterator[Database]:
    """A database on a server, with nested hosts, a disabled one, a shared disk and a ratio that has many digits."""
    cloud = nested()
    flat: dict[str, dict[str, Any]] = {'VCPU': {'total': 8, 'allocation_ratio': 1.23457}, 'MEMORY_MB': {'total': 16384}}
    cloud.providers.append(Provider('flat', flat, ('CUSTOM_GOLD',), ('rack-a',)))
    cloud.allocations['in two trees'] = {'flat': {'VCPU': 4}, 'compute-1-numa0': {'VCPU': 4}}
    with logs.fresh(server, directory) as url, applications.database(url) as db:
        create_cloud(db, cloud)
        yield db


def answers(db: Database) -> dict[str, Any]:
    """Every question, with each of the options."""
    snapshot = ProviderCache(db).up_to_date()
    counts = flavors.count_flavors(snapshot, FLAVORS, by_aggregate=True)
    report = ratio.compare_ratio(snapshot, 'VCPU', 2.0, None, FLAVORS)
    documents = {
        'flavors': {'sentences': plan_sentences.flavor_sentences(counts), 'flavors': plan_sentences.data(counts)},
        'ratio': plan_sentences.document(plan_sentences.ratio_sentences(report), report),
    }
    for options in OPTIONS:
        for hosts in (*([name] for name in [*HOSTS, 'flat']), HOSTS[:2]):
            plan = drain.plan_drain(db, hosts, None, options)
            documents[f'drain {hosts} {options}'] = plan_sentences.document(plan_sentences.drain_sentences(plan), plan)
        failure_report = failures.check_failures(db, options)
        failure_sentences = plan_sentences.failure_sentences(failure_report)
        documents[f'failures {options}'] = plan_sentences.document(failure_sentences, failure_report)
    plan = drain.plan_drain(db, [], uuid_of('rack-b'), PlanOptions())
    documents['drain of a rack'] = plan_sentences.document(plan_sentences.drain_sentences(plan), plan)
    for document in documents.values():
        document.pop('read_at', None)
    return documents


@pytest.mark.parametrize('server', [logs.POSTGRESQL, logs.MARIADB])
def test_answers_and_fingerprint_are_those_of_sqlite(server: str, tmp_path: pathlib.Path) -> None:
    with stored('sqlite', tmp_path) as db:
        expected, fingerprint = answers(db), read_fingerprint(db)
    assert {document.get('verdict') for document in expected.values()} >= {'fits', 'cannot'}
    with stored(server, tmp_path) as db:
        assert answers(db) == expected
        assert read_fingerprint(db) == fingerprint


@pytest.mark.parametrize('server', logs.SERVERS)
@pytest.mark.parametrize('question', ['drain', 'failures', 'fingerprint'])
def test_providers_and_allocations_are_of_one_state(question: str, server: str, tmp_path: pathlib.Path) -> None:
    """Claims between the statements are not seen, and do not wait."""
    statements = 0

    def claim(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        nonlocal statements
        if 'FROM placement_' in statement:
            statements += 1
            # The first one decides which state is read.
            if statements > 1:
                held = {uuid_of('compute-2-numa0'): {'VCPU': 1, 'MEMORY_MB': 1}}
                name = uuid_of(f'new {statements}')
                replace_allocations(writer, [ConsumerClaim(name, 'project-blue', 'user-ada', held)])

    with stored(server, tmp_path) as db, applications.database(db.engine.url) as writer:
        ask: Callable[[], Any] = {
            'drain': lambda: drain.plan_drain(db, HOSTS, None, PlanOptions()),
            'failures': lambda: failures.check_failures(db, PlanOptions()),
            'fingerprint': lambda: read_fingerprint(db),
        }[question]
        before = ask()
        with listening(db.engine, 'before_cursor_execute', claim):
            meanwhile = ask()
        assert statements > 2
        if question == 'fingerprint':
            assert meanwhile == before
            assert set(ask().differences(before)) == {'allocations', 'consumers', 'resource_providers'}
        else:
            assert (meanwhile.consumers, meanwhile.usage_mismatches) == (before.consumers, 0)
            assert ask().consumers > before.consumers
