"""Fixtures of the tests on generated input."""

from tests.support.fixtures import app, conf, context, db, point_commands_at, queries

__all__ = ['app', 'conf', 'context', 'db', 'point_commands_at', 'queries']
