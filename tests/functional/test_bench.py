"""The benchmark runs: every line once, on a few hosts."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest

from bench import __main__ as command
from bench import databases, lines, results, shapes
from bench.results import Result

_TINY = [
    *('--flat', '30', '--nested', '2', '--shared', '3', '--symmetric', '1', '--workers', '1'),
    *('--repeat', '3', '--seconds', '0.1', '--rounds', '1', '--writes', '4'),
]

#: Figures that a release without a cache or a change log lacks, and the size of the log, which SQLite lacks.
_MAY_BE_UNKNOWN = {'refresh', 'log-size', 'slots', 'slots-claiming'}


def test_every_line_is_measured_once(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([*_TINY, '--output', str(tmp_path)]) == 0
    found = json.loads((tmp_path / 'bench.json').read_text())['results']
    assert {one['name'] for one in found} == set(lines.NAMES)
    assert {one['name'] for one in found if one['median'] is None} <= _MAY_BE_UNKNOWN
    assert all(one['floor'] > 0 for one in found if one['unit'] in ('ms', '/s') and one['name'] not in _MAY_BE_UNKNOWN)
    searched = next(one for one in found if one['name'] == 'traits-and-aggregate')
    assert searched['length'] > 300, 'one host of thirty has both traits and is in the aggregate'
    assert (tmp_path / 'bench.md').read_text() in capsys.readouterr().out


def test_the_plot_is_a_picture(tmp_path: pathlib.Path) -> None:
    pytest.importorskip('matplotlib')
    measured = [Result('flat', size, 'limit-10', 'search', 'ms', 2.0, floor=1.0, providers=size) for size in (10, 1000)]
    results.plot(measured, tmp_path / 'plot.png', 'a machine')
    assert (tmp_path / 'plot.png').read_bytes().startswith(b'\x89PNG')


def test_only_clouds_that_a_wanted_line_needs_are_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(['--line', 'symmetric-none', '--repeat', '3', '--workers', '1']) == 0
    rows = [row for row in capsys.readouterr().out.splitlines() if re.match(r'\| [0-9]', row)]
    assert [row.split(' | ')[0] for row in rows] == ['| 2 symmetric']


def test_help_names_every_option() -> None:
    told = subprocess.run([sys.executable, '-m', 'bench', '--help'], check=True, capture_output=True, text=True)
    assert {'--database', '--line', '--output', '--write-doc'} <= set(re.findall(r'--[a-z-]+', told.stdout))
    assert told.stderr == ''


def test_a_missing_server_or_driver_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = 'postgresql+psycopg://nobody@127.0.0.1:1/nothing?connect_timeout=2'
    assert command.main(['--database', 'postgresql', '--server-url', nowhere, '--nested', '1']) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith('bench: ')


def test_one_flat_host_in_thirty_has_two_traits_and_the_aggregate() -> None:
    cloud = shapes.flat(10_000)
    having = [{id_ for id_, name in cloud.traits if name == trait} for trait in shapes.CPU_TRAITS[1:]]
    members = {id_ for id_, aggregate in cloud.members if aggregate == len(cloud.aggregates)}
    assert len(set.intersection(members, *having)) == 333


def test_results_are_written_between_the_marks_of_a_page(tmp_path: pathlib.Path) -> None:
    page = tmp_path / 'page.md'
    page.write_text('before\n<!-- bench: begin -->\nold\n<!-- bench: end -->\nafter\n')
    results.write_section(page, 'new')
    results.write_section(page, 'newer')
    assert page.read_text() == 'before\n<!-- bench: begin -->\nnewer\n<!-- bench: end -->\nafter\n'


def test_the_page_of_the_documentation_has_the_marks(tmp_path: pathlib.Path) -> None:
    copy = tmp_path / 'performance.md'
    copy.write_text(command.PAGE.read_text())
    results.write_section(copy, 'table')
    assert '\ntable\n' in copy.read_text()


def test_the_largest_cloud_is_compared_with_the_smallest() -> None:
    measured = [Result('flat', size, 'limit-10', 'search', 'ms', median) for size, median in ((10, 2.0), (1000, 3.0))]
    assert '| 1,000 against 10 flat | search | 1.50 times |' in results.table(measured)


def test_a_database_without_a_change_log_has_no_log_size() -> None:
    with databases.fresh('sqlite', None) as url:
        databases.execute(url, 'CREATE TABLE placement_change_log_slots (id INTEGER PRIMARY KEY)')
        assert databases.log_size(url) is None
        log = 'placement_change_log'
        databases.execute(url, f'CREATE TABLE {log} (id INTEGER PRIMARY KEY)', f'INSERT INTO {log} VALUES (1), (2)')
        assert databases.log_size(url) == {'placement_change_log_slots': (0, None), log: (2, None)}
