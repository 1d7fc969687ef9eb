"""The compute service of a current release: its own report client and its upgrade check, with a real Keystone.

Nova is installed into an environment of its own. Its service user has the role ``service`` and no other.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import services
from tests.integration.operations import identity
from tests.support import servers
from tests.support.applications import NEWEST_MICROVERSION

#: Has the role ``service`` and no other.
USER = 'nova'
STEPS = pathlib.Path(__file__).with_name('compute_client.py')


@pytest.fixture
def configuration(
    request: pytest.FixtureRequest, keystone: identity.Keystone, tmp_path: pathlib.Path
) -> Iterator[pathlib.Path]:
    """Nova's configuration file, for a running service whose newest microversion is the parameter."""
    environment = servers.variables(
        api={'auth_strategy': 'keystone'},
        keystone_authtoken=keystone.options('placement'),
        placement={'max_microversion': request.param},
    )
    database = f'sqlite:///{tmp_path}/placement.sqlite'
    with servers.serving(database, tmp_path, metrics=False, environment=environment) as server:
        lines = keystone.options(USER) | {'endpoint_override': server.url}
        file = tmp_path / 'nova.conf'
        file.write_text('[placement]\n' + ''.join(f'{name} = {value}\n' for name, value in lines.items()))
        yield file


def run(*arguments: str) -> Any:
    """Run the script in nova's environment; returns the JSON that it prints."""
    python = services.environment('nova', ['nova']) / 'python'
    printed = services.run([str(python), '-W', 'ignore', str(STEPS), *arguments])
    return json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize('configuration', [NEWEST_MICROVERSION], indirect=True)
def test_a_compute_node_and_a_scheduler(configuration: pathlib.Path) -> None:
    done = run(str(configuration), 'walk')
    cell, disk = {'MEMORY_MB': 512, 'VCPU': 2}, {'DISK_GB': 10}
    port = {'NET_PACKET_RATE_KILOPACKET_PER_SEC': 10}, {'NET_BW_EGR_KILOBIT_PER_SEC': 100}
    assert done == {
        'microversion': '1.36',
        'hosts': 2,
        'claimed': True,
        'held': {'compute0': cell | disk},
        'reshaped': {'compute0': disk, 'cell0': cell},
        # The processors and the memory may come from different cells.
        'ways': 4,
        'port claimed': True,
        'port held': {'cell1': cell, 'compute0': disk, 'agent': port[0], 'device-red': port[1]},
        'moved': True,
        'migration': {'cell0': cell, 'compute0': disk},
        'claimed again': True,
        'held again': {'compute1': cell | disk},
        'released': True,
        'migration in the end': {},
    }


@pytest.mark.parametrize(
    ('configuration', 'verdict'), [('1.36', 'Success'), ('1.29', 'Failure')], indirect=['configuration']
)
def test_the_upgrade_check_of_nova(configuration: pathlib.Path, verdict: str) -> None:
    assert run(str(configuration), 'check') == verdict
