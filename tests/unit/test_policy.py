"""Policy: the rules, the operator's file, and what happens when it changes."""

from __future__ import annotations

import errno
import os
import pathlib
import re
import shutil
import threading
import time
from typing import Any

import pytest
from oslo_config import cfg
from oslo_context import context
from oslo_policy import policy as oslo_policy

from placement import conf as configuration
from placement import exception, policies
from placement.web import policy, policy_files

OPERATIONS = [rule.name for rule in policies.list_rules() if rule.name.startswith('placement:')]
#: The only operation whose default rule does not ask for roles alone, and another one.
USAGES, TRAITS = 'placement:usages', 'placement:traits:list'


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files settle in less time than a person would write one, so that tests do not wait for seconds."""
    monkeypatch.setattr(policy_files, 'SETTLING_SECONDS', 0.1)
    monkeypatch.setattr(policy, '_LOOK_SECONDS', 0)


@pytest.fixture
def slow_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files settle only after a time for which a thread that writes does not stall, even on a loaded machine."""
    monkeypatch.setattr(policy_files, 'SETTLING_SECONDS', 1.0)


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    """The policy file, which does not exist yet, beside an empty configuration."""
    (tmp_path / 'placement.conf').touch()
    return tmp_path / 'policy.yaml'


@pytest.fixture(autouse=True)
def _each_line_is_new() -> None:
    """Let lines that a process logs once be logged by each test."""
    configuration.log_once.cache_clear()


def _settle() -> None:
    """Wait until the files that the test has written count as complete."""
    time.sleep(policy_files.SETTLING_SECONDS * 1.2)


def _conf(file: pathlib.Path, **values: dict[str, Any]) -> cfg.ConfigOpts:
    return configuration.load(config_files=[str(file.with_name('placement.conf'))], overrides=values)


def _enforcer(file: pathlib.Path, **values: dict[str, Any]) -> policy.Enforcer:
    return policy.Enforcer(_conf(file, **values), policies.list_rules())


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


def test_a_configuration_file_may_set_an_option_that_oslo_policy_deprecates(file: pathlib.Path) -> None:
    """oslo.policy 4 and 5, of OpenStack 2025.1 to 2026.1, deprecate enforce_scope, which tools write."""
    file.with_name('placement.conf').write_text('[oslo_policy]\nenforce_scope = True\nenforce_new_defaults = True\n')
    for _ in range(2):
        assert _allows(_enforcer(file), 'admin')


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
    assert _enforcer(file).loaded.roles.get(TRAITS) == roles


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
    _settle()
    assert _allows(enforcer, 'reader')
    for text, reason in (
        (f'"{TRAITS}": "role:reader or ("\n', 'cannot be parsed: role:reader or (.'),
        (f'"{TRAITS}": "rule:nowhere"\n', 'refers to "rule:nowhere", which does not exist.'),
        (f'"{TRAITS}":', 'cannot be parsed: None.'),
        (f'"{TRAITS}', 'is invalid: '),
        ('# Rules\n\n---\n', f'The policy file {file} is empty. Write {{}} into it to use the default rules.'),
        ('', f'The policy file {file} is empty. Write {{}} into it to use the default rules.'),
    ):
        caplog.clear()
        file.write_text(text)
        _settle()
        assert [_allows(enforcer, role) for role in ('reader', 'reader', 'admin', 'other')] == [
            True,
            True,
            False,
            False,
        ]
        (line,) = [record.getMessage() for record in caplog.records]
        assert reason in line
        assert line.endswith('The previous rules stay in force.')
    file.write_text('{}\n')
    _settle()
    assert [_allows(enforcer, role) for role in ('reader', 'admin')] == [False, True]


