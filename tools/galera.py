"""Starts a MariaDB Galera cluster on loopback, for tests and for trying things out: ``python -m tools.galera``."""

from __future__ import annotations

import glob
import re
import shutil
import subprocess

from tools import nodes

LIBRARY = '/usr/lib*/galera*/libgalera_smm.so'

OPTIONS = {
    'skip-name-resolve': 'ON',
    'performance-schema': 'OFF',
    'character-set-server': 'utf8mb4',
    'binlog-format': 'ROW',
    'innodb-autoinc-lock-mode': '2',
    'innodb-log-file-size': '32M',
    'wsrep-on': 'ON',
    'wsrep-cluster-name': 'placement',
    'wsrep-slave-threads': '2',
    'wsrep-sst-method': 'rsync',
}
_STATUS = 'FROM information_schema.global_status WHERE variable_name'


class Cluster(nodes.Cluster):
    """A Galera cluster."""

    # It accepts writes: it is a synced member of a primary component.
    ready_query = f"""
        SELECT 1 {_STATUS} = 'WSREP_READY' AND variable_value = 'ON'
        AND EXISTS (SELECT 1 {_STATUS} = 'WSREP_LOCAL_STATE_COMMENT' AND variable_value = 'Synced')"""

    @classmethod
    def missing(cls) -> str | None:
        """Return the reason why no cluster can be started on this machine, or None."""
        if glob.glob(LIBRARY) and all(map(_path, ('mariadbd', 'mariadb-install-db', 'rsync'))):
            return None
        return 'Galera is missing. On Debian and Ubuntu: apt-get install mariadb-server galera-4 rsync'

    def program(self) -> list[str]:
        """Return the command that runs a server in the foreground, without options."""
        return [_path('mariadbd')]

    def options(self, node: nodes.Node) -> dict[str, str]:
        """Return the options of a node."""
        _, group, incremental, full = (f'127.0.0.1:{port}' for port in node.ports)
        provider_options = [
            f'gmcast.listen_addr=tcp://{group}',
            f'ist.recv_addr={incremental}',
            'gcache.size=64M',
            'evs.keepalive_period=PT0.5S',
            'evs.inactive_check_period=PT0.25S',
            f'evs.suspect_timeout=PT{self.suspect_seconds}S',
            f'evs.inactive_timeout=PT{3 * self.suspect_seconds}S',
            f'evs.install_timeout=PT{3 * self.suspect_seconds}S',
        ]
        return OPTIONS | {
            'wsrep-provider': glob.glob(LIBRARY)[0],
            'wsrep-cluster-address': 'gcomm://' + ','.join(f'127.0.0.1:{member.ports[1]}' for member in self.nodes),
            'wsrep-node-name': f'node{node.number}',
            'wsrep-node-address': group,
            'wsrep-sst-receive-address': full,
            'wsrep-provider-options': f'"{";".join(provider_options)}"',
        }

    def start(self) -> None:
        """Fill the first node's data directory, start it as a new cluster, and let the others join one by one."""
        install = [_path('mariadb-install-db'), f'--defaults-file={self.nodes[0].option_file}', '--wsrep-on=OFF']
        nodes.run(*install, '--auth-root-authentication-method=normal', '--skip-test-db', user=nodes.Node.account)
        for node in self.nodes:
            options = ['--wsrep-new-cluster'] if node.number == 1 else []
            self.launch(node, *options, until=self.is_ready)

    def join(self, node: nodes.Node) -> None:
        """Start a node with its last transaction, as InnoDB recovers it, so that it needs no full copy."""
        command = [*self.command(node), '--wsrep-recover']
        timeout = nodes.START_TIMEOUT_SECONDS
        recovery = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=timeout, user=node.account
        )
        positions = re.findall(r'Recovered position:\s*(\S+)', recovery.stderr)
        options = [f'--wsrep-start-position={position}' for position in positions[-1:]]
        self.launch(node, *options, until=self.is_ready)


def _path(program: str) -> str:
    """Return the path of a program; empty if it is not installed."""
    return shutil.which(program) or shutil.which(program, path='/usr/sbin:/usr/local/sbin') or ''


if __name__ == '__main__':
    nodes.try_out(Cluster)
