"""How Sphinx makes the documentation site and the man pages of what is in doc/ and api-ref/: ``tox -e docs``.

The Markdown is written to be read on a forge as well, so it has no directives. The tables of pages in the two
``index.md`` are the table of contents.
"""

from __future__ import annotations

import pathlib
import re
import subprocess

from docutils import nodes
from sphinx.application import Sphinx

_ROOT = pathlib.Path(__file__).resolve().parent.parent

project = 'placement'
author = 'the authors of placement'
extensions = ['myst_parser', 'reno.sphinxext', 'sphinxarg.ext']
root_doc = 'doc/index'
include_patterns = [
    'README.md',
    'CONTRIBUTING.md',
    'SECURITY.md',
    'doc/*.md',
    'api-ref/*.md',
    'gabbits/README.md',
    'doc/changes.rst',
    'doc/man/*.rst',
]
myst_heading_anchors = 4
# JSON with comments and ellipses is shown as plain text; sphinx-argparse resolves no references of MyST.
suppress_warnings = ['misc.highlighting_failure', 'myst.domains']

html_theme = 'furo'
html_title = 'placement'

man_pages = [
    ('doc/man/placement-api', 'placement-api', 'serve the Placement API', '', 8),
    ('doc/man/placement-manage', 'placement-manage', 'manage the database and inspect the cloud', '', 8),
    ('doc/man/placement-status', 'placement-status', 'check whether an upgrade can continue', '', 8),
]


def _add_table_of_contents(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Add a hidden toctree for each section of an index with a table of pages, with these pages in their order.

    In the navigation, a page has its name in the table, or its title if the table has only its file. The heading of a
    section of ``doc/index`` is the caption of its pages.
    """
    if docname not in ('doc/index', 'api-ref/index'):
        return
    for section in re.split('^## ', source[0], flags=re.MULTILINE):
        heading, _, text = section.partition('\n')
        if '| Page |' not in text:
            continue
        links = re.findall(r'^\| \[([^\]]+)\]\(([\w./-]+)\.(?:md|rst)\)', text, flags=re.MULTILINE)
        pages = dict.fromkeys(page if name.endswith('.md') else f'{name.strip("`")} <{page}>' for name, page in links)
        caption = f':caption: {heading}\n' if docname == 'doc/index' else ''
        source[0] += f'\n```{{toctree}}\n:hidden:\n{caption}\n' + '\n'.join(pages) + '\n```\n'
    if docname == 'doc/index':
        source[0] += '\n```{toctree}\n:hidden:\n:caption: Manual pages\n:glob:\n\nman/*\n```\n'


def _leave_out_changes(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Leave out the release notes where reno cannot read them, because the history of git is not here or not whole."""
    command = ['git', 'rev-parse', '--is-shallow-repository']
    if docname == 'doc/changes':
        try:
            shallow = subprocess.run(command, check=True, cwd=_ROOT, capture_output=True, text=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            shallow = 'no repository'
        if shallow != 'false':
            source[0] = source[0].replace('.. release-notes::', 'This copy was built without them.')


def _name_first_release(_app: Sphinx, doctree: nodes.document) -> None:
    """Name the release that is in preparation. Before the first tag, reno calls it 0.0.0."""
    for title in doctree.findall(nodes.title):
        if title.astext() == '0.0.0':
            title.children = [nodes.Text('1.0.0, in preparation')]


def setup(app: Sphinx) -> None:
    """Connect the events."""
    app.connect('doctree-read', _name_first_release)
    app.connect('source-read', _add_table_of_contents)
    app.connect('source-read', _leave_out_changes)
