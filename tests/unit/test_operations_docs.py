"""The pages for operators name exactly the options, policy rules, metrics and commands that exist."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

import pytest
import yaml
from keystoneauth1 import loading as ks_loading
from oslo_config import cfg
from oslo_policy import policy

from placement import conf as placement_conf
from placement import policies
from placement.cmd import manage, status, status_checks
from placement.db import migration
from placement.observability import ACCEPTED
from placement.observability.metrics import CLAIM_REJECTIONS
from placement.ops.audit.kinds import KINDS
from placement.search.budget import Limit
from tests.support.pages import ROOT, first_cells, section

OWN_GROUPS = ('api', 'healthcheck', 'metrics', 'placement', 'placement_database', 'server')


def _options() -> dict[str, list[cfg.Opt]]:
    options_by_group: dict[str, list[cfg.Opt]] = {}
    for group, options in placement_conf.list_opts():
        options_by_group.setdefault(str(group or 'DEFAULT'), []).extend(options)
    return options_by_group


@pytest.mark.parametrize('group', OWN_GROUPS)
def test_options_and_their_defaults_are_documented(group: str) -> None:
    rows = re.findall(r'^\| `([^`]+)` \| (?:`([^`]*)`)? ?\| ', section('configuration.md', f'[{group}]'), re.MULTILINE)
    declared = [(option.name, '' if option.default is None else str(option.default)) for option in _options()[group]]
    assert sorted(rows) == sorted(declared)


def test_groups_of_libraries_are_documented_and_the_options_named_there_exist() -> None:
    text = section('configuration.md', 'Groups that belong to libraries')
    documented = {
        row[0].strip('[]'): row[1:] for row in (re.findall(r'`([^`]+)`', line) for line in text.splitlines()[2:]) if row
    }
    declared = _options()
    documented.pop('oslo-config-generator --namespace placement', None)
    # osprofiler need not be installed. Only its first group is explained.
    assert set(documented) == {'profiler'} | {name for name in declared if name[:8] != 'profiler'} - set(OWN_GROUPS)
    for group in documented.keys() & declared.keys():
        names = documented[group]
        declared_names = {option.name for option in declared[group]} | {option.dest for option in declared[group]}
        assert set(names) <= declared_names, group


def _settings(sample: str) -> dict[str, set[str]]:
    """The names that a sample configuration sets, also in comments, by group."""
    parts = re.split(r'^\[(.+)\]$', sample, flags=re.MULTILINE)
    names = re.compile(r'^#?([a-z_]+) = ', re.MULTILINE)
    return {group: set(names.findall(text)) for group, text in zip(parts[1::2], parts[2::2], strict=True)}


def test_sample_configuration_is_accepted_and_sets_only_what_exists() -> None:
    sample = ROOT / 'etc' / 'placement' / 'placement.conf'
    conf = placement_conf.load(config_files=[str(sample)])
    assert conf.api.auth_strategy == 'keystone'
    # The options of the plugin that auth_type names.
    plugin = {option.dest for option in ks_loading.get_auth_plugin_conf_options('password')}
    declared = {group: {option.dest for option in options} for group, options in _options().items()}
    declared['keystone_authtoken'] |= plugin
    for group, names in _settings(sample.read_text()).items():
        assert names <= declared[group], group


def test_sample_policy_overrides_only_rules_that_exist() -> None:
    sample = (ROOT / 'etc' / 'placement' / 'policy.yaml').read_text()
    overrides = policy.Rules.load(re.sub(r'^#(?=")', '', sample, flags=re.MULTILINE))
    assert overrides.keys() <= {rule.name for rule in policies.list_rules()}
    assert {str(check) for check in overrides.values()} == {'(rule:admin_or_service_api or role:reader)'}


def test_base_rules_of_policy_are_documented() -> None:
    base = [rule.name for rule in policies.list_rules() if not hasattr(rule, 'operations')]
    assert sorted(first_cells(section('policy.md', 'Base rules'))) == sorted(base)


def test_limits_of_a_search_are_documented() -> None:
    rows = first_cells(section('observability.md', 'Search limits'))
    assert sorted(rows) == sorted(['limit', *(limit.value for limit in Limit)])


def test_results_of_a_claim_are_documented() -> None:
    results = [ACCEPTED, *(result for _, result in CLAIM_REJECTIONS)]
    assert first_cells(section('observability.md', 'Claim results')) == ['result', *results]


def test_alerts_are_documented() -> None:
    rules = yaml.safe_load((ROOT / 'etc' / 'prometheus' / 'placement-rules.yaml').read_text())
    alerts = [rule['alert'] for group in rules['groups'] for rule in group['rules']]
    assert first_cells(section('observability.md', 'Alerts')) == alerts


def test_each_alert_links_to_its_row() -> None:
    rules = yaml.safe_load((ROOT / 'etc' / 'prometheus' / 'placement-rules.yaml').read_text())
    for rule in (rule for group in rules['groups'] for rule in group['rules']):
        page, _, anchor = rule['annotations']['runbook_url'].rpartition('/')[2].partition('#')
        rows = [
            line for line in (DOC / page.replace('.html', '.md')).read_text().splitlines() if f'id="{anchor}"' in line
        ]
        assert [row.startswith(f'| `{rule["alert"]}` | <a id=') for row in rows] == [True]


def test_metrics_that_alerts_and_dashboard_name_are_documented() -> None:
    documented = set(first_cells(section('observability.md', 'Metrics')))
    for file in ('prometheus/placement-rules.yaml', 'grafana/placement.json'):
        text = (ROOT / 'etc' / file).read_text()
        named = {re.sub(r'_(total|count|sum|bucket)$', '', name) for name in re.findall(r'\bplacement_\w+', text)}
        assert named <= documented, file


# Commands ---------------------------------------------------------------------------------------------------------

DOC = ROOT / 'doc'
#: Commands with a page of their own; the others have a section in manage.md.
PAGES = {
    'explain': 'explain.md',
    'page': 'page.md',
    'db adopt': 'adopt.md',
    'upgrade check': 'status.md',
    'plan drain': 'plan.md',
    'plan failures': 'plan.md',
    'plan ratio': 'plan.md',
    'plan flavors': 'plan.md',
}
#: Options of every command, which the top of manage.md describes.
COMMON = {
    *('--help', '--config-file', '--config-dir', '--debug', '--verbose'),
    *('--log-file', '--log-dir', '--use-syslog', '--use-journal'),
}


def _commands(parser: argparse.ArgumentParser, path: str = '') -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """``db sync`` and its parser, for every command that does something."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield path, parser
    for action in nested:
        for name, below in action.choices.items():
            yield from _commands(below, f'{path} {name}'.strip())


