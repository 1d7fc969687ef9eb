"""The parts of doc/differences.md, what differs from the reference, that are made from the code of this service."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from placement.cmd import manage, status
from placement.conf.unknown import COUNTERPARTS

#: The commands that the reference also has.
_REFERENCE_COMMANDS = frozenset(
    {
        'placement-manage db sync',
        'placement-manage db version',
        'placement-manage db stamp',
        'placement-manage db online_data_migrations',
        'placement-status upgrade check',
    }
)


def options_table() -> str:
    """Return the table of the options that are ignored, each with the line that the log has for it."""
    rows = [f'| `[{group}] {name}` | {reason} |\n' for (group, name), reason in sorted(COUNTERPARTS.items())]
    return ''.join(['| Ignored | Reason, or what to use instead |\n', '|---|---|\n', *rows])


def commands_table() -> str:
    """Return the table of the commands that only this service has, each with its description in the help."""
    rows = [
        f'| `{command}` | {summary} |\n'
        for parser in (manage._parser(), status._parser())
        for command, summary in _commands(parser, parser.prog)
        if command not in _REFERENCE_COMMANDS
    ]
    return ''.join(['| Command | What it does |\n', '|---|---|\n', *rows])


def _commands(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, str]]:
    """Yield each command below a parser that runs something, and its line in the help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or '' for choice in action._choices_actions}
            for name, command in action.choices.items():
                below = list(_commands(command, f'{path} {name}'))
                yield from below or [(f'{path} {name}', summaries[name])]