def test_a_file_is_not_read_while_it_changes(file: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is truncated and written as by cp. The rules that it has until it is complete would allow the role admin."""
    # The writer may have to wait for a processor.
    monkeypatch.setattr(policy_files, 'SETTLING_SECONDS', 0.5)
    rules = ['', '"placement:traits:show": "!"\n', f'"{TRAITS}": "role:nobody"\n']
    file.write_text(''.join(rules))
    enforcer = _enforcer(file)
    ended = threading.Event()

    def rewrite() -> None:
        while not ended.is_set():
            with file.open('w') as stream:
                for part in rules:
                    stream.write(part)
                    stream.flush()
                    ended.wait(0.02)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            assert not _allows(enforcer, 'admin')
    finally:
        ended.set()
        writer.join()


@pytest.mark.usefixtures('slow_writer')
def test_the_start_waits_for_a_file_that_changes(file: pathlib.Path) -> None:
    file.touch()
    writer = threading.Timer(policy_files.SETTLING_SECONDS / 2, file.write_text, [f'"{TRAITS}": "role:nobody"\n'])
    writer.start()
    assert not _allows(_enforcer(file), 'admin')
    writer.join()


def test_the_start_reads_a_file_that_changes_all_the_time_after_a_while(
    file: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, '_MAX_WAIT_SECONDS', 0.1)
    monkeypatch.setattr(policy_files, 'SETTLING_SECONDS', 60.0)
    file.write_text(f'"{TRAITS}": "role:nobody"\n')
    assert [_allows(_enforcer(file), role) for role in ('admin', 'nobody')] == [False, True]


@pytest.mark.parametrize('text', [None, '', 'no mapping', f'"{TRAITS}": "!", broken'])
def test_a_process_that_starts_while_the_file_is_away_or_invalid_begins_with_the_rules_of_its_parent(
    file: pathlib.Path, text: str | None
) -> None:
    file.write_text(f'"{TRAITS}": "role:nobody"\n')
    parent = _enforcer(file)
    file.unlink()
    if text is not None:
        file.write_text(text)
    _settle()
    child = policy.Enforcer(_conf(file), policies.list_rules(), parent.loaded)
    assert [_allows(child, role) for role in ('admin', 'nobody')] == [False, True]
    file.write_text(f'"{TRAITS}": "role:somebody"\n')
    _settle()
    assert [_allows(child, role) for role in ('nobody', 'somebody')] == [False, True]


@pytest.mark.parametrize('name', ['policy.yaml', 'placement-policy.yaml', 'policy.d', 'policy.d/traits.yaml'])
def test_the_rules_of_a_file_that_is_moved_away_stay_in_force(
    file: pathlib.Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    source = file.with_name('policy.d') / 'traits.yaml' if name.startswith('policy.d') else file.with_name(name)
    source.parent.mkdir(exist_ok=True)
    source.write_text(f'"{TRAITS}": "role:nobody"\n')
    enforcer = _enforcer(file)
    moved, away = file.parent / name, file.with_name('away')
    moved.rename(away)
    _settle()
    assert not any(_allows(enforcer, 'admin') for _ in range(3))
    assert caplog.text.count(f'The policy file {source} no longer exists') == 1
    away.rename(moved)
    source.write_text(f'"{TRAITS}": "role:admin"\n')
    _settle()
    assert _allows(enforcer, 'admin')


def test_the_log_says_again_that_a_file_is_missing_or_invalid(
    file: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(policy, '_REPORT_SECONDS', 0)
    file.write_text(f'"{TRAITS}": "role:nobody"\n')
    enforcer = _enforcer(file)
    file.unlink()
    assert not any(_allows(enforcer, 'admin') for _ in range(3))
    file.write_text('text')
    _settle()
    assert not any(_allows(enforcer, 'admin') for _ in range(3))
    assert [record.getMessage().endswith('The previous rules stay in force.') for record in caplog.records] == [
        True
    ] * 6


def test_a_file_that_changes_while_it_is_read_is_read_again(
    file: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(f'"{TRAITS}": "role:nobody"\n')
    enforcer = _enforcer(file)
    parse = oslo_policy.parse_file_contents

    def parse_less(content: str | bytes) -> dict[str, str]:
        monkeypatch.setattr(oslo_policy, 'parse_file_contents', parse)
        shutil.copy(file, file.with_name('copy'))
        file.with_name('copy').rename(file)
        return parse('{}')

    file.write_text(f'"{TRAITS}": "role:nobody or role:none"\n')
    _settle()
    monkeypatch.setattr(oslo_policy, 'parse_file_contents', parse_less)
    assert not any(_allows(enforcer, 'admin') for _ in range(3))
    _settle()
    assert _allows(enforcer, 'none')


def test_a_directory_that_cannot_be_read_stops_the_start_and_keeps_the_rules_in_force(
    file: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rules = file.with_name('policy.d') / 'traits.yaml'
    rules.parent.mkdir()
    rules.write_text(f'"{TRAITS}": "role:nobody"\n')
    enforcer = _enforcer(file)

    def refuse(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, 'Permission denied', path)

    # The user of the tests may read every directory.
    monkeypatch.setattr(os, 'listdir', refuse)
    assert not any(_allows(enforcer, 'admin') for _ in range(3))
    assert caplog.text.count('The policy files cannot be read: ') == 1
    with pytest.raises(exception.ConfigurationInvalid, match=r'The policy files cannot be read: .*Permission'):
        policy.load(enforcer._conf, policies.list_rules())


@pytest.mark.parametrize(
    ('text', 'problem'),
    [
        ('a: [', ''),
        ('- a\n- b\n', 'it is not a mapping.'),
        ('text', 'it is not a mapping.'),
    ],
)
def test_a_file_without_a_mapping_stops_the_start_with_one_line(file: pathlib.Path, text: str, problem: str) -> None:
    file.write_text(text)
    with pytest.raises(exception.ConfigurationInvalid) as caught:
        _enforcer(file)
    assert str(caught.value).startswith(f'The policy file {file} is invalid: {problem}')
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
    ('text', 'reason'),
    [
        ('"{rule}": "role:admin or ("', 'cannot be parsed: role:admin or (.'),
        ('"{rule}": "administrators"', 'cannot be parsed: administrators.'),
        ('"{rule}": "not administrators"', 'cannot be parsed: not administrators.'),
        ('"{rule}": 5', 'cannot be parsed: 5.'),
        # oslo.policy would allow everything.
        ('"{rule}":', 'cannot be parsed: None.'),
        ('"{rule}": false', 'cannot be parsed: False.'),
        ('"{rule}": "rule:nowhere"', 'refers to "rule:nowhere", which does not exist.'),
        ('"{rule}": "not rule:nowhere"', 'refers to "rule:nowhere", which does not exist.'),
        (
            '"{rule}": "role:admin and not (rule:admin_ap or @)"',
            'refers to "rule:admin_ap", which does not exist (did you mean "admin_api"?).',
        ),
        ('"{rule}": "rule:{rule}"', 'refers to itself.'),
    ],
)
def test_an_invalid_rule_denies_with_one_line(
    file: pathlib.Path, caplog: pytest.LogCaptureFixture, text: str, reason: str
) -> None:
    for rule in (TRAITS, USAGES):
        caplog.clear()
        file.write_text(text.format(rule=rule))
        enforcer = _enforcer(file)
        assert not any(_allows(enforcer, role, rule=rule) for role in ('admin', 'service', 'nobody'))
        assert _allows(enforcer, 'admin', rule='placement:traits:show')
        assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
            ('ERROR', f'The rule "{rule}" of the policy file {file} {reason} It denies every request.')
        ]


def test_an_invalid_rule_allows_nothing_by_being_negated(file: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(f'"mine": "rule:nowhere"\n"yours": "rule:mine"\n"{TRAITS}": "role:admin and not rule:yours"\n')
    assert not _allows(_enforcer(file), 'admin')
    assert f'The rule "{TRAITS}" of the policy file {file} contains "not" and refers to the rule "mine"' in caplog.text


def test_lists_of_oslo_policy_are_rules(file: pathlib.Path) -> None:
    file.write_text(f'"{TRAITS}": [["role:a", "project_id:p"], "role:b"]\n')
    assert [_allows(_enforcer(file), role) for role in 'abc'] == [True, True, False]


@pytest.mark.parametrize(
    ('names', 'effective'),
    [
        (['policy.yaml'], 'policy.yaml'),
        (['policy.json'], 'policy.json'),
        (['placement-policy.yaml'], 'placement-policy.yaml'),
        (['policy.json', 'policy.yaml'], 'policy.yaml'),
        # Files of policy.d are read after the file, in the order of their names, without hidden ones.
        (['policy.yaml', 'policy.d/a.yaml', 'policy.d/b.yaml', 'policy.d/.c.yaml'], 'policy.d/b.yaml'),
        (['policy.d/a.yaml'], 'policy.d/a.yaml'),
    ],
)
def test_the_file_beside_the_configuration_is_read(file: pathlib.Path, names: list[str], effective: str) -> None:
    (file.parent / 'policy.d').mkdir()
    for name in names:
        # JSON is YAML.
        (file.parent / name).write_text(f'{{"{TRAITS}": "role:{name}"}}\n')
    assert [name for name in names if _allows(_enforcer(file), name)] == [effective]


@pytest.mark.parametrize('name', ['policy.yaml', 'policy.json'])
def test_a_file_with_its_former_name_beside_the_default_file_is_refused(
    file: pathlib.Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    former = file.with_name('placement-policy.yaml')
    former.write_text(f'"{TRAITS}": "role:former"\n')
    enforcer = _enforcer(file)
    file.with_name(name).write_text(f'{{"{TRAITS}": "role:current"}}')
    _settle()
    assert [_allows(enforcer, role) for role in ('former', 'current')] == [True, False]
    message = f'There are two policy files, {file.with_name(name)} and {former}. Move the rules into '
    assert caplog.text.count(message) == 1
    with pytest.raises(exception.ConfigurationInvalid, match=re.escape(message)):
        _enforcer(file)
    # A file that the configuration names is the only one.
    named = _enforcer(file, oslo_policy={'policy_file': 'placement-policy.yaml'})
    assert _allows(named, 'former')


def test_files_are_found_as_oslo_policy_finds_them(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a directory of --config-dir, beside the files of the configuration, and in the default directory."""
    monkeypatch.setenv('OS_PLACEMENT_CONFIG_DIR', str(tmp_path / 'default'))
    directories = [tmp_path / name for name in ('default', 'first', 'second', 'directory')]
    for directory in directories:
        directory.mkdir()
        (directory / 'some.conf').touch()
        (directory / 'policy.yaml').write_text(f'"{TRAITS}": "role:{directory.name}"\n')
    files = [f'--config-file={tmp_path}/{name}/some.conf' for name in ('first', 'second')]
    conf = configuration.load([*files, '--config-dir', str(tmp_path / 'directory')])
    for name in ('directory', 'second', 'first', 'default'):
        enforcer = policy.Enforcer(conf, policies.list_rules())
        assert [role for role in ('default', 'first', 'second', 'directory') if _allows(enforcer, role)] == [name]
        (tmp_path / name / 'policy.yaml').unlink()


@pytest.mark.parametrize('group', ['oslo_policy', 'placement'])
def test_a_configured_policy_file_may_be_missing(
    file: pathlib.Path, caplog: pytest.LogCaptureFixture, group: str
) -> None:
    enforcer = _enforcer(file, **{group: {'policy_file': 'rules.yaml'}})
    assert [_allows(enforcer, role) for role in ('admin', 'nobody')] == [True, False]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            'WARNING',
            f'The policy file rules.yaml, named by [{group}] policy_file, does not exist. The default rules apply.',
        )
    ]
    file.with_name('rules.yaml').write_text(f'"{TRAITS}": "role:nobody"\n')
    _settle()
    assert [_allows(enforcer, role) for role in ('admin', 'nobody')] == [False, True]


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
            (f'"{rule}": "role:operator"\n', [f'the rule "{rule}", which no operation of this release uses.'])
            for rule in ('placement', 'reader_api', 'admin_api', 'service_api')
        ),
        # Base rules with an effect.
        (f'"reader_api": "role:reader"\n"{TRAITS}": "rule:reader_api"\n"project_reader_api": "!"\n', []),
        ('"admin_or_service_api": "role:admin"\n', []),
        # A rule that another one without effect refers to.
        (
            '"admin_api": "role:operator"\n"reader_api": "rule:admin_api"\n',
            [f'the rule "{rule}", which no operation of this release uses.' for rule in ('admin_api', 'reader_api')],
        ),
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


@pytest.mark.usefixtures('slow_writer')
@pytest.mark.parametrize(('age', 'settled'), [(2.0, True), (0.2, False), (-30.0, False), (-3600.0, True)])
def test_a_file_may_come_from_a_host_with_another_clock(age: float, settled: bool) -> None:
    """A clock that is a bit ahead makes the file wait; a wrong one does not prevent that it is ever read."""
    changed = int((time.time() - age) * 1e9)
    file = policy_files.FileState('policy.yaml', changed, size=10, inode=1)
    assert policy_files.are_settled((file,)) is settled
