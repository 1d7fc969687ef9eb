"""Fixtures of the operations tests, for the session: a Keystone, and a machine. The tests run only when requested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration import services
from tests.integration.operations import identity, machine
from tests.support import keystone as local_keystone


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test of this directory, which runs only when it is requested. The first of them installs programs."""
    item.add_marker('operations')
    item.add_marker(pytest.mark.timeout(2 * services.INSTALL_SECONDS))


@pytest.fixture(scope='session')
def keystone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[identity.Keystone]:
    """A running Keystone."""
    with identity.served(tmp_path_factory.mktemp('keystone')) as running:
        yield running


@pytest.fixture(scope='session')
def host() -> Iterator[machine.Machine]:
    """A machine on which a test finds what the tests before it have installed and started."""
    with machine.booted() as booted:
        yield booted


@pytest.fixture(scope='session')
def identity_url(host: machine.Machine) -> Iterator[str]:
    """The URL of a Keystone in the network of the machine."""
    server = local_keystone.keystone()
    yield host.inside(server.__enter__)
    host.inside(server.__exit__, None, None, None)
