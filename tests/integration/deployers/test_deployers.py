"""Each of nine tools deploys the service, on an empty database and on that of another service.

``tools/`` has what each tool writes. The commands are those that it runs, in its order and as its user.
"""

from __future__ import annotations

import dataclasses
import re

import pytest

from tests.integration.deployers import site as sites
from tests.integration.deployers.site import Site
from tests.support import legacy_database
from tests.support.pages import ROOT

SYNC = 'placement-manage db sync'
ONLINE = 'placement-manage db online_data_migrations'
DISTRIBUTION_FILES = (
    '--config-file /usr/share/placement/placement-dist.conf --config-file /etc/placement/placement.conf'
)
#: What kolla-ansible validate-config runs. Exit code 1 says that it reports options.
VALIDATE = (
    f'{sites.VENV}/bin/oslo-config-validator --config-file {ROOT}/etc/placement/config-generator.conf'
    ' --input-file /etc/placement/placement.conf 2>&1 || test $? = 1'
)
#: The options of kolla's file that the service ignores.
REPORTED = {
    *('cache/backend', 'cache/enabled', 'cache/memcache_servers'),
    *('oslo_concurrency/lock_path', 'placement_database/max_retries'),
}
#: What an operator adds to the options of the user, to let the tool adopt the database.
ADOPT = '\n[placement_database]\nadopt_on_sync = True\n'


@dataclasses.dataclass(frozen=True)
class Tool:
    """A tool that deploys the service."""

    #: The directory of its files, and the title of its section in the guide.
    name: str
    title: str
    #: The URL of the service.
    url: str
    #: The command that starts its server. None for Apache.
    server: str | None = None
    #: The directory of the commands of the service.
    programs: str = '/usr/bin'
    #: What it runs before the service starts, and after it was started.
    before: tuple[str, ...] = (SYNC,)
    after: tuple[str, ...] = (ONLINE,)
    #: The user of the commands and of the server.
    user: str = 'placement'
    #: The file with the options of the user.
    options: str = '/etc/placement/placement.conf'
    #: Whether Apache is in front of its server.
    has_apache: bool = False
    #: Whether its policy forbids to delete traits.
    has_policy: bool = False
    #: What is run as root before the commands.
    preparations: tuple[str, ...] = ()

    def run(self, site: Site, *commands: str) -> None:
        """Run commands, which have to succeed."""
        for command in commands:
            site.run(f'PATH={self.programs}:/usr/bin:/bin {command}', user=self.user)

    def start(self, site: Site) -> None:
        """Start its server, with Apache if this is it or is in front of it, and wait for the probe."""
        if self.server:
            site.start(f'env PATH={self.programs}:/usr/bin:/bin {self.server}', self.user)
        if self.server is None or self.has_apache:
            site.run_as_root('systemctl start apache2')
        site.wait_for(self.url)


TOOLS = [
    Tool(
        'kolla',
        'kolla-ansible',
        'http://127.0.0.1:8780',
        # In Debian 12 the router of HTTP is a plugin of its own.
        '/usr/bin/uwsgi --plugin http /etc/placement/placement-api-uwsgi.ini',
        f'{sites.VENV}/bin',
        before=(SYNC, ONLINE, SYNC),
        has_policy=True,
        # Its image copies the samples.
        preparations=(f'cp --no-clobber {ROOT}/etc/placement/* /etc/placement/',),
    ),
    Tool(
        'helm',
        'openstack-helm',
        'http://127.0.0.1:8778',
        'uwsgi --ini /etc/placement/placement-api-uwsgi.ini',
        '/var/lib/openstack/bin',
        after=(),
    ),
    Tool(
        'osa',
        'openstack-ansible',
        'http://127.0.0.1:8780',
        'uwsgi --autoload --ini /etc/uwsgi/placement-api.ini',
        '/openstack/venvs/placement/bin',
        has_policy=True,
    ),
    Tool(
        'devstack',
        'devstack',
        'http://127.0.0.1/placement',
        'uwsgi --procname-prefix placement --ini /etc/placement/placement-uwsgi.ini',
        f'{sites.VENV}/bin',
        after=(),
        user='stack',
        has_apache=True,
        # It names the project by this line of the file when it edits its constraints.
        preparations=(
            'chown -R stack: /etc/placement',
            'test "$(awk \'/^name.*=/ {print $3}\' setup.cfg)" = placement-server',
        ),
    ),
    Tool(
        'operator',
        'placement-operator',
        'http://127.0.0.1:8778',
        options='/etc/placement/placement.conf.d/custom.conf',
        after=(),
    ),
    Tool(
        'puppet',
        'puppet',
        'http://127.0.0.1:8778',
        preparations=(
            'mkdir -p /var/www/cgi-bin/placement',
            f'cp {ROOT}/placement/wsgi/api.py /var/www/cgi-bin/placement/placement-api',
        ),
    ),
    Tool('charm', 'charm', 'http://127.0.0.1:8778'),
    Tool(
        'rdo',
        'rdo',
        'http://127.0.0.1:8778',
        before=(f'placement-manage {DISTRIBUTION_FILES} db sync',),
    ),
    Tool(
        'debian',
        'debian',
        'http://127.0.0.1:8778',
        '/usr/bin/uwsgi_python3 --ini /etc/placement/placement-api-uwsgi.ini',
        after=(),
        has_policy=True,
    ),
]


