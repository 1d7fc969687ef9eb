"""The pages about the commands name exactly the commands, options and checks that exist."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from placement.cmd import manage, status
from placement.db import migration
from placement.ops import audit

DOC = Path(__file__).resolve().parents[2] / 'doc'

#: Commands with a page of their own; the others have a section in manage.md.
PAGES = {'explain': 'explain.md', 'page': 'page.md', 'db adopt': 'adopt.md', 'upgrade check': 'status.md'}


#: Options of every command, which the top of manage.md describes.
COMMON = {'--help', '--config-file', '--config-dir', '--debug', '--log-file'}


def _commands(parser: argparse.ArgumentParser, path: str = '') -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """``db sync`` and its parser, for every command that does something."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield path, parser
    for action in nested:
        for name, below in action.choices.items():
            yield from _commands(below, f'{path} {name}'.strip())


COMMANDS = dict(_commands(manage._parser())) | dict(_commands(status._parser()))


def _sections() -> dict[str, str]:
    parts = re.split(r'^## (.+)$', (DOC / 'manage.md').read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_command_has_a_section_or_a_page() -> None:
    assert set(_sections()) - {'Completion'} == set(COMMANDS) - set(PAGES)
    assert set(PAGES) <= set(COMMANDS)


@pytest.mark.parametrize('command', PAGES)
def test_page_says_what_to_run(command: str) -> None:
    text = (DOC / PAGES[command]).read_text()
    assert re.search(rf'placement-(manage|status) {command}', text)


def test_common_options_are_documented() -> None:
    before_sections = (DOC / 'manage.md').read_text().partition('\n## ')[0]
    assert set(re.findall(r'--[a-z-]+', before_sections)) >= COMMON


@pytest.mark.parametrize('command', COMMANDS)
def test_options_are_documented(command: str) -> None:
    text = (DOC / PAGES[command]).read_text() if command in PAGES else _sections()[command]
    options = {
        option for action in COMMANDS[command]._actions for option in action.option_strings if option[:2] == '--'
    }
    assert options - COMMON <= set(re.findall(r'--[a-z-]+', text))


@pytest.mark.parametrize('command', COMMANDS)
def test_help_explains_the_command(command: str) -> None:
    assert COMMANDS[command].description
    for action in COMMANDS[command]._actions:
        assert action.help, f'{command}: {action.dest}'


@pytest.mark.parametrize('page', ['manage.md', 'adopt.md'])
def test_examples_print_the_newest_revision(page: str) -> None:
    printed = re.findall(r'^    (?:.*(?:revision|stamp|schema,) )?(\d{3})\b', (DOC / page).read_text(), re.MULTILINE)
    assert set(printed) == {migration.head()}


def test_checks_of_an_audit_are_documented() -> None:
    rows = re.findall(r'^\| `([a-z_]+)` \|', _sections()['audit'], flags=re.MULTILINE)
    assert rows == list(audit.CHECKS)


def test_checks_of_an_upgrade_are_documented() -> None:
    rows = re.findall(r'^\| `([^`]+)` \|', (DOC / 'status.md').read_text(), flags=re.MULTILINE)
    assert rows == [name for name, _check in status.Checks._upgrade_checks]
