"""The stories of ``doc/plan.md``: the commands print what the page says, and the migrations are real claims."""

from __future__ import annotations

import json
import pathlib
import re
import shlex

from placement.claims.claim import replace_allocations
from placement.claims.requested import ConsumerClaim
from placement.cmd import manage
from placement.db.api import Database
from placement.objects.resource_provider import ResourceProvider
from placement.ops.audit import audit
from placement.ops.audit.kinds import KINDS
from placement.web.authentication import RequestContext
from tests.support import applications
from tests.support.clouds import Amounts, Cloud, Provider, create_cloud, uuid_of
from tests.support.fixtures import Printed
from tests.support.objects import set_traits

PAGE = pathlib.Path(__file__).parents[2] / 'doc' / 'plan.md'
#: The instances of each host, all of the same flavor.
INSTANCES = (3, 3, 2, 2, 3, 3)


def cloud() -> Cloud:
    """Three racks with two hosts each."""
    size = {'VCPU': {'total': 16}, 'MEMORY_MB': {'total': 40960}}
    hosts = [Provider(f'compute-{number}', size, (), (f'rack-{number // 2}',)) for number in range(len(INSTANCES))]
    held: dict[str, dict[str, Amounts]] = {
        f'server-{host}-{number}': {f'compute-{host}': {'VCPU': 4, 'MEMORY_MB': 8192}}
        for host, count in enumerate(INSTANCES)
        for number in range(count)
    }
    return Cloud(hosts, held)


class Story:
    """Runs the lines of the page."""

    def __init__(self, db: Database, context: RequestContext, printed: Printed) -> None:
        self.db = db
        self.context = context
        self.printed = printed
        self.loop: list[str] | None = None

    def run(self, line: str) -> str:
        """Run a line after its prompt, and return what it prints."""
        if line.startswith('for '):
            self.loop = [line]
        elif self.loop is not None and line != 'done':
            self.loop.append(line.strip())
        elif self.loop is not None:
            hosts = re.findall(r'compute-\d', self.loop[0])
            body, self.loop = self.loop[1:], None
            for host in hosts:
                assert not ''.join(self.run(command.replace('$host', host)) for command in body)
        else:
            return self._run_command(line)
        return ''

    def _run_command(self, line: str) -> str:
        command, _, rest = line.partition(' | ')
        words = shlex.split(command)
        if words[0] == 'placement-manage':
            output = self._output(words[1:])
            if rest.startswith('grep'):
                assert shlex.split(rest)[2] in output
            elif rest:
                assert re.fullmatch(r'jq -r .* \| sh', rest)
                for move in json.loads(output)['moves']:
                    self._migrate(move['consumer'], move['to']['uuid'])
            return '' if rest else output
        if words[:4] == ['openstack', 'compute', 'service', 'set']:
            provider = ResourceProvider.get_by_uuid(self.context, uuid_of(words[5]))
            set_traits(provider, ['COMPUTE_STATUS_DISABLED'] if words[4] == '--disable' else [])
        else:
            assert words[0] == 'ssh'
        return ''

    def _output(self, arguments: list[str]) -> str:
        code = 1 if 'compute-4 compute-5' in ' '.join(arguments) else 0
        return self.printed(*arguments, code=code)

    def _migrate(self, consumer: str, provider: str) -> None:
        claims = {provider: {'VCPU': 4, 'MEMORY_MB': 8192}}
        replace_allocations(self.db, [ConsumerClaim(consumer, 'project-blue', 'user-ada', claims)])


def test_commands_print_what_the_page_says(db: Database, url: str, context: RequestContext, printed: Printed) -> None:
    create_cloud(db, cloud())
    story = Story(db, context, printed)
    blocks = re.findall(r'^```console\n(.*?)^```$', PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        text = ''
        for line in block.splitlines():
            if line.startswith(('$ ', '> ')):
                text += f'{line}\n{story.run(line[2:])}'
        assert text == block
    conf = applications.options('sqlite://')
    assert not [finding for kind in KINDS for finding in audit.find(db, conf, kind)]
    assert manage.main(['plan', 'drain', 'compute-5']) == 0