COMMANDS = dict(_commands(manage._parser())) | dict(_commands(status._parser()))


def test_every_command_has_a_section_or_a_page() -> None:
    sections = re.findall(r'^## (.+)$', (DOC / 'manage.md').read_text(), flags=re.MULTILINE)
    assert set(sections) - {'Completion', 'Names'} == set(COMMANDS) - set(PAGES)
    assert set(PAGES) <= set(COMMANDS)


@pytest.mark.parametrize('command', PAGES)
def test_page_says_what_to_run(command: str) -> None:
    text = (DOC / PAGES[command]).read_text()
    assert re.search(rf'placement-(manage|status) {command}', text)


def test_common_options_are_documented() -> None:
    before_sections = (DOC / 'manage.md').read_text().partition('\n## ')[0]
    assert set(re.findall(r'--[a-z-]+', before_sections)) >= COMMON


@pytest.mark.parametrize('command', COMMANDS)
def test_options_are_documented(command: str) -> None:
    text = (DOC / PAGES[command]).read_text() if command in PAGES else section('manage.md', command)
    options = {
        option for action in COMMANDS[command]._actions for option in action.option_strings if option[:2] == '--'
    }
    assert options - COMMON <= set(re.findall(r'--[a-z-]+', text))


@pytest.mark.parametrize('command', COMMANDS)
def test_help_explains_the_command(command: str) -> None:
    assert COMMANDS[command].description
    for action in COMMANDS[command]._actions:
        assert action.help, f'{command}: {action.dest}'


@pytest.mark.parametrize('page', ['manage.md', 'adopt.md'])
def test_examples_print_the_newest_revision(page: str) -> None:
    printed = re.findall(r'^    (?:.*(?:revision|stamp|schema,) )?(\d{3})\b', (DOC / page).read_text(), re.MULTILINE)
    assert set(printed) == {migration.head()}


def test_checks_of_an_audit_are_documented() -> None:
    rows = re.findall(r'^\| `([a-z_]+)` \| ([^|]+)', section('manage.md', 'audit'), flags=re.MULTILINE)
    documented = [(kind, '(requests)' in cause) for kind, cause in rows]
    assert documented == [(name, kind.requests_can_cause) for name, kind in KINDS.items()]


def test_checks_that_the_page_runs_each_time_are_documented() -> None:
    text = ' '.join(section('page.md', 'Health').split())
    documented = {name for name, kind in KINDS.items() if kind.heading.lower() in text}
    assert documented == {name for name, kind in KINDS.items() if kind.runs_by_default}


def test_checks_of_an_upgrade_are_documented() -> None:
    assert first_cells((DOC / 'status.md').read_text()) == [
        name for name, _check in status_checks.Checks._upgrade_checks
    ]
