"""The README is tested: its commands have the stated form, and its curl lines get the responses that it prints."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from placement.cmd import manage_arguments
from tests.support import servers

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / 'README.md').read_text()
ADDRESS = '127.0.0.1:8778'


def _walk() -> list[tuple[str, str]]:
    """Each curl line of the README with the answer that follows it."""
    return re.findall(r'^```sh\n(curl .*?)^```\n+```json\n(.*?)^```$', README, flags=re.MULTILINE | re.DOTALL)


def _curl(line: str) -> str:
    return subprocess.run(['bash', '-c', line], check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.operations
def test_curl_walk_gives_what_the_readme_says(tmp_path: Path) -> None:
    """On a free port instead of 8778. The service prints its address, its data, and a curl line that works."""
    walk = _walk()
    assert len(walk) >= 5
    with servers.ready(servers.start_api(tmp_path, '--dev', environ=servers.clean_environ())) as server:
        address, words = server.url.removeprefix('http://'), server.log.read_text()
        for line, promised in walk:
            assert json.loads(_curl(line.replace(ADDRESS, address))) == json.loads(promised), line
        assert server.url in words
        assert '.sqlite' in words
        (line,) = re.findall(r'^\s*(curl .*)$', words, flags=re.MULTILINE)
        assert json.loads(_curl(line))


def test_every_curl_line_is_in_the_walk() -> None:
    assert len(re.findall(r'^curl ', README, flags=re.MULTILINE)) == len(_walk())


def test_the_shell_commands_of_the_readme_have_the_stated_form() -> None:
    blocks = re.findall(r'^```sh\n(.*?)^```$', README, flags=re.MULTILINE | re.DOTALL)
    commands = [block.strip() for block in blocks if not block.startswith('curl')]
    assert commands == [
        'git clone URL placement && cd placement',
        'python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/placement-api --dev',
        'python3 -m venv .venv && .venv/bin/pip install tox && .venv/bin/tox',
        '.venv/bin/placement-manage page',
    ]
    # The checks of a change begin with these: the first as it stands here, the second word for word.
    checks = (ROOT / '.ci/run').read_text()
    assert "command=$(grep -x 'python3 -m venv .*placement-api --dev' README.md)" in checks
    assert checks.index('stage start start') < checks.index(
        f'stage default env PATH="$path" bash -c \'{commands[2]}\'\n'
    )
    assert f'http://{manage_arguments.PAGE_BIND}/' in README
    assert f'http://{ADDRESS}' in README
