"""Policy: the rules, the operator's file, and what happens when it changes."""

from __future__ import annotations

import pathlib
import shutil

import pytest
from oslo_config import cfg
from oslo_policy import policy as oslo_policy

from placement import conf as configuration
from placement import exception, policies
from placement.cache.refresh import ProviderCache
from placement.db.api import Database
from placement.web import policy
from placement.web.context import EmptySearches, RequestContext

OPERATIONS = [rule.name for rule in policies.list_rules() if rule.name.startswith('placement:')]
#: The default of the only rule that does not ask for roles alone.
PROJECT_READERS = {'placement:usages': 'rule:admin_or_project_reader_or_service_api'}


def _load(tmp_path: pathlib.Path, **values: dict[str, str]) -> cfg.ConfigOpts:
    file = tmp_path / 'placement.conf'
    file.touch()
    overrides = {'placement_database': {'connection': 'sqlite://'}, **values}
    return configuration.load(config_files=[str(file)], overrides=overrides)


def _enforcer(conf: cfg.ConfigOpts) -> policy.Enforcer:
    return policy.Enforcer(conf, policies.list_rules())


def _context(conf: cfg.ConfigOpts, enforcer: policy.Enforcer, *roles: str) -> RequestContext:
    return RequestContext(
        conf=conf,
        db=(db := Database(conf)),
        policy=enforcer,
        provider_cache=ProviderCache(db),
        empty_searches=EmptySearches(None),
        roles=list(roles),
        user_id='u',
        project_id='p',
    )


def test_there_is_a_rule_for_each_operation() -> None:
    assert len(set(OPERATIONS)) == len(OPERATIONS)
    for rule in policies.list_rules():
        assert rule.scope_types == ['project']
        if rule.name in OPERATIONS:
            assert rule.check_str == PROJECT_READERS.get(rule.name, 'rule:admin_or_service_api')


def test_the_base_rules_are_those_of_other_services() -> None:
    base = {rule.name: rule.check_str for rule in policies.list_rules() if rule.name not in OPERATIONS}
    assert base == {
        'admin_api': 'role:admin',
        'service_api': 'role:service',
        'admin_or_service_api': 'role:admin or role:service',
        'project_reader_api': 'role:reader and project_id:%(project_id)s',
        'admin_or_project_reader_or_service_api': 'role:admin or rule:project_reader_api or role:service',
        'reader_api': 'rule:admin_or_service_api',
        'placement': 'role:admin',
    }


@pytest.mark.parametrize('rule', OPERATIONS)
def test_each_rule_can_be_overridden_in_both_directions(tmp_path: pathlib.Path, rule: str) -> None:
    (tmp_path / 'placement-policy.yaml').write_text(f'"{rule}": "role:member"\n')
    conf = _load(tmp_path)
    enforcer = _enforcer(conf)
    _context(conf, enforcer, 'member').can(rule)
    with pytest.raises(exception.PolicyNotAuthorized):
        _context(conf, enforcer, 'admin').can(rule)
    for other in OPERATIONS:
        if other != rule:
            _context(conf, enforcer, 'admin').can(other)


def test_rules_can_be_overridden_by_the_names_of_the_base_rules(tmp_path: pathlib.Path) -> None:
    """As policy files do that were written for other services of this API."""
    (tmp_path / 'placement-policy.yaml').write_text(
        '"admin_api": "role:boss"\n"service_api": "role:robot"\n'
        '"admin_or_service_api": "rule:admin_api or rule:service_api"\n'
        '"project_reader_api": "role:viewer and project_id:%(project_id)s"\n'
    )
    conf = _load(tmp_path)
    enforcer = _enforcer(conf)
    for rule in OPERATIONS:
        if rule != 'placement:usages':
            for role in ('boss', 'robot'):
                _context(conf, enforcer, role).can(rule)
            for role in ('admin', 'service', 'reader', 'viewer'):
                with pytest.raises(exception.PolicyNotAuthorized):
                    _context(conf, enforcer, role).can(rule)
    _context(conf, enforcer, 'viewer').can('placement:usages', {'project_id': 'p'})
    with pytest.raises(exception.PolicyNotAuthorized):
        _context(conf, enforcer, 'reader').can('placement:usages', {'project_id': 'p'})


