"""The dashboard and the alert rules in etc/, by a real Prometheus that scrapes a real service."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import re
import shutil
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import yaml

from tests.integration import services
from tests.support import servers
from tests.support.http_client import claim_body
from tests.support.waiting import wait_until

RULES = pathlib.Path(services.ROOT) / 'etc' / 'prometheus' / 'placement-rules.yaml'
DASHBOARD = pathlib.Path(services.ROOT) / 'etc' / 'grafana' / 'placement.json'
RULE_TESTS = pathlib.Path(__file__).with_name('placement-rules-test.yaml')
HEADERS = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'}
AGGREGATE = 'a0000000-0000-4000-8000-000000000000'

#: The values that Grafana substitutes for its variables.
VARIABLES = {'$job': 'placement', '$instance': '.*', '$__rate_interval': '10s'}


def _alerts() -> set[str]:
    """The names of the alerts."""
    return {rule['alert'] for group in yaml.safe_load(RULES.read_text())['groups'] for rule in group['rules']}


def _panels() -> dict[str, str]:
    """The expressions of the dashboard, by the panel's title and the letter of the query."""
    expressions = {}
    for panel in json.loads(DASHBOARD.read_text())['panels']:
        for target in panel.get('targets', ()):
            expressions[f'{panel["title"]} {target["refId"]}'] = target['expr']
    return expressions


@dataclasses.dataclass(frozen=True)
class Prometheus:
    """A running Prometheus, which responds at ``url``."""

    url: str

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API. The test fails at an error or a warning."""
        answer = services.fetch('GET', f'{self.url}/api/v1/{path}', params=parameters).json()
        assert answer['status'] == 'success', f'{path} {parameters}: {answer}'
        assert not answer.get('warnings'), f'{path} {parameters}: {answer}'
        return answer['data']

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Evaluate an expression now."""
        result: list[dict[str, Any]] = self.get('query', query=expression)['result']
        return result


@contextlib.contextmanager
def _scraping(home: pathlib.Path, target: str) -> Iterator[Prometheus]:
    program = services.program('prometheus', 'prometheus')
    shutil.copy(RULES, home)
    home.joinpath('prometheus.yml').write_text(
        'global: {scrape_interval: 1s, evaluation_interval: 1s}\n'
        f'rule_files: [{RULES.name}]\n'
        f'scrape_configs: [{{job_name: placement, static_configs: [{{targets: ["{target}"]}}]}}]\n'
    )
    address = f'127.0.0.1:{servers.free_port()}'
    command = [
        program,
        f'--config.file={home}/prometheus.yml',
        f'--storage.tsdb.path={home}/data',
        f'--web.listen-address={address}',
    ]
    with servers.running(command, f'http://{address}/-/ready', home / 'prometheus.log', servers.clean_environ()):
        yield Prometheus(f'http://{address}')


@pytest.fixture(scope='module')
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped a service with traffic of each kind for some seconds."""
    home = tmp_path_factory.mktemp('prometheus')
    bind = f'127.0.0.1:{servers.free_port()}'
    environment = servers.variables(metrics={'bind': bind, 'aggregates': AGGREGATE})
    url = f'sqlite:///{home}/placement.sqlite'
    with contextlib.ExitStack() as stack:
        # It is not scraped before it has data: the next scrape that reads inventories is a minute later.
        server = stack.enter_context(servers.serving(url, home, metrics=False, environment=environment))
        _prepare(server.url)
        prometheus = stack.enter_context(_scraping(home, bind))
        searches = 'rate(placement_allocation_candidates_returned_count[5s]) > 0'

        def is_enough() -> bool:
            for path in (
                'allocation_candidates?resources=VCPU:1',
                'allocation_candidates?resources=VCPU:999',
                'traits',
            ):
                services.fetch('GET', f'{server.url}/{path}', headers=HEADERS).raise_for_status()
            return bool(prometheus.query(f'placement_usage_mismatches and {searches}'))

        wait_until(is_enough, 'no rate after a minute')
        yield prometheus


def _prepare(url: str) -> None:
    with httpx.Client(base_url=url, headers=HEADERS, timeout=services.START_SECONDS) as client:
        name = '00000000-0000-4000-8000-000000000001'
        client.post('/resource_providers', json={'name': 'host', 'uuid': name}).raise_for_status()
        records = {'VCPU': {'total': 16, 'allocation_ratio': 4.0}, 'MEMORY_MB': {'total': 4096, 'reserved': 512}}
        body = {'resource_provider_generation': 0, 'inventories': records}
        client.put(f'/resource_providers/{name}/inventories', json=body).raise_for_status()
        members = {'aggregates': [AGGREGATE], 'resource_provider_generation': 1}
        client.put(f'/resource_providers/{name}/aggregates', json=members).raise_for_status()
        for amount, status in ((4, 204), (400, 409)):
            claimed = client.put(f'/allocations/{uuid.uuid4()}', json=claim_body({name: {'VCPU': amount}}))
            assert claimed.status_code == status, claimed.text


@pytest.mark.parametrize('title', _panels())
def test_each_query_of_the_dashboard_has_a_result(prometheus: Prometheus, title: str) -> None:
    expression = _panels()[title]
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert '$' not in expression, expression
    assert prometheus.query(expression), f'{expression} shows nothing'


def test_rules_name_existing_metrics_and_only_the_alert_about_the_traffic_is_raised(prometheus: Prometheus) -> None:
    def rules_by_name() -> dict[str, dict[str, Any]]:
        return {rule['name']: rule for group in prometheus.get('rules')['groups'] for rule in group['rules']}

    wait_until(lambda: all(rule['lastEvaluation'] > '2000' for rule in rules_by_name().values()), 'none was evaluated')
    rules = rules_by_name()
    assert set(rules) == _alerts()
    named = {name for rule in rules.values() for name in re.findall(r'\bplacement_\w+', rule['query'])}
    assert named <= set(prometheus.get('label/__name__/values'))
    assert {name: rule['lastError'] for name, rule in rules.items() if rule.get('lastError')} == {}
    raised = {name for name, rule in rules.items() if rule['state'] != 'inactive'}
    # Every second search has no result, and there is no second host for what the first one holds.
    assert raised <= {'PlacementNoCandidatesRatioHigh', 'PlacementHostsNotEvacuable'}


def test_promtool_accepts_the_rules_and_each_alert_fires_only_when_it_should(tmp_path: pathlib.Path) -> None:
    promtool = services.program('prometheus', 'promtool')
    shutil.copy(RULES, tmp_path)
    shutil.copy(RULE_TESTS, tmp_path)
    services.run([promtool, 'check', 'rules', str(tmp_path / RULES.name)])
    services.run([promtool, 'test', 'rules', str(tmp_path / RULE_TESTS.name)])
    tested: dict[str, set[bool]] = {}
    for case in yaml.safe_load(RULE_TESTS.read_text())['tests']:
        for expectation in case['alert_rule_test']:
            tested.setdefault(expectation['alertname'], set()).add(bool(expectation['exp_alerts']))
    assert tested == {name: {True, False} for name in _alerts()}
