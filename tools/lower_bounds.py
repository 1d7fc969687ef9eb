"""Print constraints for pip: a file of them, and for what it does not list, the lower bounds of ``pyproject.toml``."""

from __future__ import annotations

import itertools
import pathlib
import re
import sys
import tomllib


def constraint(requirement: str) -> str:
    """``psycopg[binary]>=3.2`` -> ``psycopg==3.2``; any other form is a ValueError."""
    parts = re.fullmatch(r'([A-Za-z0-9._-]+)(?:\[[a-z,]+\])?>=([0-9.]+)(?:,<[0-9.]+)?', requirement)
    if parts is None:
        raise ValueError(f'{requirement} has neither the form name>=bound nor name>=bound,<bound')
    return f'{parts[1]}=={parts[2]}'


def plain(line: str) -> str:
    """The name of the package of a constraint, as indexes compare names."""
    return re.sub('[-_.]+', '-', line.partition('=')[0]).lower()


if __name__ == '__main__':
    project = tomllib.loads(pathlib.Path('pyproject.toml').read_text())['project']
    requirements = itertools.chain(project['dependencies'], *project['optional-dependencies'].values())
    listed = pathlib.Path(sys.argv[1]).read_text()
    names = {plain(line) for line in listed.splitlines()}
    print(listed, *(bound for bound in map(constraint, requirements) if plain(bound) not in names), sep='\n')