@pytest.mark.parametrize('scope', [('all', None), (None, 'd')])
def test_tokens_of_other_scopes_are_rejected_unless_scopes_are_not_enforced(
    tmp_path: pathlib.Path, scope: tuple[str | None, str | None]
) -> None:
    """Also those that a policy file would allow, and those of rules that do not ask for roles alone."""
    (tmp_path / 'placement-policy.yaml').write_text('"placement:traits:list": ""\n')
    for values in ({}, {'oslo_policy': {'enforce_scope': 'false'}}):
        conf = _load(tmp_path, **values)
        enforcer = _enforcer(conf)
        other = _context(conf, enforcer, 'admin')
        other.project_id, other.system_scope, other.domain_id = None, *scope
        for rule in OPERATIONS:
            _context(conf, enforcer, 'admin').can(rule)
            if values:
                other.can(rule)
            else:
                with pytest.raises(exception.PolicyNotAuthorized):
                    other.can(rule)


@pytest.mark.parametrize(
    ('text', 'roles'),
    [
        ('', {'admin', 'service'}),
        ('"placement:traits:list": "rule:admin_or_service_api or role:Reader"\n', {'admin', 'service', 'reader'}),
        ('"placement:traits:list": "rule:reader_api"\n', {'admin', 'service'}),
        ('"admin_or_service_api": "role:operator"\n', {'operator'}),
        ('"admin_or_service_api": "role:a and role:b"\n', None),
        ('"admin_or_service_api": "role:a or project_id:p"\n', None),
        ('"admin_or_service_api": "role:a or not role:b"\n', None),
        ('"admin_or_service_api": ""\n', None),
    ],
)
def test_rules_that_name_roles_only_are_kept_as_sets(tmp_path: pathlib.Path, text: str, roles: set[str] | None) -> None:
    (tmp_path / 'placement-policy.yaml').write_text(text)
    assert _enforcer(_load(tmp_path))._in_force.roles.get('placement:traits:list') == roles


def test_the_target_is_the_callers_own_project(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'placement-policy.yaml').write_text('"placement:usages": "project_id:%(project_id)s"\n')
    conf = _load(tmp_path)
    context = _context(conf, _enforcer(conf))
    context.can('placement:usages')
    with pytest.raises(exception.PolicyNotAuthorized):
        context.can('placement:usages', {'project_id': 'another'})


@pytest.mark.parametrize('rule', ['rule:own', 'role:%(project_id)s', 'rule:own and rule:own'])
def test_a_role_may_depend_on_the_target(tmp_path: pathlib.Path, rule: str) -> None:
    (tmp_path / 'placement-policy.yaml').write_text(f'"own": "role:%(project_id)s"\n"placement:usages": "{rule}"\n')
    conf = _load(tmp_path)
    context = _context(conf, _enforcer(conf), 'P')
    context.can('placement:usages')
    with pytest.raises(exception.PolicyNotAuthorized):
        context.can('placement:usages', {'project_id': 'another'})


