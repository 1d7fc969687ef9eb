"""Print every dependency of the installed package, and of its extras, at its lower bound: constraints for pip."""

from __future__ import annotations

import importlib.metadata
import re


def constraint(requirement: str) -> str:
    """``psycopg[binary]>=3.2; extra == "x"`` -> ``psycopg==3.2``; any other form is a ValueError."""
    parts = re.fullmatch(r'([A-Za-z0-9._-]+)(?:\[[a-z,]+\])?(?:<[0-9.]+,)?>=([0-9.]+)(?:;.*)?', requirement)
    if parts is None:
        raise ValueError(f'{requirement} has neither the form name>=bound nor name<bound,>=bound')
    return f'{parts[1]}=={parts[2]}'


if __name__ == '__main__':
    for requirement in importlib.metadata.requires('placement-server') or ():
        print(constraint(requirement))
