"""Fixtures of the replays: a machine with the service installed and a database server, for each process of pytest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration import services
from tests.integration.deployers.site import Site, equip, virtual_environment
from tests.integration.operations import machine
from tests.support import keystone


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test of this directory, which runs only when it is requested. The first of them installs the service."""
    item.add_marker('deployers')
    item.add_marker(pytest.mark.timeout(services.INSTALL_SECONDS))


@pytest.fixture(scope='session')
def host() -> Iterator[machine.Machine]:
    """A machine with the programs and servers that the tools expect, and Keystone on port 5000."""
    venv = virtual_environment()
    with machine.booted() as booted:
        equip(booted, venv)
        identity = keystone.keystone(5000)
        booted.inside(identity.__enter__)
        yield booted
        booted.inside(identity.__exit__, None, None, None)


@pytest.fixture
def site(host: machine.Machine) -> Iterator[Site]:
    """The machine without files, databases and processes of another test."""
    site = Site(host)
    site.clear()
    yield site
    site.clear()
