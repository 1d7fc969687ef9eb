"""Installs MySQL in a directory of its own, and starts a group of such servers on loopback.

For tests and for trying things out: ``python -m tools.mysql install`` and ``python -m tools.mysql``. The binaries are
Debian's, from the suite that has MySQL. A MariaDB of this machine is not touched.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import tempfile
from collections.abc import Mapping

from tools import nodes

#: Extracts the packages into a directory. The stable releases of Debian have MariaDB instead.
EXTRACT = (
    'mmdebstrap',
    # Without privileges, also as root: nothing is run in the directory.
    '--mode=chrootless',
    '--skip=check/chrootless',
    '--variant=extract',
    # Mirrors for tests may be weeks old. The signature is checked.
    '--aptopt=Acquire::Check-Valid-Until "false"',
    '--include=mysql-server-core',
    'unstable',
)

#: What every server gets, also one without a group.
OPTIONS = nodes.OPTIONS | {
    'mysqlx': 'OFF',
    'secure-file-priv': 'NULL',
    'innodb-redo-log-capacity': '32M',
    'sync-binlog': '0',
}

_MEMBER = 'FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid'
#: Queries that have a row if it has lost its group, is a full member, and accepts writes.
HAS_FAILED = f"SELECT 1 {_MEMBER} AND member_state = 'ERROR'"
_ONLINE = f"SELECT 1 {_MEMBER} AND member_state = 'ONLINE'"
_WRITABLE = f"{_ONLINE} AND member_role = 'PRIMARY' AND @@super_read_only = 0"


# Installation ------------------------------------------------------------------------------------------------


def home() -> pathlib.Path:
    """Return the directory of the installation. The account of the server must be able to enter it."""
    if os.getuid() == 0:
        return pathlib.Path('/var/cache/placement-mysql')
    return pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache') / 'placement-mysql'


def install() -> None:
    """Download MySQL and the libraries that it needs, and create a data directory to copy from, unless they exist.

    :raises ServerError: no archive that apt is configured with has MySQL.
    """
    home().parent.mkdir(parents=True, exist_ok=True)
    listed = nodes.run('apt-get', 'indextargets', '--format', '$(REPO_URI)', 'Created-By: Packages')
    failures = []
    for archive in [] if home().exists() else dict.fromkeys(listed.split()):
        with tempfile.TemporaryDirectory(dir=home().parent) as directory:
            pathlib.Path(directory).chmod(0o755)
            installation = pathlib.Path(directory) / 'installation'
            try:
                print(f'downloading MySQL from {archive}')
                nodes.run(*EXTRACT, str(installation), archive)
            except nodes.ServerError as error:
                failures.append(str(error))
                continue
            print('creating the system tables')
            nodes.give_to(nodes.Node.account, installation)
            options = {'datadir': installation / 'data', 'skip-log-bin': 'ON', **OPTIONS}
            nodes.run(*program(options, installation), '--initialize-insecure', user=nodes.Node.account)
            # The identity of one server.
            (installation / 'data' / 'auto.cnf').unlink()
            # Another process may have installed it meanwhile.
            with contextlib.suppress(OSError):
                installation.rename(home())
            break
    if not home().exists():
        raise nodes.ServerError('\n'.join(failures))
    print(f'MySQL is installed in {home()}')


def program(options: Mapping[str, object], installation: pathlib.Path | None = None) -> list[str]:
    """Return the command that runs a server in the foreground with these options and no others."""
    arguments = [f'--{name}={value}' for name, value in options.items()]
    return [*_server(installation or home()), '--no-defaults', f'--basedir={installation or home()}/usr', *arguments]


def _server(installation: pathlib.Path) -> list[str]:
    """Return the command without options. Its libraries are newer than those of the machine, so its loader runs it."""
    (loader,) = {path.resolve() for path in installation.glob('usr/lib*/**/ld-linux*.so.*')}
    return [str(loader), '--library-path', str(loader.parent), f'{installation}/usr/sbin/mysqld']


def create_data(directory: pathlib.Path) -> None:
    """Create the data directory of a new server, with the account root, which has no password."""
    nodes.run('cp', '-r', f'{home()}/data/.', str(directory), user=nodes.Node.account)


# Group Replication -------------------------------------------------------------------------------------------


class Cluster(nodes.Cluster):
    """A group of servers that replicate to each other."""

    # It is a member that has everything that the group has committed.
    ready_query = _ONLINE

    @classmethod
    def missing(cls) -> str | None:
        """Return the reason why MySQL cannot be started on this machine, or None."""
        return None if home().exists() else f'{home()} is missing. On Debian: python -m tools.mysql install'

    def program(self) -> list[str]:
        """Return the command that runs a server in the foreground, without options."""
        return _server(home())

    def options(self, node: nodes.Node) -> dict[str, str]:
        """Return the options of a member."""
        group = {
            'group-name': 'aaaaaaaa-aaaa-4aaa-aaaa-aaaaaaaaaaaa',
            'start-on-boot': 'OFF',
            # All members are on one machine, so a silent one is dead rather than far away.
            'member-expel-timeout': '0',
            'local-address': f'127.0.0.1:{node.ports[1]}',
            'group-seeds': ','.join(f'127.0.0.1:{member.ports[1]}' for member in self.nodes),
        }
        return {
            **OPTIONS,
            'basedir': f'{home()}/usr',
            'gtid-mode': 'ON',
            'enforce-gtid-consistency': 'ON',
            'plugin-load-add': 'group_replication.so',
            'report-host': '127.0.0.1',
            'server-id': str(node.number),
            **{f'loose-group-replication-{name}': value for name, value in group.items()},
        }

    def start(self) -> None:
        """Start the first member as a new group, and let the others join one by one."""
        for node in self.nodes:
            create_data(node.data)
            self.join(node, bootstrap=node.number == 1)

    def join(self, node: nodes.Node, *, bootstrap: bool = False) -> None:
        """Start a server, and bring it into the group."""
        self.launch(node, until=lambda node: node.value('SELECT 1') is not None)
        if bootstrap:
            node.query('SET GLOBAL group_replication_bootstrap_group = ON')
        node.query("START GROUP_REPLICATION USER = 'root'")
        node.query('SET GLOBAL group_replication_bootstrap_group = OFF')
        node.wait(lambda: self.is_ready(node))

    def is_writable(self, node: nodes.Node) -> bool:
        """Return whether the server is a primary that accepts writes."""
        return node.value(_WRITABLE) is not None

    def primary(self) -> nodes.Node | None:
        """Return the member that accepts writes; None while there is none."""
        return next(filter(self.is_writable, self.nodes), None)

    def switch_primary(self, node: nodes.Node) -> None:
        """Make a member the primary, as an operator would, and return when it accepts writes."""
        node.query(f"SELECT group_replication_set_as_primary('{node.value('SELECT @@server_uuid')}')")
        # The function returns when the group has agreed, which may be before the member is no longer read-only.
        node.wait(lambda: self.is_writable(node))


if __name__ == '__main__':
    parser = argparse.ArgumentParser(prog='python -m tools.mysql', description=__doc__.partition('\n')[0])
    parser.add_argument(
        'command',
        nargs='?',
        choices=['install'],
        help='download and install MySQL. Without it, start a group of three servers, and open a Python prompt',
    )
    if parser.parse_args().command == 'install':
        install()
    else:
        nodes.try_out(Cluster)
