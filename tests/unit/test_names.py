"""Locals are named by their nouns, as CONTRIBUTING asks for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.pages import ROOT

#: Words that say nothing of the thing they stand for.
VAGUE = re.compile(
    'at|each|found|given|here|kept|known|left|made|more|most|one|others|own|some|sought|there|wanted|which'
)

#: The bindings of these words that each directory may have. Lower a number when there are fewer.
MAX_BINDINGS = {'bench': 1, 'placement': 14, 'tests': 6, 'tools': 2}


def vague_bindings(source: str) -> Iterator[tuple[int, str]]:
    """The line and name of each variable and parameter that is called by one of the words."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        else:
            continue
        if VAGUE.fullmatch(name):
            yield node.lineno, name


@pytest.mark.parametrize(('directory', 'max_bindings'), MAX_BINDINGS.items())
def test_locals_are_named_by_their_nouns(directory: str, max_bindings: int) -> None:
    places = [
        f'{path.relative_to(ROOT)}:{line} {name}'
        for path in sorted((ROOT / directory).rglob('*.py'))
        for line, name in vague_bindings(path.read_text())
    ]
    listed = '\n'.join(places)
    assert len(places) <= max_bindings, f'{len(places)} names say nothing (max {max_bindings}), rename one:\n{listed}'
