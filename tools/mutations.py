"""Makes the mutations of ``mutations.txt``, one at a time, and prints which tests find each.

``python tools/mutations.py``. A mutation that no test finds shows a missing test, or code that nothing needs. Each is
made in a copy of the tree. Of the kinds of tests in ``SELECTED``, only those run that execute its lines, as coverage
has measured on the unchanged tree.
"""

from __future__ import annotations

import argparse
import ast
import os
import pathlib
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from coverage import CoverageData

ROOT = pathlib.Path(__file__).resolve().parents[1]
GABBITS = 'tests/functional/test_gabbits.py'
#: The arguments of pytest for all tests of each kind. Those of the last kind need ``tools/start-services.sh``.
KINDS = {
    'unit': ['tests/unit'],
    'gabbits': [GABBITS],
    'functional': ['tests/functional', '--ignore=tests/functional/test_bench.py'],
    'property': ['tests/property'],
    'integration': ['tests/integration'],
    'thorough': ['--hypothesis-profile=thorough', '-m=thorough'],
    'servers': ['tests/integration', '-m=postgresql or mariadb'],
}
SELECTED = tuple(KINDS)[:4]
#: The other kinds may take this multiple of the seconds of the selected ones.
SLOW_FACTOR = 20
#: A test that takes longer than this counts as one that fails.
TEST_SECONDS = 120
OUT_OF_TIME, SURVIVES = 'NOT FOUND IN TIME', 'SURVIVES'
PYTEST = [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider']


class Mutation(NamedTuple):
    """A fragment of a file, which is in it exactly once unless the mutation is stale, and what replaces it."""

    file: str
    old: str
    new: str

    def staleness(self) -> str:
        """Return whether the fragment is absent from the file or ambiguous in it; empty if it is neither."""
        path = ROOT / self.file
        count = path.read_text().count(self.old) if path.exists() else 0
        if count == 1:
            return ''
        return f'ambiguous, {count} times in the file' if count else 'absent from the file'

    def statements(self) -> list[Collection[int]]:
        """Return the lines of each statement that contains the fragment, from the smallest statement on.

        Only the first test that calls a function with a cache executes its lines. So return those that name it instead.
        """
        text = (ROOT / self.file).read_text()
        first = text.partition(self.old)[0].count('\n') + 1
        last = first + self.old.count('\n')
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
        around = [node for node in nodes if node.lineno <= first and last <= (node.end_lineno or 0)]
        for function in (node for node in around if isinstance(node, ast.FunctionDef)):
            if re.search(r'cache\b', ' '.join(map(ast.unparse, function.decorator_list))):
                name = re.compile(rf'\b{function.name}\b')
                return [[number for number, line in enumerate(text.splitlines(), 1) if name.search(line)]]
        return sorted([range(node.lineno, (node.end_lineno or 0) + 1) for node in around], key=len)

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


def measure_coverage(file: pathlib.Path) -> CoverageData:
    """Run all tests of ``SELECTED`` on the unchanged tree, unless ``file`` has their coverage already."""
    if not file.exists():
        options = ['-n2', '--dist=loadgroup', '--cov=placement', '--cov-context=test', '--cov-report=']
        paths = [argument for kind in SELECTED if kind != 'gabbits' for argument in KINDS[kind]]
        subprocess.run(
            [*PYTEST, *options, *paths], cwd=ROOT, env=os.environ | {'COVERAGE_FILE': str(file)}, check=False
        )
    coverage = CoverageData(str(file))
    coverage.read()
    return coverage


def select_tests(coverage: CoverageData, mutation: Mutation) -> dict[str, list[str]]:
    """Return the arguments of pytest for the tests that execute the statement of a mutation, by kind.

    If no test does, they are those that execute the statement around it, and so on.
    """
    [path] = [path for path in coverage.measured_files() if path.endswith(f'/{mutation.file}')]
    contexts = coverage.contexts_by_lineno(path)
    executing = [{name for line in lines for name in contexts.get(line, ())} for lines in mutation.statements()]
    # After the name of a test there are @ and its group, from xdist, and | and its phase. Imports belong to no test.
    tests = {re.sub(r'(@[^\]]*)?\|\w+$', '', name) for name in next((names for names in executing if names - {''}), ())}
    selected: dict[str, list[str]] = {kind: [] for kind in SELECTED}
    for test in sorted(tests - {''}):
        selected['gabbits' if test.startswith(GABBITS) else test.split('/')[1]].append(test)
    for of_kind in selected.values():
        # Neighbors are alike, so tests in random order find a mutation sooner.
        random.Random(0).shuffle(of_kind)
    # A gabbit needs the requests before it, so whole suites run.
    suites = sorted({test.partition('[')[2].partition(': ')[0] + ':' for test in selected['gabbits']})
    selected['gabbits'] = [GABBITS, '-k', ' or '.join(suites)] if suites else []
    return selected


def run(tree: pathlib.Path, arguments: Sequence[str], seconds: int) -> str | None:
    """Run tests in a copy of the tree. Return the one that fails; an empty text if none does, None if time is over."""
    # Thousands of names of tests are too long for a command.
    (tree / 'arguments').write_text('\n'.join(arguments))
    command = ['prlimit', f'--cpu={seconds}', *PYTEST, '-x', '-rfE', f'--timeout={TEST_SECONDS}', '@arguments']
    environment = os.environ | {'PYTHONPATH': str(tree)}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    failed = re.search(r'(?m)^(?:FAILED|ERROR) (\S+)', done.stdout)
    if failed:
        return failed[1]
    return {0: '', 5: '', -signal.SIGKILL: None}.get(done.returncode, f'pytest ends with status {done.returncode}')


def examine(mutation: Mutation, tree: pathlib.Path, coverage: CoverageData, options: argparse.Namespace) -> str:
    """Plant a mutation in a copy of the tree. Return which kinds of tests find it, in words.

    Unless kinds are given, the slow ones are for mutations that no other kind finds.
    """
    original = (tree / mutation.file).read_text()
    (tree / mutation.file).write_text(original.replace(mutation.old, mutation.new))
    tests = KINDS | select_tests(coverage, mutation)
    found: list[str] = []
    is_out_of_time = False
    for kind in options.kind or KINDS:
        if not tests[kind] or (found and (options.first or (not options.kind and kind not in SELECTED))):
            continue
        started = time.monotonic()
        test = run(tree, tests[kind], options.seconds * (1 if kind in SELECTED else SLOW_FACTOR))
        is_out_of_time = is_out_of_time or test is None
        if test:
            found.append(f'{kind} {time.monotonic() - started:.0f} s: {test}')
    (tree / mutation.file).write_text(original)
    return ', '.join(found) or (OUT_OF_TIME if is_out_of_time else SURVIVES)


def main() -> int:
    """Run the command and return its exit status: 1 if a mutation is stale or no test finds it."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('words', nargs='*', metavar='WORD', help='only mutations that contain one of these texts')
    parser.add_argument(
        '--coverage', metavar='FILE', type=pathlib.Path, help='read it from here if it exists, else write it'
    )
    parser.add_argument('--kind', action='append', choices=KINDS, help='only this kind of tests; may be repeated')
    parser.add_argument('--seconds', type=int, default=150, help='CPU time of a selected kind; default: %(default)s')
    parser.add_argument('--first', action='store_true', help='stop when one kind finds it')
    options = parser.parse_args()
    mutations = [
        mutation for mutation in read_mutations() if any(word in str(mutation) for word in options.words or [''])
    ]
    fresh = [mutation for mutation in mutations if not mutation.staleness()]
    survivors = 0
    os.nice(10)
    with tempfile.TemporaryDirectory(prefix='placement-mutations-') as name, ThreadPoolExecutor(2) as pool:
        directory = pathlib.Path(name)
        coverage = measure_coverage((options.coverage or directory / 'coverage').absolute())
        trees: queue.SimpleQueue[pathlib.Path] = queue.SimpleQueue()
        ignore = shutil.ignore_patterns('.venv', '.tox', '.*_cache', '.hypothesis')
        for copy in ('first', 'second'):
            trees.put(shutil.copytree(ROOT, directory / copy, ignore=ignore))

        def examine_in_free_tree(mutation: Mutation) -> str:
            tree = trees.get()
            try:
                return examine(mutation, tree, coverage, options)
            finally:
                trees.put(tree)

        for mutation, result in zip(fresh, pool.map(examine_in_free_tree, fresh), strict=True):
            survivors += result in (OUT_OF_TIME, SURVIVES)
            print(mutation, result, sep=' | ', flush=True)
    for mutation in mutations:
        if mutation not in fresh:
            print(mutation, f'STALE: {mutation.staleness()}', sep=' | ')
    print(
        f'{len(fresh)} mutations, of which no test finds {survivors}; {len(mutations) - len(fresh)} others are stale.'
    )
    return int(bool(survivors) or len(fresh) < len(mutations))


if __name__ == '__main__':
    sys.exit(main())
