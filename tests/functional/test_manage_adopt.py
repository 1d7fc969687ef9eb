"""``placement-manage db adopt`` on SQLite: the plan, the doubts, what becomes of the data, and the service over it."""

from __future__ import annotations

import pathlib

import pytest

from placement.cmd import manage, manage_audit
from tests.functional import adopted, damage, foreign


@pytest.fixture
def url(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty database, which is also that of the commands run by the test."""
    found = f'sqlite:///{tmp_path}/placement.sqlite'
    monkeypatch.setenv('OS_PLACEMENT_CONFIG_DIR', str(tmp_path))
    monkeypatch.setenv('OS_PLACEMENT_DATABASE__CONNECTION', found)
    return found


def test_plan_changes_nothing(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    foreign.build(url)
    before = damage.contents(url)
    assert manage.main(['db', 'adopt']) == 0
    assert damage.contents(url) == before
    out = capsys.readouterr().out
    for sentence in (
        '- Set the generation of 1 row of resource_providers to 0, where there is none.',
        '- Write the table inventories anew, with what else is in it: add used; ',
        '- Record the root of 2 resource providers, from the parents.',
        '- Record 1 consumer that hold allocations and have no record, for the project 00000000-',
        '- Record how much of each inventory is used, from 4 allocations.',
        'Nothing was changed. To carry this out: placement-manage db adopt --yes',
    ):
        assert sentence in out


def test_adoption(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    foreign.build(url)
    assert manage.main(['db', 'adopt', '--yes']) == manage_audit.CLEAN
    assert 'Nothing is wrong.' in capsys.readouterr().out
    adopted.check_schema(url)
    adopted.check_rows(url)
    adopted.check_service(url)
