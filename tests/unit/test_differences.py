"""doc/differences.md, what differs from the reference: its generated tables, and what else the code says."""

from __future__ import annotations

import pytest

from placement import conf as placement_conf
from placement import policies
from placement.web import request_log
from tests.support import differences
from tests.support.pages import ROOT

PAGE = (ROOT / 'doc' / 'differences.md').read_text()
CELLS = [[cell.strip() for cell in line.strip('|').split(' | ')] for line in PAGE.splitlines() if line.startswith('|')]
#: The rows of each entry that have four columns: what, the reference, here, the reason.
ENTRIES = [cells for cells in CELLS if len(cells) == 4 and cells[3] not in ('Reason', '---|')]


@pytest.mark.parametrize(
    'table', [differences.options_table(), differences.commands_table()], ids=['options', 'commands']
)
def test_tables_are_made_from_the_code(table: str) -> None:
    assert table in PAGE


def test_every_entry_has_a_reason() -> None:
    assert len(ENTRIES) > 30
    assert [entry for entry in ENTRIES if not all(entry)] == []
    assert all(len(cells) in (2, 4) for cells in CELLS if not cells[0].startswith('---'))


@pytest.mark.parametrize('name', ['max_microversion', 'max_allocation_candidates'])
def test_defaults_are_those_of_the_options(name: str) -> None:
    default = placement_conf.load(config_files=[]).placement[name]
    (value,) = (entry[2] for entry in ENTRIES if entry[0] == f'`[placement] {name}`')
    assert value.startswith(f'default `{default}`')


def test_the_default_rule_of_the_reshaper_and_the_logger_are_those_of_the_code() -> None:
    values = {entry[0]: entry[2] for entry in ENTRIES}
    (rule,) = (rule for rule in policies.list_rules() if rule.name == 'placement:reshaper:reshape')
    assert values[f'default rule of `{rule.name}`'] == f'`{rule.check_str}`'
    assert values['logger of requests'] == f'`{request_log.LOG.logger.name}`'
