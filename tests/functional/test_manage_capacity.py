"""``placement-manage capacity``: the figures, as text and as JSON."""

from __future__ import annotations

import json
import pathlib

import pytest
from oslo_config import cfg

from placement.cmd import manage
from placement.db.api import Database
from tests.support import clouds
from tests.support.clouds import uuid_of


@pytest.fixture(autouse=True)
def _configured(conf: cfg.ConfigOpts, db: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv('OS_PLACEMENT_CONFIG_DIR', str(tmp_path))
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__CONNECTION', conf.placement_database.connection)


@pytest.fixture
def nested(db: Database) -> None:
    clouds.plant(db, clouds.nested())


@pytest.mark.usefixtures('nested')
def test_text_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(['capacity', '--fit', 'VCPU:4,DISK_GB:10']) == 0
    printed = capsys.readouterr().out
    assert '│ VCPU         │      512 │    164 │ 32% │    348 │              64 │         8 │    1 │' in printed
    assert '21 resource providers in 5 trees\n87 more of VCPU:4,DISK_GB:10 fit\n' in printed


def test_an_empty_cloud(capsys: pytest.CaptureFixture[str]) -> None:
    assert manage.main(['capacity', '--fit', 'VCPU:4']) == 0
    assert capsys.readouterr().out == '0 resource providers in 0 trees\n0 more of VCPU:4 fit\n'


@pytest.mark.usefixtures('nested')
def test_json_output(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ['--aggregate', uuid_of('rack-a').upper(), '--trait', 'HW_NUMA_ROOT', '--fit', 'VCPU:64']
    assert manage.main(['capacity', '--format', 'json', *arguments]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told['trees'], told['classes'][0]['resource_class'], told['classes'][0]['capacity']) == (2, 'VCPU', 256)
    assert told['fit_estimate'] == {'fit': 0, 'upper_bound': 0, 'complete': True}


@pytest.mark.usefixtures('nested')
def test_trees_are_chosen_by_traits_of_their_roots(capsys: pytest.CaptureFixture[str]) -> None:
    def told(*arguments: str) -> tuple[int, int]:
        assert manage.main(['capacity', '--format', 'json', '--fit', 'VCPU:4,DISK_GB:10', *arguments]) == 0
        found = json.loads(capsys.readouterr().out)
        return found['trees'], found['fit_estimate']['fit']

    disabled, enabled = (
        told('--root-trait', 'COMPUTE_STATUS_DISABLED'),
        told('--root-trait', '!COMPUTE_STATUS_DISABLED'),
    )
    assert told() == (5, 87)
    assert (disabled[0] + enabled[0], disabled[1] + enabled[1]) == (5, 87)
    assert disabled[0] == 1
    assert disabled[1] > 0
    # The children have this trait, not the roots.
    assert told('--root-trait', 'HW_NUMA_ROOT') == (0, 0)


@pytest.mark.usefixtures('nested')
@pytest.mark.parametrize(
    ('arguments', 'told'),
    [
        (['--aggregate', 'rack-a'], "An aggregate is given by its uuid, which 'rack-a' is not."),
        (['--trait', 'CUSTOM_NOTHING'], 'No such trait(s): CUSTOM_NOTHING.'),
        (['--root-trait', '!CUSTOM_NOTHING'], 'No such trait(s): CUSTOM_NOTHING.'),
        (['--root-trait', 'in:CUSTOM_NOTHING'], "'in:' is not supported in a list of traits of a root."),
        (['--fit', 'CUSTOM_NOTHING:1'], 'No such resource class CUSTOM_NOTHING'),
        (['--fit', 'VCPU'], 'Badly formed resources parameter.'),
    ],
)
def test_invalid_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    assert manage.main(['capacity', *arguments]) == manage.FAILED
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count('\n')) == ('', 1)
    assert told in printed.err
