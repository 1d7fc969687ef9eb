"""What a test says that has waited in vain."""

from __future__ import annotations

import pytest

from tests.support import waiting


def test_a_wait_without_words_shows_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, 'SECONDS', 0)
    with pytest.raises(pytest.fail.Exception, match=r'^not in 0 s: waiting.wait_until\(lambda: None\)$'):
        waiting.wait_until(lambda: None)
    with pytest.raises(pytest.fail.Exception, match=r'^not in 0 s: words$'):
        waiting.wait_until(lambda: None, 'words')
