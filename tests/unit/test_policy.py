"""Policy: the rules, the operator's file, and what happens when it changes."""

from __future__ import annotations

import pathlib

import pytest
from oslo_config import cfg

from placement import conf as configuration
from placement import exception, policies
from placement.db.api import Database
from placement.web import policy
from placement.web.context import RequestContext

OPERATIONS = [rule.name for rule in policies.list_rules() if rule.name.startswith('placement:')]
#: The rules of operations that only read.
READS = {name for name in OPERATIONS if name.rpartition(':')[2] in ('list', 'show', 'usages')}


def _load(tmp_path: pathlib.Path, **environ: str) -> cfg.ConfigOpts:
    (tmp_path / 'placement.conf').touch()
    return configuration.load(
        environ={
            'OS_PLACEMENT_CONFIG_DIR': str(tmp_path),
            'OS_PLACEMENT_DATABASE__CONNECTION': 'sqlite://',
            **environ,
        }
    )


def _context(conf: cfg.ConfigOpts, enforcer: policy.Enforcer, *roles: str) -> RequestContext:
    return RequestContext(
        conf=conf, db=Database(conf), enforcer=enforcer, roles=list(roles), user_id='u', project_id='p'
    )


def test_there_is_a_rule_for_each_operation() -> None:
    assert len(OPERATIONS) == 32
    assert len(set(OPERATIONS)) == 32
    for rule in policies.list_rules():
        assert rule.scope_types == ['system']
        if rule.name in OPERATIONS:
            assert rule.check_str == ('rule:reader_api' if rule.name in READS else 'rule:admin_api')


@pytest.mark.parametrize('role', ['Admin', 'service'])
def test_administrators_and_services_may_do_everything_and_others_nothing(tmp_path: pathlib.Path, role: str) -> None:
    conf = _load(tmp_path)
    enforcer = policy.Enforcer(conf)
    trusted, member = _context(conf, enforcer, role), _context(conf, enforcer, 'member', 'administrator')
    for rule in OPERATIONS:
        trusted.can(rule)
        with pytest.raises(exception.PolicyNotAuthorized) as caught:
            member.can(rule)
        assert str(caught.value) == f'Policy does not allow {rule} to be performed'


@pytest.mark.parametrize('rule', OPERATIONS)
def test_each_rule_can_be_overridden_in_both_directions(tmp_path: pathlib.Path, rule: str) -> None:
    (tmp_path / 'placement-policy.yaml').write_text(f'"{rule}": "role:member"\n')
    conf = _load(tmp_path)
    enforcer = policy.Enforcer(conf)
    _context(conf, enforcer, 'member').can(rule)
    with pytest.raises(exception.PolicyNotAuthorized):
        _context(conf, enforcer, 'admin').can(rule)
    for other in OPERATIONS:
        if other != rule:
            _context(conf, enforcer, 'admin').can(other)


def test_one_line_makes_a_role_that_only_reads(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'placement-policy.yaml').write_text('"reader_api": "rule:admin_api or role:reader"\n')
    conf = _load(tmp_path)
    enforcer = policy.Enforcer(conf)
    reader, admin = _context(conf, enforcer, 'reader'), _context(conf, enforcer, 'admin')
    for rule in OPERATIONS:
        admin.can(rule)
        if rule in READS:
            reader.can(rule)
        else:
            with pytest.raises(exception.PolicyNotAuthorized):
                reader.can(rule)


@pytest.mark.parametrize(
    ('text', 'roles'),
    [
        ('', {'admin', 'service'}),
        ('"reader_api": "rule:admin_api or role:Reader"\n', {'admin', 'service', 'reader'}),
        ('"admin_api": "role:operator"\n', {'operator'}),
        ('"reader_api": "role:a and role:b"\n', None),
        ('"reader_api": "role:a or project_id:p"\n', None),
        ('"reader_api": "role:a or not role:b"\n', None),
        ('"reader_api": ""\n', None),
    ],
)
def test_rules_that_name_roles_only_are_kept_as_sets(tmp_path: pathlib.Path, text: str, roles: set[str] | None) -> None:
    (tmp_path / 'placement-policy.yaml').write_text(text)
    assert policy.Enforcer(_load(tmp_path))._in_force.roles.get('placement:traits:list') == roles


