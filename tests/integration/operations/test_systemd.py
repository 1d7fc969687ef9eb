"""The sample units are what systemd accepts (etc/systemd)."""

from __future__ import annotations

import pathlib
import shutil

from . import placement_server, services

UNITS = pathlib.Path(__file__).parents[3] / 'etc' / 'systemd'


def test_units_are_valid(tmp_path: pathlib.Path) -> None:
    analyze = services.program('systemd', 'systemd-analyze')
    names = ['placement-api.service', 'placement-api.socket']
    assert sorted(path.name for path in UNITS.iterdir()) == names
    for name in names:
        shutil.copy(UNITS / name, tmp_path)
    unit = tmp_path / 'placement-api.service'
    # The only thing of the unit that a machine without the package lacks.
    text = unit.read_text()
    assert text.count('/usr/bin/placement-api') == 1
    unit.write_text(text.replace('/usr/bin/placement-api', str(placement_server.BIN / 'placement-api')))
    services.run([analyze, 'verify', *(str(tmp_path / name) for name in names)])


def test_units_belong_together() -> None:
    service = (UNITS / 'placement-api.service').read_text()
    assert 'Requires=placement-api.socket' in service
    # The program tells systemd when it is ready, and SIGHUP is its reload.
    assert 'Type=notify' in service
    assert 'ExecReload=/bin/kill -s HUP $MAINPID' in service
