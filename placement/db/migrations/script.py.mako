"""${message}"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


# If the migration fills a column that the migration before it has added. ``db sync`` calls it, each time in a
# transaction of its own, until it returns False. Then it calls ``upgrade``.
#
# def copy_rows(connection: sa.Connection) -> bool:
#     """Fill the column in the next rows, at most some thousands, and return whether there may be more."""