def test_the_target_is_the_callers_own_project(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'placement-policy.yaml').write_text('"placement:usages": "project_id:%(project_id)s"\n')
    conf = _load(tmp_path)
    context = _context(conf, policy.Enforcer(conf))
    context.can('placement:usages')
    with pytest.raises(exception.PolicyNotAuthorized):
        context.can('placement:usages', {'project_id': 'another'})


@pytest.mark.parametrize('rule', ['rule:own', 'role:%(project_id)s', 'rule:own and rule:own'])
def test_a_role_may_depend_on_the_target(tmp_path: pathlib.Path, rule: str) -> None:
    (tmp_path / 'placement-policy.yaml').write_text(f'"own": "role:%(project_id)s"\n"placement:usages": "{rule}"\n')
    conf = _load(tmp_path)
    context = _context(conf, policy.Enforcer(conf), 'P')
    context.can('placement:usages')
    with pytest.raises(exception.PolicyNotAuthorized):
        context.can('placement:usages', {'project_id': 'another'})


def test_a_changed_file_is_read_again_and_an_invalid_one_is_ignored(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / 'placement-policy.yaml'
    conf = _load(tmp_path)
    context = _context(conf, policy.Enforcer(conf), 'reader')
    with pytest.raises(exception.PolicyNotAuthorized):
        context.can('placement:traits:list')
    file.write_text('"placement:traits:list": "role:reader"\n')
    context.can('placement:traits:list')
    file.write_text('"placement:traits:list": "role:reader or ("\n')
    context.can('placement:traits:list')
    assert 'cannot be understood' in caplog.text
    file.write_text('"placement:traits:list": "role:nobody"\n')
    with pytest.raises(exception.PolicyNotAuthorized):
        context.can('placement:traits:list')
    file.unlink()
    _context(conf, context.policy, 'admin').can('placement:traits:list')


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
        policy.Enforcer(_load(tmp_path))
    assert '\n' not in str(caught.value)
    assert 'placement-policy.yaml' in str(caught.value)


def test_a_rule_can_be_never(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'placement-policy.yaml').write_text('"placement:usages": "!"\n"placement:traits:list": ""\n')
    conf = _load(tmp_path)
    enforcer = policy.Enforcer(conf)
    _context(conf, enforcer).can('placement:traits:list')
    with pytest.raises(exception.PolicyNotAuthorized):
        _context(conf, enforcer, 'admin').can('placement:usages')


@pytest.mark.parametrize('variable', ['OS_OSLO_POLICY__POLICY_FILE', 'OS_PLACEMENT__POLICY_FILE'])
def test_a_configured_policy_file_must_exist(tmp_path: pathlib.Path, variable: str) -> None:
    with pytest.raises(exception.ConfigurationInvalid, match='does not exist'):
        policy.Enforcer(_load(tmp_path, **{variable: 'rules.yaml'}))


def test_the_option_of_oslo_policy_wins_and_both_are_relative_to_the_configuration(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'ours.yaml').write_text('"placement:usages": "role:ours"\n')
    (tmp_path / 'oslo.yaml').write_text('"placement:usages": "role:oslo"\n')
    conf = _load(tmp_path, OS_PLACEMENT__POLICY_FILE='ours.yaml')
    _context(conf, policy.Enforcer(conf), 'ours').can('placement:usages')
    conf = _load(tmp_path, OS_PLACEMENT__POLICY_FILE='ours.yaml', OS_OSLO_POLICY__POLICY_FILE='oslo.yaml')
    _context(conf, policy.Enforcer(conf), 'oslo').can('placement:usages')


def test_an_undefined_rule_is_reported(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / 'placement-policy.yaml').write_text('"placement": "role:operator"\n')
    policy.Enforcer(_load(tmp_path))
    assert 'nothing refers to' in caplog.text


def test_an_unused_rule_is_reported_once_with_a_hint(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / 'placement-policy.yaml').write_text(
        '"placement:trait:list": "role:a"\n"mine": "role:a"\n"placement:usages": "rule:mine"\n"default": "!"\n'
    )
    conf = _load(tmp_path)
    policy.Enforcer(conf)
    policy.Enforcer(conf)
    (record,) = caplog.records
    assert record.getMessage() == (
        f'The policy file {tmp_path}/placement-policy.yaml sets the rule "placement:trait:list", which no operation of'
        ' this release asks for (did you mean "placement:traits:list"?).'
    )
