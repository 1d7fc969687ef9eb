"""Functions with which tests read the pages of ``doc/``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def first_cells(text: str) -> list[str]:
    """The text between grave accents at the start of each table row."""
    return re.findall(r'^\| `([^`]+)`', text, flags=re.MULTILINE)


def section(page: str, heading: str) -> str:
    """The text of ``doc/<page>`` below a heading of the second level, up to the next one."""
    parts = re.split(r'^## (.+)$', (ROOT / 'doc' / page).read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


#: A row of a table, by the headings of its columns.
Row = dict[str, str]


def rows(table: str) -> Iterator[Row]:
    """The rows of a table."""
    lines = [[cell.strip() for cell in line.strip('|').split('|')] for line in table.splitlines()]
    for cells in lines[2:]:
        yield dict(zip(lines[0], cells, strict=True))
