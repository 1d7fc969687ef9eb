"""Servers that start at once on one empty database all become ready: ten, and four on SQLite, which locks the file."""

from __future__ import annotations

import pathlib

import pytest

from tests.support import assertions, databases


def test_on_sqlite(tmp_path: pathlib.Path) -> None:
    assertions.all_came_up([f'sqlite:///{tmp_path}/placement.db'] * 4, tmp_path)


@pytest.mark.parametrize('setting', databases.parameters(*databases.defaults()), indirect=True)
def test_on_a_server(setting: databases.Setting, tmp_path: pathlib.Path) -> None:
    with databases.fresh(databases.server_url(setting.server)) as url:
        assertions.all_came_up([setting.session_url(url)] * 10, tmp_path)
