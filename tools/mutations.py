"""Makes the mutations of ``mutations.txt``, one at a time, and prints which tests find each.

``python tools/mutations.py``. A mutation that no test finds shows a missing test, or code that nothing needs.

The tests are loaded once. A forked process replaces the code of the function that a mutation changes, and runs those
tests that execute its lines. Only for tests that start processes, a copy of the tree is changed.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import gc
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

import pytest
from _pytest import main as pytest_main
from coverage.numbits import numbits_to_nums
from rich.console import Console
from rich.progress import Progress

ROOT = pathlib.Path(__file__).resolve().parents[1]
GABBITS = 'tests/functional/test_gabbits.py'
#: The arguments of pytest for each kind of tests. Of the first four only tests that execute the mutated lines are run.
KINDS = {
    'unit': ['tests/unit'],
    'gabbits': [GABBITS],
    'functional': ['tests/functional', f'--ignore={GABBITS}', '--ignore=tests/functional/test_bench.py'],
    'property': ['tests/property'],
    'integration': ['tests/integration'],
    'thorough': ['--hypothesis-profile=thorough', '-m=thorough'],
}
SELECTED = tuple(KINDS)[:4]
#: Seconds of processor after which a test does not end, and seconds for a kind in a copy of the tree.
TEST_SECONDS, COPY_SECONDS = 60, 1800
OPTIONS = ['-q', '-p', 'no:cacheprovider']

#: By kind, the test that finds a mutation (empty if none does), and the seconds that this took.
Findings = Mapping[str, tuple[str, float]]


class Mutation(NamedTuple):
    """A fragment of a file, which is in it exactly once unless the mutation is stale, and what replaces it."""

    file: str
    old: str
    new: str

    def is_stale(self) -> bool:
        """Return whether the fragment is not in the file, there more than once, or in no function."""
        text = (ROOT / self.file).read_text() if (ROOT / self.file).exists() else ''
        line = text.partition(self.old)[0].count('\n') + 1
        return text.count(self.old) != 1 or enclosing_function(ast.parse(text), line) is None

    def __str__(self) -> str:
        return ' | '.join(' '.join(text.split()) for text in self)


def read_mutations() -> list[Mutation]:
    """Read the list: ``@ FILE`` begins a file, lines ``- OLD`` are a fragment, and lines ``+ NEW`` what replaces it."""
    text = (ROOT / 'tools/mutations.txt').read_text()
    parts = [part.partition('\n') for part in re.split('^@ ', text, flags=re.MULTILINE)[1:]]
    return [
        Mutation(file, *('\n'.join(line[2:] for line in lines.splitlines()) for lines in fragments))
        for file, _, rest in parts
        for fragments in re.findall(r'((?:^-.*\n)+)((?:^\+.*\n)+)', rest, re.MULTILINE)
    ]


def selectable(test: str) -> str:
    """Return what is selected to run a test: a gabbit needs the requests before it, so that is its suite."""
    return test.partition(': ')[0] if test.startswith(GABBITS) else test


class Coverage:
    """Which tests of one kind execute which lines, measured once on the unchanged tree."""

    def __init__(self, kind: str, work: pathlib.Path) -> None:
        self._path, log = work / f'{kind}.coverage', work / f'{kind}.log'
        if not self._path.exists():
            options = ['-n2', '--dist=loadgroup', '--cov=placement', '--cov-context=test', '--cov-report=', '-rfE']
            environment = os.environ | {'COVERAGE_FILE': str(work / 'coverage')}
            command = [sys.executable, '-m', 'pytest', *OPTIONS, *options, *KINDS[kind]]
            with log.open('w') as output:
                subprocess.run(command, cwd=ROOT, env=environment, stdout=output, check=False)
            (work / 'coverage').rename(self._path)
        #: Tests that fail on the unchanged tree.
        self._failed = set(re.findall(r'(?m)^(?:FAILED|ERROR) (\S+)', log.read_text())) if log.exists() else set()
        self._size: collections.Counter[str] = collections.Counter()
        for test, bits in self._rows('.py'):
            self._size[test] += len(bits)

    def _rows(self, file: str) -> Iterator[tuple[str, set[int]]]:
        query = 'SELECT context, numbits FROM line_bits JOIN context ON context.id = context_id JOIN file'
        with sqlite3.connect(self._path) as connection:
            for context, bits in connection.execute(f'{query} ON file.id = file_id WHERE path LIKE ?', ['%/' + file]):
                # A phase of the test follows, and before that xdist puts @ and the group.
                if test := re.sub(r'@[^\]]*$', '', context.rpartition('|')[0]):
                    yield test, set(numbits_to_nums(bits))

    def select(self, file: str, line_sets: Sequence[set[int]]) -> list[str]:
        """Return the tests that execute the first of ``line_sets``, sets of lines, of which any test executes a line.

        The first ones are spread over all of these, from those that execute the fewest lines to those with the most.
        """
        rows = [(test, lines) for test, lines in self._rows(file) if test not in self._failed]
        tests: list[str] = next(
            filter(None, [[test for test, lines in rows if lines & any_of] for any_of in line_sets]), []
        )
        chosen = list(dict.fromkeys(map(selectable, sorted(tests, key=self._size.__getitem__))))
        step = max(len(chosen) // 20, 1)
        return [test for start in range(step) for test in chosen[start::step]]


class Watch:
    """A plugin of pytest that ends the run when a test failed or the time of the processor is used up."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.process_time() + seconds
        #: The test that failed; None if the time was used up before.
        self.failed: str | None = ''

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        def end(*_: object) -> None:
            self.failed = f'{item.nodeid} does not end'
            raise KeyboardInterrupt

        signal.signal(signal.SIGPROF, end)
        signal.setitimer(signal.ITIMER_PROF, TEST_SECONDS)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid
        elif time.process_time() > self._deadline:
            self.failed = None
        if self.failed != '':
            raise KeyboardInterrupt


