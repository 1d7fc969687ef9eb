"""Policy: the rules, the operator's file, and what happens when it changes."""

from __future__ import annotations

import pathlib
import shutil
from typing import Any

import pytest
from oslo_context import context
from oslo_policy import policy as oslo_policy

from placement import conf as configuration
from placement import exception, policies
from placement.web import policy

OPERATIONS = [rule.name for rule in policies.list_rules() if rule.name.startswith('placement:')]
#: The only operation whose default rule does not ask for roles alone, and another one.
USAGES, TRAITS = 'placement:usages', 'placement:traits:list'


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    """The policy file, which does not exist yet, beside an empty configuration."""
    (tmp_path / 'placement.conf').touch()
    return tmp_path / 'placement-policy.yaml'


def _enforcer(file: pathlib.Path, **values: dict[str, Any]) -> policy.Enforcer:
    conf = configuration.load(config_files=[str(file.with_name('placement.conf'))], overrides=values)
    return policy.Enforcer(conf, policies.list_rules())


def _allows(enforcer: policy.Enforcer, *roles: str, rule: str = TRAITS, project_id: str = 'p') -> bool:
    """Whether a caller of project p may do something, such as read the usages of the project ``project_id``."""
    caller = context.RequestContext(roles=list(roles), user_id='u', project_id='p')
    return enforcer.allows(rule, {'project_id': project_id, 'user_id': 'u'}, caller)


def test_the_rules_are_those_of_other_services() -> None:
    rules = {rule.name: rule.check_str for rule in policies.list_rules()}
    assert all(rule.scope_types == ['project'] for rule in policies.list_rules())
    assert len(rules) == len(policies.list_rules())
    assert rules == dict.fromkeys(OPERATIONS, 'rule:admin_or_service_api') | {
        USAGES: 'rule:admin_or_project_reader_or_service_api',
        'admin_api': 'role:admin',
        'service_api': 'role:service',
        'admin_or_service_api': 'role:admin or role:service',
        'project_reader_api': 'role:reader and project_id:%(project_id)s',
        'admin_or_project_reader_or_service_api': 'role:admin or rule:project_reader_api or role:service',
        'reader_api': 'rule:admin_or_service_api',
        'placement': 'role:admin',
    }


def test_a_file_overrides_one_rule_in_both_directions(file: pathlib.Path) -> None:
    file.write_text(f'"{TRAITS}": "role:member"\n"placement:traits:show": "!"\n"placement:traits:update": ""\n')
    enforcer = _enforcer(file)
    assert _allows(enforcer, 'member')
    assert not _allows(enforcer, 'admin')
    assert not _allows(enforcer, 'admin', rule='placement:traits:show')
    assert _allows(enforcer, rule='placement:traits:update')
    assert _allows(enforcer, 'admin', rule=USAGES)


def test_rules_can_be_overridden_by_the_names_of_the_base_rules(file: pathlib.Path) -> None:
    """As policy files do that were written for other services of this API."""
    file.write_text(
        '"admin_api": "role:boss"\n"service_api": "role:robot"\n'
        '"admin_or_service_api": "rule:admin_api or rule:service_api"\n'
        '"project_reader_api": "role:viewer and project_id:%(project_id)s"\n'
    )
    enforcer = _enforcer(file)
    for rule in OPERATIONS:
        allowed = [_allows(enforcer, role, rule=rule) for role in ('boss', 'robot', 'admin', 'service', 'reader')]
        assert allowed == ([False, False, True, True, False] if rule == USAGES else [True, True, False, False, False])
        assert _allows(enforcer, 'viewer', rule=rule) == (rule == USAGES)


@pytest.mark.parametrize('scope', [{'system_scope': 'all'}, {'domain_id': 'd'}])
def test_tokens_of_other_scopes_are_rejected_unless_scopes_are_not_enforced(
    file: pathlib.Path, scope: dict[str, Any]
) -> None:
    """Also those that a policy file would allow, and those of rules that do not ask for roles alone."""
    file.write_text(f'"{TRAITS}": ""\n')
    for is_enforced in (True, False):
        enforcer = _enforcer(file, oslo_policy={'enforce_scope': is_enforced})
        for rule in OPERATIONS:
            assert _allows(enforcer, 'admin', rule=rule)
            caller = context.RequestContext(roles=['admin'], user_id='u', **scope)
            assert enforcer.allows(rule, {'project_id': None, 'user_id': 'u'}, caller) == (not is_enforced)


@pytest.mark.parametrize(
    ('text', 'roles'),
    [
        ('', {'admin', 'service'}),
        (f'"{TRAITS}": "rule:admin_or_service_api or role:Reader"\n', {'admin', 'service', 'reader'}),
        (f'"{TRAITS}": "rule:reader_api"\n', {'admin', 'service'}),
        ('"admin_or_service_api": "role:operator"\n', {'operator'}),
        ('"admin_or_service_api": "role:a and role:b"\n', None),
        ('"admin_or_service_api": "role:a or project_id:p"\n', None),
        ('"admin_or_service_api": "role:a or not role:b"\n', None),
        ('"admin_or_service_api": ""\n', None),
    ],
)
def test_rules_that_name_roles_only_are_kept_as_sets(file: pathlib.Path, text: str, roles: set[str] | None) -> None:
    file.write_text(text)
    assert _enforcer(file)._in_force.roles.get(TRAITS) == roles


