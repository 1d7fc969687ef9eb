"""A machine of its own for a test: systemd, users, paths and ports as the pages name them, thrown away afterwards."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from tests.integration import services
from tests.support.pages import ROOT
from tests.support.waiting import wait_until

T = TypeVar('T')

SCRIPT = pathlib.Path(__file__).with_name('machine.sh')
CLONE_NEWNET = 0x40000000
ENVIRON = {'HOME': '/root', 'PATH': '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'LANG': 'C.UTF-8'}


class Machine:
    """A running machine. Its files are those of this machine, with changes that nobody else sees."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._threads = concurrent.futures.ThreadPoolExecutor(1, initializer=self._enter_network)

    def _enter_network(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f'/proc/{self._pid}/ns/net') as network:
            if libc.setns(network.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), 'setns')

    def path(self, path: str) -> pathlib.Path:
        """Where a file of the machine can be reached from here."""
        return pathlib.Path(f'/proc/{self._pid}/root{path}')

    def try_run(self, line: str, *, network: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a line of shell as root in the machine, in the directory of the sources.

        :param network: whether the line reaches the network of this machine, to install packages.
        """
        namespaces = ['--mount', '--pid', '--uts', '--ipc', '--cgroup', *([] if network else ['--net'])]
        command = ['bash', '-euo', 'pipefail', '-c', f'cd {ROOT}\n{line}']
        return subprocess.run(
            ['nsenter', '--target', str(self._pid), *namespaces, *command],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=services.INSTALL_SECONDS,
            env=ENVIRON,
        )

    def run(self, line: str, *, network: bool = False) -> str:
        """Run a line of shell as ``try_run`` does, and return what it prints. The test fails if the line does."""
        ran = self.try_run(line, network=network)
        if ran.returncode:
            pytest.fail(f'{line}\nended with {ran.returncode}:\n{ran.stdout[-2000:]}{ran.stderr[-4000:]}')
        return ran.stdout

    def inside(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function of the test in the network of the machine: its ports, and its loopback interface."""
        return self._threads.submit(function, *arguments).result()

    def close(self) -> None:
        """End the thread of ``inside``."""
        self._threads.shutdown()


@contextlib.contextmanager
def booted() -> Iterator[Machine]:
    """Boot a machine, and end it with the block."""
    if os.getuid() != 0:
        services.unavailable('machine', 'it takes root')
    for name in ('systemctl', 'nsenter', 'unshare', 'ip'):
        services.program('machine', name)
    home = pathlib.Path(tempfile.mkdtemp(prefix='placement-machine-'))
    group = _control_groups() / home.name
    group.mkdir()
    with open(home.with_suffix('.log'), 'w+') as log:
        command = ['bash', str(SCRIPT), str(home), str(group)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            machine = Machine(_first_process(process, pathlib.Path(log.name)))
            yield machine
            machine.close()
        finally:
            process.kill()
            process.wait()
            home.rmdir()
            wait_until(lambda: _is_removed(group), f'{group} is in use')
            pathlib.Path(log.name).unlink()


def _control_groups() -> pathlib.Path:
    """The directory of the control groups of version 2."""
    mounts = [line.split() for line in pathlib.Path('/proc/mounts').read_text().splitlines()]
    for _device, directory, kind, *_options in mounts:
        if kind == 'cgroup2' and os.access(directory, os.W_OK):
            return pathlib.Path(directory)
    return services.unavailable('machine', 'there are no control groups of version 2')


def _is_removed(group: pathlib.Path) -> bool:
    """Remove a control group and those below it, as soon as the processes in them have ended."""
    with contextlib.suppress(OSError):
        for directory, _, _ in os.walk(group, topdown=False):
            os.rmdir(directory)
    return not group.exists()


def _first_process(unshare: subprocess.Popen[bytes], log: pathlib.Path) -> int:
    """Wait until systemd has started, and return the number that its process has here."""
    children = pathlib.Path(f'/proc/{unshare.pid}/task/{unshare.pid}/children')

    def is_up() -> bool:
        if unshare.poll() is not None:
            services.unavailable('machine', f'the kernel does not let it boot: {log.read_text()[-2000:]}')
        pids = children.read_text().split()
        return bool(pids) and pathlib.Path(f'/proc/{pids[0]}/root/run/systemd/private').exists()

    wait_until(is_up, f'systemd does not start: {log.read_text()}')
    pid = int(children.read_text().split()[0])
    command = ['nsenter', '--target', str(pid), '--all', 'systemctl', 'is-active', 'basic.target']
    wait_until(lambda: subprocess.run(command, check=False, capture_output=True).returncode == 0, 'systemd is not up')
    return pid
