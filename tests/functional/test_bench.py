"""The benchmark runs: every line once, on a few hosts."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest
import sqlalchemy as sa

from bench import __main__ as command
from bench import databases, lines, results, scale, shapes, traffic
from bench.results import Result

_SERVERS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ('mariadb', 'postgresql')]

_TINY = [
    *('--flat', '30', '--nested', '2', '--shared', '3', '--symmetric', '1', '--workers', '1'),
    *('--repeat', '3', '--seconds', '0.1', '--rounds', '1', '--writes', '4'),
]

#: Figures that a release without a cache or a change log lacks, and the size of the log, which SQLite lacks.
_MAY_BE_UNKNOWN = {'refresh', 'log-size', 'slots', 'slots-claiming'}


# It starts some twenty processes.
@pytest.mark.timeout(900)
@pytest.mark.parametrize('names', [set(lines.NAMES) - set(scale.LINES), set(scale.LINES)], ids=['work', 'scale'])
def test_every_line_is_measured_once(
    names: set[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, small in {
        '_SLOTS': (5, 20),
        '_SLOTS_CLAIMING': (5, 20),
        '_PROCESSES': 2,
        '_IDLE_CONNECTIONS': 100,
    }.items():
        monkeypatch.setattr(scale, name, small)
    chosen = [argument for name in sorted(names) for argument in ('--line', name)]
    assert command.main([*_TINY, *chosen, '--output', str(tmp_path)]) == 0
    found = json.loads((tmp_path / 'bench.json').read_text())['results']
    assert {one['name'] for one in found} == names
    assert {one['name'] for one in found if one['median'] is None} <= _MAY_BE_UNKNOWN
    assert all(one['floor'] > 0 for one in found if one['unit'] in ('ms', '/s') and one['name'] not in _MAY_BE_UNKNOWN)
    assert (tmp_path / 'bench.md').read_text() in capsys.readouterr().out
    if 'traits-and-aggregate' in names:
        searched = next(one for one in found if one['name'] == 'traits-and-aggregate')
        assert searched['length'] > 300, 'one host of thirty has both traits and is in the aggregate'


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
    completed = subprocess.run([sys.executable, '-m', 'bench', '--help'], check=True, capture_output=True, text=True)
    assert {'--database', '--line', '--output', '--write-doc', '--site', '--rate', '--duration'} <= set(
        re.findall(r'--[a-z-]+', completed.stdout)
    )
    assert completed.stderr == ''


def test_a_missing_server_or_driver_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = 'postgresql+psycopg://nobody@127.0.0.1:1/nothing?connect_timeout=2'
    assert command.main(['--database', 'postgresql', '--server-url', nowhere, '--nested', '1']) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('bench: ')


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


def test_a_larger_cloud_is_compared_with_the_usual_one_and_all_candidates_with_ten() -> None:
    medians = {10: 1.0, 10_000: 2.0, 1_000_000: 5.0}
    measured = [Result('flat', size, 'limit-10', 'search', 'ms', median) for size, median in medians.items()]
    table = results.table([*measured, Result('flat', 10_000, 'no-limit', 'all', 'ms', 30.0)])
    assert '| 1,000,000 against 10,000 flat | search | 2.50 times | | | | | 2 times |' in table
    assert '| 10,000 flat | all, against limit=10 | 15.00 times | | | | | 6 times |' in table


@pytest.mark.parametrize('server', _SERVERS)
def test_statements_rows_and_bytes_are_counted_at_the_server(server: str) -> None:
    with databases.fresh(server, None) as url, traffic.counting(url) as (proxy, through):
        engine = sa.create_engine(through, isolation_level='AUTOCOMMIT')
        with engine.connect() as connection:
            start = proxy.traffic()
            connection.exec_driver_sql('CREATE TABLE t (id INTEGER, word VARCHAR(5000))')
            connection.exec_driver_sql(f"INSERT INTO t VALUES (1, '{'x' * 5000}'), (2, ''), (3, NULL)")
            written = proxy.traffic()
            assert written.since(start)[:2] == (2, 0)
            assert 5000 < written.since(start).bytes < 6000
            assert len(connection.exec_driver_sql('SELECT * FROM t').all()) == 3
            assert connection.exec_driver_sql('SELECT * FROM t WHERE id > 3').all() == []
            with pytest.raises(sa.exc.DBAPIError):
                connection.exec_driver_sql('SELECT missing FROM t')
            assert proxy.traffic().since(written)[:2] == (3, 3)
            assert proxy.connections == 1
        engine.dispose()


@pytest.mark.timeout(900)
@pytest.mark.parametrize('server', _SERVERS)
def test_a_site_is_measured_beside_a_small_one(
    server: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ['--database', server, '--site', '2x1', '--flat', '20', '--duration', '1', '--rate', '10']
    assert command.main([*arguments, '--output', str(tmp_path)]) == 0
    assert (tmp_path / 'site.md').read_text() == capsys.readouterr().out
    found = {(one['work'], one['name']): one for one in json.loads((tmp_path / 'site.json').read_text())}
    # The check of the version; a process that was not warmed up refreshes once.
    assert 1 <= found['a search while nothing changes', 'statements']['large'] < 3
    claim = found['a claim while nobody searches', 'statements']
    assert 4 <= claim['small'] <= 12
    assert claim['large'] == pytest.approx(claim['small'], rel=0.5)
    assert found['at the end', 'connections to the database']['large'] >= 2
    assert found['start, per process', 'rows']['small'] > 100


@pytest.mark.mariadb
def test_a_site_whose_requests_fail_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ['--database', 'mariadb', '--site', '1x1', '--flat', '20', '--duration', '1', '--microversion', '9.9']
    assert command.main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bench: requests that should all succeed were answered with [{'406'")


@pytest.mark.parametrize(
    ('arguments', 'reason'),
    [
        (['--site', '3x16'], 'choose one with --database'),
        (['--site', '3', '--database', 'mariadb'], 'is not HOSTSxPROCESSES'),
        (['--site', '0x1', '--database', 'mariadb'], 'at least one host'),
        (['--site', '1x1', '--database', 'mariadb', '--line', 'claim'], 'neither --line nor --write-doc'),
        (['--rate', '0'], 'must be above 0'),
    ],
)
def test_options_that_cannot_be_followed_are_rejected(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        command.main(arguments)
    assert raised.value.code == 2
    assert reason in capsys.readouterr().err