def test_a_changed_file_is_read_again_and_an_invalid_one_is_ignored(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / 'placement-policy.yaml'
    conf = _load(tmp_path)
    context = _context(conf, _enforcer(conf), 'reader')
    with pytest.raises(exception.PolicyNotAuthorized):
        context.can('placement:traits:list')
    file.write_text('"placement:traits:list": "role:reader"\n')
    context.can('placement:traits:list')
    file.write_text('"placement:traits:list": "role:reader or ("\n')
    context.can('placement:traits:list')
    assert 'cannot be parsed' in caplog.text
    file.write_text('"placement:traits:list": "role:nobody"\n')
    with pytest.raises(exception.PolicyNotAuthorized):
        context.can('placement:traits:list')


@pytest.mark.parametrize('name', ['placement-policy.yaml', 'policy.d'])
def test_the_rules_of_a_file_that_is_moved_away_stay_in_force(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    file = tmp_path / name
    if name == 'policy.d':
        file.mkdir()
    (file / 'traits.yaml' if file.is_dir() else file).write_text('"placement:traits:list": "role:nobody"\n')
    conf = _load(tmp_path)
    context = _context(conf, _enforcer(conf), 'admin')
    file.rename(tmp_path / 'away')
    for _ in range(3):
        with pytest.raises(exception.PolicyNotAuthorized):
            context.can('placement:traits:list')
    assert caplog.text.count(f'The policy file {file} no longer exists') == 1
    (tmp_path / 'away').rename(file)
    (file / 'traits.yaml' if file.is_dir() else file).write_text('"placement:traits:list": "role:admin"\n')
    context.can('placement:traits:list')


def test_a_file_that_is_away_only_while_it_is_read_is_read_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """oslo.policy takes the defaults for the rules of a file that it does not find."""
    file = tmp_path / 'placement-policy.yaml'
    file.write_text('"placement:traits:list": "role:nobody"\n')
    conf = _load(tmp_path)
    context = _context(conf, _enforcer(conf), 'admin')
    load = oslo_policy.Enforcer.load_rules

    def load_without_the_file(enforcer: oslo_policy.Enforcer) -> None:
        monkeypatch.setattr(oslo_policy.Enforcer, 'load_rules', load)
        file.rename(tmp_path / 'away')
        load(enforcer)
        shutil.copy(tmp_path / 'away', file)

    file.write_text('"placement:traits:list": "role:nobody or role:none"\n')
    monkeypatch.setattr(oslo_policy.Enforcer, 'load_rules', load_without_the_file)
    for _ in range(3):
        with pytest.raises(exception.PolicyNotAuthorized):
            context.can('placement:traits:list')


@pytest.mark.parametrize(
    ('text', 'word'),
    [
        ('a: [', 'invalid'),
        ('- a\n- b\n', 'invalid'),
        ('"placement:usages": "role:admin or ("\n', 'placement:usages'),
        ('"placement:usages": "administrators"\n', 'placement:usages'),
        ('"placement:usages": "rule:nowhere"\n', '"placement:usages" refers to "rule:nowhere", which does not exist'),
        ('"placement:usages": "role:a and not (rule:admin_ap or @)"\n', 'did you mean "admin_api"'),
        ('"placement:usages": "rule:placement:usages"\n', 'placement:usages'),
        ('"placement:usages": 5\n', 'invalid'),
    ],
)
def test_an_invalid_file_stops_the_start_with_one_line(tmp_path: pathlib.Path, text: str, word: str) -> None:
    (tmp_path / 'placement-policy.yaml').write_text(text)
    with pytest.raises(exception.ConfigurationInvalid, match=word) as caught:
        _enforcer(_load(tmp_path))
    assert '\n' not in str(caught.value)
    assert 'placement-policy.yaml' in str(caught.value)


def test_a_rule_that_denies_everybody(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'placement-policy.yaml').write_text('"placement:usages": "!"\n"placement:traits:list": ""\n')
    conf = _load(tmp_path)
    enforcer = _enforcer(conf)
    _context(conf, enforcer).can('placement:traits:list')
    with pytest.raises(exception.PolicyNotAuthorized):
        _context(conf, enforcer, 'admin').can('placement:usages')


@pytest.mark.parametrize('group', ['oslo_policy', 'placement'])
def test_a_configured_policy_file_must_exist(tmp_path: pathlib.Path, group: str) -> None:
    with pytest.raises(exception.ConfigurationInvalid, match='does not exist'):
        _enforcer(_load(tmp_path, **{group: {'policy_file': 'rules.yaml'}}))


def test_the_option_of_oslo_policy_wins_and_both_are_relative_to_the_configuration(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'ours.yaml').write_text('"placement:usages": "role:ours"\n')
    (tmp_path / 'oslo.yaml').write_text('"placement:usages": "role:oslo"\n')
    conf = _load(tmp_path, placement={'policy_file': 'ours.yaml'})
    _context(conf, _enforcer(conf), 'ours').can('placement:usages')
    conf = _load(tmp_path, placement={'policy_file': 'ours.yaml'}, oslo_policy={'policy_file': 'oslo.yaml'})
    _context(conf, _enforcer(conf), 'oslo').can('placement:usages')


@pytest.mark.parametrize('rule', ['placement', 'reader_api', 'admin_api', 'service_api'])
def test_a_base_rule_without_effect_is_reported(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, rule: str
) -> None:
    (tmp_path / 'placement-policy.yaml').write_text(f'"{rule}": "role:operator"\n')
    _enforcer(_load(tmp_path))
    assert f'sets the rule "{rule}", which no other rule refers to.' in caplog.text


def test_base_rules_with_an_effect_are_not_reported(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / 'placement-policy.yaml').write_text(
        '"reader_api": "role:reader"\n"placement:traits:list": "rule:reader_api"\n'
        '"project_reader_api": "!"\n"admin_or_service_api": "role:admin"\n'
    )
    _enforcer(_load(tmp_path))
    assert caplog.records == []


def test_an_unused_rule_is_reported_once_with_a_hint(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / 'placement-policy.yaml').write_text(
        '"placement:trait:list": "role:a"\n"mine": "role:a"\n"placement:usages": "rule:mine"\n"default": "!"\n'
    )
    conf = _load(tmp_path)
    _enforcer(conf)
    _enforcer(conf)
    (record,) = caplog.records
    assert record.getMessage() == (
        f'The policy file {tmp_path}/placement-policy.yaml sets the rule "placement:trait:list", which no operation of'
        ' this release uses (did you mean "placement:traits:list"?).'
    )
