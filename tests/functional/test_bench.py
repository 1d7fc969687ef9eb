"""The benchmark runs: every line once, on a few hosts. Tests that start services need ``-m bench``."""

from __future__ import annotations

import json
import os
import pathlib
import re

import pytest

from bench import __main__ as command
from bench import compute, costs, databases, explanations, lines, results
from placement.ops.explain.explanation import explain
from placement.ops.explain.sentences import Writer
from placement.search import parsing
from placement.search.budget import Limit, SearchBudget
from tests.support.applications import NEWEST_VERSION

_TINY = [
    *('--flat', '30', '--nested', '2', '--shared', '3', '--symmetric', '1', '--workers', '1'),
    *('--requests', '3', '--rounds', '1', '--writes', '4'),
]


# It starts some twenty processes.
@pytest.mark.timeout(900)
@pytest.mark.bench
def test_every_line_is_measured_once(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, '_PROCESSES', 2)
    monkeypatch.setattr(costs, '_SEARCHES', 10)
    monkeypatch.setattr(compute, '_PERIOD_SECONDS', 1.0)
    assert command.main([*_TINY, '--output', str(tmp_path / 'bench.json')]) == 0
    measured = json.loads((tmp_path / 'bench.json').read_text())
    figures = {(line.name, figure.title) for line in lines.LINES if line.min_hosts <= 30 for figure in line.figures}
    assert {(result['name'], result['title']) for result in measured} == figures
    assert all(value > 0 for result in measured if result['name'] != 'refresh-1' for value in result['values'])
    by_name = {result['name']: result for result in measured}
    assert by_name['limit-10']['statements'] == [1]
    assert len(by_name['create-hosts']['statements']) == 4
    assert by_name['traits-and-aggregate']['response_bytes'] > 300, 'one host of thirty has both traits and the rack'
    rows = [row for row in capsys.readouterr().out.splitlines() if row.startswith('|')]
    assert len(rows) == 2 + len(figures)


@pytest.mark.bench
def test_the_sources_of_another_checkout_are_measured_in_the_same_rounds(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / 'placement').mkdir()
    for path in (databases.ROOT / 'placement').iterdir():
        if path.name != '__init__.py':
            (tmp_path / 'placement' / path.name).symlink_to(path)
    source = (databases.ROOT / 'placement' / '__init__.py').read_text()
    (tmp_path / 'placement' / '__init__.py').write_text(
        f'{source}\nimport os, pathlib\npathlib.Path({str(tmp_path / "imported")!r}).write_text(str(os.getpid()))\n'
    )
    arguments = ['--against', str(tmp_path), '--nested', '1', '--line', 'nested-limit-10']
    assert command.main([*arguments, '--rounds', '2', '--requests', '3', '--workers', '1']) == 0
    assert (tmp_path / 'imported').read_text() != str(os.getpid())
    header, _, row = (row.split(' | ') for row in capsys.readouterr().out.splitlines() if row.startswith('|'))
    cells = dict(zip(header, row, strict=True))
    assert cells['Other'].endswith(' ms')
    assert float(cells['Ratio']) > 0
    assert re.fullmatch(r'[\d.]+ to [\d.]+', cells['Ratios of rounds'])


def test_a_missing_server_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = 'postgresql+psycopg://nobody@127.0.0.1:1/nothing?connect_timeout=2'
    assert command.main(['--database', nowhere, '--nested', '1']) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('bench: ')


def test_the_page_of_the_documentation_has_the_marks(tmp_path: pathlib.Path) -> None:
    copy = tmp_path / 'performance.md'
    copy.write_text(command.PAGE.read_text())
    results.write_section(copy, 'table')
    assert '\ntable\n' in copy.read_text()


def test_explanations_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    explanations.main(30, 20, 12)
    shown = capsys.readouterr().out
    assert re.findall(r'^(\w+), (\d+) providers: [0-9.]+ ms', shown, re.MULTILINE) == [
        ('Usual', '38'),
        ('Usual', '92'),
        ('Hardest', '92'),
    ]
    assert 'No host with CUSTOM_A has VCPU:100: the largest has a capacity of 64.' in shown


def test_the_hardest_explanation_is_complete_within_the_steps_of_a_search() -> None:
    """On an eighth of the largest cloud, with an eighth of the steps."""
    snapshot, aggregates = explanations.cloud(1000, 3, 500)
    budget = SearchBudget(max_steps=1_000_000 // 8)
    request = parsing.parse(explanations.hardest_query(aggregates), NEWEST_VERSION)
    result = explain(snapshot, request, budget)
    assert (result.examined, result.limits_reached) == (result.trees, frozenset())
    assert result.trees == 1500


def test_an_explanation_says_how_many_hosts_it_is_about() -> None:
    snapshot, aggregates = explanations.cloud(9000, 0, 100)
    request = parsing.parse(explanations.hardest_query(aggregates), NEWEST_VERSION)
    result = explain(snapshot, request, SearchBudget(max_steps=30_000))
    assert 0 < result.examined < result.trees == 9100
    [first, *_] = Writer().sentences(result)
    assert first == f'This is about the first {result.examined:,} of 9,100 hosts, because a limit was reached.'
    assert result.limits_reached == {Limit.REQUEST_STEPS}
