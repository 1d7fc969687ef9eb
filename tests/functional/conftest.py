"""Fixtures of the functional tests: an application on a database of its own, and what belongs to it."""

from tests.support.fixtures import app, conf, context, db, failed, other_process, point_commands_at, printed, queries

__all__ = ['app', 'conf', 'context', 'db', 'failed', 'other_process', 'point_commands_at', 'printed', 'queries']
