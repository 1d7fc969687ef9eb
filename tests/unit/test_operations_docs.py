"""The pages for operators name every option, policy rule and metric that exists, and none that does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from keystoneauth1 import loading as ks_loading
from oslo_config import cfg
from oslo_policy import policy

from placement import conf as placement_conf
from placement import policies
from placement.candidates.budget import Bound
from placement.objects.inventory import Inventory
from placement.objects.resource_provider import ResourceProvider
from placement.observability.metrics import REFUSALS
from placement.observability.prometheus import PrometheusMetrics
from placement.serving.metrics_listener import DatabaseCollector
from placement.web.context import RequestContext

ROOT = Path(__file__).resolve().parents[2]
OWN_GROUPS = ('api', 'healthcheck', 'metrics', 'placement', 'placement_database', 'server')


def _first_cells(text: str) -> list[str]:
    """What stands between grave accents at the start of each table row."""
    return re.findall(r'^\| `([^`]+)`', text, flags=re.MULTILINE)


def _section(page: str, heading: str) -> str:
    """The text of ``doc/<page>`` below a heading of the second level, up to the next one."""
    parts = re.split(r'^## (.+)$', (ROOT / 'doc' / page).read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


def _options() -> dict[str, list[cfg.Opt]]:
    found: dict[str, list[cfg.Opt]] = {}
    for group, options in placement_conf.list_opts():
        found.setdefault(str(group or 'DEFAULT'), []).extend(options)
    return found


@pytest.mark.parametrize('group', OWN_GROUPS)
def test_options_and_their_defaults_are_documented(group: str) -> None:
    rows = re.findall(r'^\| `([^`]+)` \| (?:`([^`]*)`)? ?\| ', _section('configuration.md', f'[{group}]'), re.MULTILINE)
    declared = [(option.name, '' if option.default is None else str(option.default)) for option in _options()[group]]
    assert sorted(rows) == sorted(declared)


def test_groups_of_libraries_are_documented_and_the_options_named_there_exist() -> None:
    section = _section('configuration.md', 'Groups that belong to libraries')
    documented = {
        row[0].strip('[]'): row[1:]
        for row in (re.findall(r'`([^`]+)`', line) for line in section.splitlines()[2:])
        if row
    }
    declared = _options()
    documented.pop('oslo-config-generator --namespace placement', None)
    assert set(documented) == set(declared) - set(OWN_GROUPS)
    for group, names in documented.items():
        known = {option.name for option in declared[group]} | {option.dest for option in declared[group]}
        assert set(names) <= known, group


def _settings(sample: str) -> dict[str, set[str]]:
    """The names that a sample configuration sets, also in comments, by group."""
    parts = re.split(r'^\[(.+)\]$', sample, flags=re.MULTILINE)
    names = re.compile(r'^#?([a-z_]+) = ', re.MULTILINE)
    return {group: set(names.findall(text)) for group, text in zip(parts[1::2], parts[2::2], strict=True)}


def test_sample_configuration_is_accepted_and_sets_only_what_exists() -> None:
    sample = ROOT / 'etc' / 'placement' / 'placement.conf'
    conf = placement_conf.load(environ={}, config_files=[str(sample)])
    assert conf.api.auth_strategy == 'keystone'
    # What the plugin that auth_type names brings along.
    plugin = {option.dest for option in ks_loading.get_auth_plugin_conf_options('password')}
    known = {group: {option.dest for option in options} for group, options in _options().items()}
    known['keystone_authtoken'] |= plugin
    for group, names in _settings(sample.read_text()).items():
        assert names <= known[group], group


def test_sample_policy_overrides_only_rules_that_exist() -> None:
    sample = (ROOT / 'etc' / 'placement' / 'placement-policy.yaml').read_text()
    overrides = policy.Rules.load(re.sub(r'^#(?=")', '', sample, flags=re.MULTILINE))
    assert overrides.keys() <= {rule.name for rule in policies.list_rules()}
    assert {str(check) for check in overrides.values()} == {'(rule:admin_api or role:reader)'}


def test_policy_rules_are_documented() -> None:
    documented = _first_cells(_section('policy.md', 'Base rules')) + _first_cells(_section('policy.md', 'Operations'))
    assert sorted(documented) == sorted(rule.name for rule in policies.list_rules())


def test_policy_rules_are_documented_with_their_operations() -> None:
    rows = re.findall(r'^\| `([^`]+)` \| (.+) \|$', _section('policy.md', 'Operations'), flags=re.MULTILINE)
    documented = {rule: sorted(re.findall(r'`([A-Z]+ /[^`]*)`', cell)) for rule, cell in rows}
    declared = {
        rule.name: sorted(f'{operation["method"]} {operation["path"]}' for operation in rule.operations)
        for rule in policies.list_rules()
        if hasattr(rule, 'operations')
    }
    assert documented == declared


def _exercised() -> PrometheusMetrics:
    """Counters that have counted one of everything, so that each has its labels."""
    counts = PrometheusMetrics()
    counts.request_answered('/', 'GET', '1.0', 200, 0.1)
    counts.claim_accepted()
    counts.claim_refused('capacity')
    counts.retried('DBDeadlock')
    counts.candidates(1, 0.1)
    counts.search_bounded('candidates')
    return counts


def test_metrics_and_their_labels_are_documented(context: RequestContext) -> None:
    provider = ResourceProvider.create(context, name='host', uuid='5f7d8c1e-8a52-4c0c-9d0f-3d3b1f8b6f10')
    provider.add_inventory(Inventory.from_request('VCPU', {'total': 8}))
    exported = [*_exercised().registry.collect(), *DatabaseCollector(context.db).collect()]
    labels = {family.name: {name for sample in family.samples for name in sample.labels} for family in exported}
    rows = re.findall(r'^\| `([^`]+)` \| [^|]+ \|([^|]*)\|', _section('observability.md', 'Metrics'), re.MULTILINE)
    documented = {name: set(re.findall(r'`([a-z_]+)`', cell)) for name, cell in rows}
    assert documented == {name: found - {'le'} for name, found in labels.items()}


def test_bounds_of_a_search_are_documented() -> None:
    rows = _first_cells(_section('observability.md', 'Bounds'))
    assert sorted(rows) == sorted(['bound', *(bound.value for bound in Bound)])


def test_reasons_to_refuse_a_claim_are_documented() -> None:
    assert _first_cells(_section('observability.md', 'Reasons')) == ['reason', *(word for _, word in REFUSALS)]