@pytest.mark.parametrize(
    'rule', ['project_id:%(project_id)s', 'rule:own', 'role:%(project_id)s', 'rule:own and rule:own']
)
def test_a_rule_may_depend_on_the_target(file: pathlib.Path, rule: str) -> None:
    file.write_text(f'"own": "role:%(project_id)s"\n"{USAGES}": "{rule}"\n')
    enforcer = _enforcer(file)
    assert _allows(enforcer, 'P', rule=USAGES)
    assert not _allows(enforcer, 'P', rule=USAGES, project_id='another')


def test_a_changed_file_is_read_again_and_an_invalid_one_is_ignored(
    file: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    enforcer = _enforcer(file)
    assert not _allows(enforcer, 'reader')
    file.write_text(f'"{TRAITS}": "role:reader"\n')
    assert _allows(enforcer, 'reader')
    file.write_text(f'"{TRAITS}": "role:reader or ("\n')
    assert _allows(enforcer, 'reader')
    assert 'cannot be parsed' in caplog.text
    file.write_text(f'"{TRAITS}": "role:nobody"\n')
    assert not _allows(enforcer, 'reader')


@pytest.mark.parametrize('name', ['placement-policy.yaml', 'policy.d'])
def test_the_rules_of_a_file_that_is_moved_away_stay_in_force(
    file: pathlib.Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    source = file.with_name(name)
    if name == 'policy.d':
        source.mkdir()
    rules = source / 'traits.yaml' if source.is_dir() else source
    rules.write_text(f'"{TRAITS}": "role:nobody"\n')
    enforcer = _enforcer(file)
    source.rename(file.with_name('away'))
    assert not any(_allows(enforcer, 'admin') for _ in range(3))
    assert caplog.text.count(f'The policy file {source} no longer exists') == 1
    file.with_name('away').rename(source)
    rules.write_text(f'"{TRAITS}": "role:admin"\n')
    assert _allows(enforcer, 'admin')


def test_a_file_that_is_away_only_while_it_is_read_is_read_again(
    file: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """oslo.policy takes the defaults for the rules of a file that it does not find."""
    file.write_text(f'"{TRAITS}": "role:nobody"\n')
    enforcer = _enforcer(file)
    load = oslo_policy.Enforcer.load_rules

    def load_without_the_file(rules: oslo_policy.Enforcer) -> None:
        monkeypatch.setattr(oslo_policy.Enforcer, 'load_rules', load)
        file.rename(file.with_name('away'))
        load(rules)
        shutil.copy(file.with_name('away'), file)

    file.write_text(f'"{TRAITS}": "role:nobody or role:none"\n')
    monkeypatch.setattr(oslo_policy.Enforcer, 'load_rules', load_without_the_file)
    assert not any(_allows(enforcer, 'admin') for _ in range(3))


@pytest.mark.parametrize(
    ('text', 'word'),
    [
        ('a: [', 'invalid'),
        ('- a\n- b\n', 'invalid'),
        (f'"{USAGES}": "role:admin or ("\n', USAGES),
        (f'"{USAGES}": "administrators"\n', USAGES),
        (f'"{USAGES}": "rule:nowhere"\n', f'"{USAGES}" refers to "rule:nowhere", which does not exist'),
        (f'"{USAGES}": "role:a and not (rule:admin_ap or @)"\n', 'did you mean "admin_api"'),
        (f'"{USAGES}": "rule:{USAGES}"\n', USAGES),
        (f'"{USAGES}": 5\n', 'invalid'),
    ],
)
def test_an_invalid_file_stops_the_start_with_one_line(file: pathlib.Path, text: str, word: str) -> None:
    file.write_text(text)
    with pytest.raises(exception.ConfigurationInvalid, match=word) as caught:
        _enforcer(file)
    assert '\n' not in str(caught.value)
    assert 'placement-policy.yaml' in str(caught.value)


@pytest.mark.parametrize('group', ['oslo_policy', 'placement'])
def test_a_configured_policy_file_must_exist(file: pathlib.Path, group: str) -> None:
    with pytest.raises(exception.ConfigurationInvalid, match='does not exist'):
        _enforcer(file, **{group: {'policy_file': 'rules.yaml'}})


def test_the_option_of_oslo_policy_wins_and_both_are_relative_to_the_configuration(file: pathlib.Path) -> None:
    for name in ('ours', 'oslo'):
        file.with_name(f'{name}.yaml').write_text(f'"{USAGES}": "role:{name}"\n')
    values = {'placement': {'policy_file': 'ours.yaml'}}
    assert _allows(_enforcer(file, **values), 'ours', rule=USAGES)
    assert _allows(_enforcer(file, **values, oslo_policy={'policy_file': 'oslo.yaml'}), 'oslo', rule=USAGES)


@pytest.mark.parametrize(
    ('text', 'warnings'),
    [
        *(
            (f'"{rule}": "role:operator"\n', [f'the rule "{rule}", which no other rule refers to.'])
            for rule in ('placement', 'reader_api', 'admin_api', 'service_api')
        ),
        # Base rules with an effect.
        (f'"reader_api": "role:reader"\n"{TRAITS}": "rule:reader_api"\n"project_reader_api": "!"\n', []),
        ('"admin_or_service_api": "role:admin"\n', []),
        (
            f'"placement:trait:list": "role:a"\n"mine": "role:a"\n"{USAGES}": "rule:mine"\n"default": "!"\n',
            [f'the rule "placement:trait:list", which no operation of this release uses (did you mean "{TRAITS}"?).'],
        ),
    ],
)
def test_rules_without_effect_are_reported_once(
    file: pathlib.Path, caplog: pytest.LogCaptureFixture, text: str, warnings: list[str]
) -> None:
    file.write_text(text)
    _enforcer(file)
    _enforcer(file)
    assert [record.getMessage() for record in caplog.records] == [
        f'The policy file {file} sets {warning}' for warning in warnings
    ]
