"""Tests: unit, functional (the gabbits), property (generated input) and integration (real servers and clients)."""

import pytest

pytest.register_assert_rewrite('tests.support', 'tests.integration')
