"""Database servers that tests start are ended and removed, also when their set-up fails."""

from __future__ import annotations

import pytest

from tests.support import databases, local_servers


@pytest.mark.parametrize('setting', databases.parameters(*databases.defaults()))
def test_a_server_whose_set_up_fails_is_ended_and_removed(
    setting: databases.Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[local_servers.PrivateServer] = []

    def fail(server: local_servers.PrivateServer) -> bool:
        failed.append(server)
        raise RuntimeError

    monkeypatch.setattr(local_servers.PrivateServer, '_answers', fail)
    with pytest.raises(RuntimeError), local_servers.running(setting.server):
        raise AssertionError('It must not start.')
    (server,) = failed
    assert server._process is not None
    assert server._process.poll() is not None
    assert not server.home.exists()