class Runner:
    """A plugin of pytest that runs the loaded tests for each mutation instead of once.

    :param findings: by mutation, those of earlier runs; updated.
    """

    def __init__(
        self,
        mutations: Sequence[Mutation],
        coverage: Mapping[str, Coverage],
        arguments: argparse.Namespace,
        findings: dict[str, Findings],
    ) -> None:
        self._waiting = collections.deque(mutations)
        self._coverage = coverage
        self._arguments = arguments
        self._findings = findings
        self._incomplete: set[tuple[Mutation, str]] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            self._items.setdefault(selectable(item.nodeid), []).append(item)
        functions = [item for item in gc.get_objects() if isinstance(item, types.FunctionType)]
        self._functions = [function for function in functions if function.__code__.co_filename.startswith(str(ROOT))]
        # Forked processes would copy what the garbage collector touches.
        gc.freeze()
        running: dict[int, tuple[Mutation, str, float, int]] = {}
        with Progress(console=Console(stderr=True), auto_refresh=False) as progress:
            task = progress.add_task('mutations', total=len(self._waiting))
            while self._waiting or running:
                while self._waiting and len(running) < 2:
                    mutation = self._waiting.popleft()
                    if (kind := self._next_kind(mutation)) is None:
                        progress.advance(task)
                        continue
                    reader, writer = os.pipe()
                    if not (pid := os.fork()):
                        self._run(session, mutation, kind, writer)
                    os.close(writer)
                    running[pid] = mutation, kind, time.monotonic(), reader
                progress.refresh()
                if running:
                    mutation, kind, started, reader = running.pop(os.wait()[0])
                    with os.fdopen(reader) as result:
                        test = json.loads(result.read() or '"a test that ends the process"')
                    self._record(mutation, kind, test, time.monotonic() - started)
                    self._waiting.appendleft(mutation)
        return True

    def _next_kind(self, mutation: Mutation) -> str | None:
        findings = self._findings.setdefault(str(mutation), {})
        is_found = any(test for test, _ in findings.values())
        for kind in self._arguments.kind or KINDS:
            if is_found and (
                self._arguments.mode == 'first' or (self._arguments.mode == 'four' and kind not in SELECTED)
            ):
                return None
            if kind not in findings and (mutation, kind) not in self._incomplete:
                return kind
        return None

    def _record(self, mutation: Mutation, kind: str, test: str | None, seconds: float) -> None:
        if test is None:
            self._incomplete.add((mutation, kind))
        else:
            self._findings[str(mutation)] = {**self._findings[str(mutation)], kind: (test, round(seconds, 1))}
            (self._arguments.work / 'results.json').write_text(json.dumps(self._findings, indent=1))

    def _run(self, session: pytest.Session, mutation: Mutation, kind: str, writer: int) -> NoReturn:
        """In a forked process, run the tests of one kind until one fails, and write its name."""
        os.nice(10)
        random.seed()
        result: str | None = 'a test that ends the process'
        try:
            if kind in SELECTED:
                null = os.open(os.devnull, os.O_RDWR)
                for number in range(3):
                    os.dup2(null, number)
                shutil.rmtree(os.environ['HYPOTHESIS_STORAGE_DIRECTORY'], ignore_errors=True)
                tests = self._replace_code(mutation, kind)
                session.items[:] = [item for test in tests for item in self._items.get(test, ())]
                watch = Watch(self._arguments.seconds)
                session.config.pluginmanager.register(watch)
                with contextlib.suppress(KeyboardInterrupt, session.Interrupted, session.Failed):
                    pytest_main.pytest_runtestloop(session)
                result = watch.failed
            else:
                result = run_in_copy(mutation, kind)
        finally:
            os.write(writer, json.dumps(result).encode())
            os._exit(0)

    def _replace_code(self, mutation: Mutation, kind: str) -> list[str]:
        """Change the function in memory, and return the tests of it."""
        path = ROOT / mutation.file
        text = path.read_text()
        first = text[: text.index(mutation.old)].count('\n') + 1
        last = first + mutation.old.count('\n')
        name, lines = enclosing_function(ast.parse(text), first) or ('', range(0))
        changed = compile(text.replace(mutation.old, mutation.new), str(path), 'exec')
        [code] = [code for code in codes(changed) if code.co_qualname == name]
        for function in self._functions:
            if function.__code__.co_filename == str(path) and function.__code__.co_qualname == name:
                function.__code__ = code
        line_sets = [set(range(first, last + 1)), set(lines), set(range(1, text.count('\n') + 1))]
        return self._coverage[kind].select(mutation.file, line_sets)


