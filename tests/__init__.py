"""Tests: unit, functional (the gabbits), property (generated input) and integration (real servers and clients)."""
