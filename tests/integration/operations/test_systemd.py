"""The sample units are what systemd accepts (etc/systemd)."""

from __future__ import annotations

import pathlib

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
