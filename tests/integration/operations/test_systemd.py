"""The sample units are what systemd accepts (etc/systemd)."""

from __future__ import annotations

import pathlib
import socket

from tests.support.operations import placement_server, services

UNITS = pathlib.Path(__file__).parents[3] / 'etc' / 'systemd'


def test_units_are_valid(tmp_path: pathlib.Path) -> None:
    analyze = services.program('systemd', 'systemd-analyze')
    programs = {
        'placement-api.service': 'placement-api',
        'placement-api.socket': None,
        'placement-exporter.service': 'python',
        'placement-uwsgi.service': 'uwsgi',
    }
    assert sorted(path.name for path in UNITS.iterdir()) == sorted(programs)
    for name, program in programs.items():
        text = (UNITS / name).read_text()
        if program:
            # The only part of the units that is missing on a machine without the package.
            assert text.count(f'=/opt/placement/bin/{program}') == 1
            text = text.replace(f'/opt/placement/bin/{program}', str(placement_server.BIN / 'placement-api'))
        (tmp_path / name).write_text(text)
    services.run([analyze, 'verify', *(str(tmp_path / name) for name in programs)])


def test_the_program_notifies_systemd_when_it_is_ready(tmp_path: pathlib.Path) -> None:
    """Type=notify waits for this message."""
    placement_server.write_configuration(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / 'notify'))
        manager.settimeout(60)
        with placement_server.served(tmp_path, NOTIFY_SOCKET=str(tmp_path / 'notify')):
            assert b'READY=1' in manager.recv(4096)


def test_socket_and_service_units_match() -> None:
    service = (UNITS / 'placement-api.service').read_text()
    assert 'Requires=placement-api.socket' in service
    # The program notifies systemd when it is ready, and reloads at SIGHUP.
    assert 'Type=notify' in service
    assert 'ExecReload=/bin/kill -s HUP $MAINPID' in service