def enclosing_function(node: ast.AST, line: int) -> tuple[str, range] | None:
    """Return the qualified name of the outermost function around a line, and the lines of its body; None if none is."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.lineno <= line <= (child.end_lineno or 0):
            if isinstance(child, ast.FunctionDef):
                return child.name, range(child.body[0].lineno, (child.end_lineno or 0) + 1)
            method = enclosing_function(child, line)
            return method and (f'{child.name}.{method[0]}', method[1])
    return None


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a module or class, and of all that it defines."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def run_in_copy(mutation: Mutation, kind: str) -> str:
    """Plant a mutation in a copy of the tree, run tests in it, and return the name of the one that failed."""
    with tempfile.TemporaryDirectory(prefix='placement-mutation-') as directory:
        tree = pathlib.Path(directory, 'placement')
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns('.venv', '.tox', '.*_cache', '.hypothesis'))
        text = (tree / mutation.file).read_text()
        (tree / mutation.file).write_text(text.replace(mutation.old, mutation.new))
        command = [sys.executable, '-m', 'pytest', '-x', '-rfE', *OPTIONS, *KINDS[kind]]
        environment = os.environ | {'PYTHONPATH': str(tree)}
        try:
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=COPY_SECONDS
            )
        except subprocess.TimeoutExpired:
            return 'a test that does not end'
    failed = re.search(r'(?m)^(?:FAILED|ERROR) (\S+)', done.stdout)
    return failed[1] if failed else '' if done.returncode in (0, 5) else f'pytest ends with status {done.returncode}'


def main() -> int:
    """Run the command and return its exit status: 1 if a mutation is stale or no test finds it."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('words', nargs='*', metavar='WORD', help='only mutations that contain one of these texts')
    parser.add_argument('--work', type=pathlib.Path, help='keep coverage and results here, and use those of before')
    parser.add_argument('--kind', action='append', choices=KINDS, help='only this kind of tests; may be repeated')
    parser.add_argument('--seconds', type=float, default=60, help='of processor for each kind; default: %(default)s')
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument('--first', dest='mode', action='store_const', const='first', help='stop when one kind finds it')
    modes.add_argument('--all-kinds', dest='mode', action='store_const', const='all', help='run also slow kinds')
    parser.set_defaults(mode='four')
    arguments = parser.parse_args()
    mutations = read_mutations()
    mutations = [mutation for mutation in mutations if any(word in str(mutation) for word in arguments.words or [''])]
    stale = [mutation for mutation in mutations if mutation.is_stale()]
    mutations = [mutation for mutation in mutations if mutation not in stale]
    with tempfile.TemporaryDirectory(prefix='placement-mutations-') as scratch:
        os.environ['HYPOTHESIS_STORAGE_DIRECTORY'] = f'{scratch}/hypothesis'
        arguments.work = arguments.work or pathlib.Path(scratch)
        arguments.work.mkdir(parents=True, exist_ok=True)
        results = arguments.work / 'results.json'
        findings: dict[str, Findings] = json.loads(results.read_text()) if results.exists() else {}
        kinds = [kind for kind in SELECTED if kind in (arguments.kind or KINDS)]
        coverage = {kind: Coverage(kind, arguments.work) for kind in kinds}
        runner = Runner(mutations, coverage, arguments, findings)
        os.chdir(ROOT)
        sys.path.insert(0, str(ROOT))
        paths = [
            argument for kind in kinds for argument in KINDS[kind] if kind != 'gabbits' or 'functional' not in kinds
        ]
        if 'gabbits' in kinds:
            paths = [argument for argument in paths if argument != f'--ignore={GABBITS}']
        pytest.main([*OPTIONS, '-q', '-s', '--no-header', '--no-summary', *paths], plugins=[runner])

    survivors = 0
    for mutation in mutations:
        finders = [f'{kind} {seconds:.0f} s' for kind, (test, seconds) in findings[str(mutation)].items() if test]
        is_open = any(kind not in findings[str(mutation)] for kind in arguments.kind or KINDS)
        survivors += not finders
        print(mutation, ', '.join(finders) or ('NOT FOUND IN TIME' if is_open else 'SURVIVES'), sep=' | ')
    for mutation in stale:
        print(mutation, 'STALE: its text is in no function, or not exactly once in the file', sep=' | ')
    print(f'{len(mutations)} mutations, of which no test finds {survivors}; {len(stale)} others are stale.')
    return int(bool(survivors or stale))


if __name__ == '__main__':
    sys.exit(main())
