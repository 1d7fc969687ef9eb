"""The tools of oslo that operators run on this service: samples of its files, and redundant policy rules."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from placement import policies


def test_a_sample_of_the_policy_can_be_generated(tmp_path: pathlib.Path) -> None:
    sample = tmp_path / 'sample.yaml'
    program = pathlib.Path(sys.executable).with_name('oslopolicy-sample-generator')
    subprocess.run(
        [program, '--namespace', 'placement', '--output-file', sample], check=True, timeout=120, env={**os.environ}
    )
    text = sample.read_text()
    rules = [rule for rule in policies.list_rules() if not rule.deprecated_for_removal]
    assert [rule.name for rule in rules if f'#"{rule.name}": "{rule.check_str}"' not in text] == []


def test_the_tools_of_oslo_policy_find_redundant_rules(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'placement-policy.yaml').write_text(
        '"placement:traits:show": "rule:admin_or_service_api"\n"placement:traits:list": "role:reader"\n'
    )
    (tmp_path / 'placement.conf').touch()
    program = pathlib.Path(sys.executable).with_name('oslopolicy-list-redundant')
    listed = subprocess.run(
        [program, '--namespace', 'placement'],
        check=True,
        timeout=120,
        env={**os.environ, 'OS_PLACEMENT_CONFIG_DIR': str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert listed.stdout.splitlines() == ['"placement:traits:show": "rule:admin_or_service_api"']


@pytest.mark.parametrize('namespace', ['placement', 'placement.conf'])
def test_a_sample_of_the_configuration_has_every_group(tmp_path: pathlib.Path, namespace: str) -> None:
    sample = tmp_path / 'sample.conf'
    program = pathlib.Path(sys.executable).with_name('oslo-config-generator')
    subprocess.run([program, '--namespace', namespace, '--output-file', sample], check=True, timeout=120)
    text = sample.read_text()
    for group in ('DEFAULT', 'api', 'placement', 'placement_database', 'cors', 'oslo_policy', 'keystone_authtoken'):
        assert f'\n[{group}]\n' in f'\n{text}'
    assert 'X-Identity-Status' in text