@pytest.fixture(params=TOOLS, ids=lambda tool: tool.name)
def tool(request: pytest.FixtureRequest, site: Site) -> Tool:
    """A tool that has written its files."""
    chosen: Tool = request.param
    site.write_files(chosen.name)
    for line in chosen.preparations:
        site.run_as_root(line)
    return chosen


def _check(tool: Tool, site: Site) -> None:
    site.check(tool.url)
    deleted = site.request('DELETE', f'{tool.url}/traits/CUSTOM_NONE')
    assert deleted.status_code == (403 if tool.has_policy else 404), deleted.text


def test_a_new_cloud(tool: Tool, site: Site) -> None:
    tool.run(site, *tool.before)
    tool.start(site)
    tool.run(site, *tool.after)
    _check(tool, site)
    if tool.name == 'kolla':
        validated = site.run_as_root(VALIDATE)
        assert set(re.findall('ERROR:.*:(.*) is not part of the sample config', validated)) == REPORTED, validated
    if tool.name == 'helm':
        assert site.request('GET', 'http://127.0.0.1:1717').json()['workers']
    if tool.name == 'charm':
        site.check(f'{tool.url}/placement')
    output = site.run(f'PATH={tool.programs}:/usr/bin placement-status upgrade check --json', user=tool.user)
    assert max(sites.results(output).values()) < 2


def test_a_cloud_with_the_database_of_another_service(tool: Tool, site: Site) -> None:
    """It is adopted when the operator says so, and the tool may run again. Then it is returned."""
    site.replace_database(legacy=True)
    tables = site.tables()
    command = f'PATH={tool.programs}:/usr/bin {tool.before[0]}'
    assert '[placement_database] adopt_on_sync' in site.run(command, code=127, user=tool.user)
    site.append(tool.options, ADOPT)
    with site.connected():
        assert 'There is a connection of the account placement' in site.run(command, code=127, user=tool.user)
    assert site.tables() == tables
    tool.run(site, *tool.before)
    tool.start(site)
    tool.run(site, *tool.after)
    path = f'{tool.url}/allocations/{legacy_database.INSTANCE}'
    allocations = site.request('GET', path).json()
    assert allocations['consumer_generation'] == 3
    _check(tool, site)
    tool.run(site, *tool.before, *tool.after)
    assert site.request('GET', path).json() == allocations
    site.stop()
    tool.run(site, 'placement-manage db leave --yes')
    assert site.tables().keys() == tables.keys() | {'placement_resource_class_sequence'}


#: The commands of the guide that start a server. The tests of operations run its samples in files.
SERVERS = re.findall(r'^    (/opt/placement/bin/(\w+) .*)$', (ROOT / 'doc' / 'deployers.md').read_text(), re.MULTILINE)


@pytest.mark.parametrize('command', [command for command, _ in SERVERS], ids=[name for _, name in SERVERS])
def test_servers_of_the_guide(command: str, site: Site) -> None:
    site.write_files('osa')
    site.run('/opt/placement/bin/placement-manage db sync')
    site.start(command)
    url = 'http://127.0.0.1:8778'
    site.wait_for(url)
    site.check(url)


def test_the_guide_has_a_section_for_each_tool() -> None:
    guide = (ROOT / 'doc' / 'deployers.md').read_text()
    titles = re.findall('^## (.*)$', guide, re.MULTILINE)
    assert [title.lower() for title in titles[1:-1]] == [tool.title for tool in TOOLS]
    assert {name for _, name in SERVERS} == {'gunicorn', 'granian'}
