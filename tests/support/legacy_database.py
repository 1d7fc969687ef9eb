"""A database as another deployment might have made it: DDL and data written for these tests."""

from __future__ import annotations

import re

import sqlalchemy as sa

from tests.support import corruption

HOST, NUMA, OTHER = (f'0000001{n}-0000-4000-8000-000000000000' for n in (1, 2, 3))
INSTANCE, LOST, LARGE = (f'c000001{n}-0000-4000-8000-000000000000' for n in (1, 2, 3))
RACK = 'a0000011-0000-4000-8000-000000000000'

#: ID is a primary key that numbers rows by itself, SINGLE a number in single precision, END what ends a table.
#: Providers have no times, there are hardly any foreign keys, and inventories and allocations can be repeated.
_TABLES = """
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY) END;
CREATE TABLE consumer_types (ID, name VARCHAR(255) NOT NULL UNIQUE, TIMES) END;
CREATE TABLE resource_providers (ID, uuid VARCHAR(36) NOT NULL, name VARCHAR(200), generation INTEGER,
    root_provider_id INTEGER, parent_provider_id INTEGER,
    CONSTRAINT their_uuid UNIQUE (uuid), CONSTRAINT their_name UNIQUE (name)) END;
CREATE TABLE resource_classes (ID, name VARCHAR(255) NOT NULL UNIQUE, TIMES) END;
CREATE TABLE inventories (ID, resource_provider_id INTEGER NOT NULL, resource_class_id INTEGER NOT NULL,
    total INTEGER NOT NULL, reserved INTEGER NOT NULL, min_unit INTEGER NOT NULL, max_unit INTEGER NOT NULL,
    step_size INTEGER NOT NULL, allocation_ratio SINGLE NOT NULL, TIMES) END;
CREATE INDEX by_class_and_more ON inventories (resource_class_id, total);
CREATE TABLE allocations (ID, resource_provider_id INTEGER NOT NULL, consumer_id VARCHAR(36) NOT NULL,
    resource_class_id INTEGER NOT NULL, used INTEGER NOT NULL, TIMES) END;
CREATE TABLE projects (ID, external_id VARCHAR(300) NOT NULL UNIQUE, TIMES) END;
CREATE TABLE users (ID, external_id VARCHAR(200) NOT NULL UNIQUE, created_at TIME NULL,
    updated_at TIME DEFAULT '2020-01-01 00:00:00' NOT NULL) END;
CREATE TABLE consumers (ID, uuid VARCHAR(36) NOT NULL UNIQUE, project_id INTEGER NOT NULL, user_id INTEGER NOT NULL,
    generation INTEGER DEFAULT 0 NOT NULL, consumer_type_id INTEGER NULL, TIMES,
    FOREIGN KEY (consumer_type_id) REFERENCES consumer_types (id)) END;
CREATE TABLE traits (ID, name VARCHAR(255) NOT NULL UNIQUE, TIMES) END;
CREATE TABLE resource_provider_traits (trait_id INTEGER NOT NULL, resource_provider_id INTEGER NOT NULL, TIMES,
    PRIMARY KEY (trait_id, resource_provider_id)) END;
CREATE TABLE placement_aggregates (ID, uuid VARCHAR(36) UNIQUE, TIMES) END;
CREATE TABLE resource_provider_aggregates (resource_provider_id INTEGER NOT NULL, aggregate_id INTEGER NOT NULL, TIMES,
    PRIMARY KEY (resource_provider_id, aggregate_id)) END
"""

_WORDS = {
    'sqlite': {'ID': 'id INTEGER NOT NULL PRIMARY KEY', 'SINGLE': 'FLOAT', 'TIME': 'DATETIME', 'END': ''},
    'postgresql': {'ID': 'id SERIAL NOT NULL PRIMARY KEY', 'SINGLE': 'REAL', 'TIME': 'TIMESTAMP', 'END': ''},
    'mysql': {
        'ID': 'id INTEGER NOT NULL AUTO_INCREMENT PRIMARY KEY',
        'SINGLE': 'FLOAT',
        'TIME': 'DATETIME',
        'END': 'DEFAULT CHARSET=utf8mb3 COLLATE utf8mb3_general_ci',
    },
}

#: Two hosts, one with a NUMA node below it. Class 0 is VCPU, 1 MEMORY_MB, 2 DISK_GB, and none of them is in the table.
_ROWS = f"""
INSERT INTO alembic_version VALUES ('somebody-elses');
INSERT INTO consumer_types (id, name) VALUES (1, 'INSTANCE');
INSERT INTO resource_providers (id, uuid, name, generation, root_provider_id, parent_provider_id) VALUES
    (1, '{HOST}', 'host', 5, NULL, NULL), (2, '{NUMA}', 'numa', 2, NULL, 1), (3, '{OTHER}', 'other', NULL, 3, NULL);
INSERT INTO resource_classes (id, name) VALUES (10000, 'CUSTOM_GOLD');
INSERT INTO inventories (id, resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, step_size,
    allocation_ratio, created_at, updated_at) VALUES
    (1, 1, 1, 4096, 512, 1, 4096, 1, 1.5, '2019-01-01 00:00:00', '2019-02-01 00:00:00'),
    (2, 2, 0, 16, 0, 1, 16, 1, 16.1, '2019-01-01 00:00:00', NULL),
    (3, 3, 10000, 10, 0, 1, 10, 1, 0.1, '2019-01-01 00:00:00', NULL),
    (4, 3, 0, 8, 0, 1, 8, 1, 1.0, '2019-01-01 00:00:00', NULL);
INSERT INTO projects (id, external_id) VALUES (1, 'the-project');
INSERT INTO users (id, external_id) VALUES (1, 'the-user');
INSERT INTO consumers (id, uuid, project_id, user_id, generation, consumer_type_id) VALUES
    (1, '{INSTANCE}', 1, 1, 3, 1), (2, '{LARGE}', 1, 1, 1, NULL);
INSERT INTO allocations (id, resource_provider_id, consumer_id, resource_class_id, used) VALUES
    (1, 1, '{INSTANCE}', 1, 1024), (2, 2, '{INSTANCE}', 0, 4), (3, 2, '{LARGE}', 0, 8), (4, 3, '{LOST}', 0, 2);
INSERT INTO traits (id, name) VALUES (1, 'CUSTOM_FAST'), (2, 'HW_CPU_X86_AVX2');
INSERT INTO resource_provider_traits (trait_id, resource_provider_id) VALUES (2, 2), (1, 1);
INSERT INTO placement_aggregates (id, uuid) VALUES (1, '{RACK}');
INSERT INTO resource_provider_aggregates (resource_provider_id, aggregate_id) VALUES (1, 1)
"""


#: Tables whose sequences continue after the rows; the others are as after a copy of rows without sequences.
_NUMBERED = ('resource_providers', 'inventories', 'allocations', 'projects', 'users', 'consumers')


#: What a deployment lacks that has never had types of consumers.
_TYPES = (
    'CREATE TABLE consumer_types (ID, name VARCHAR(255) NOT NULL UNIQUE, TIMES) END;',
    "INSERT INTO consumer_types (id, name) VALUES (1, 'INSTANCE');",
    ' consumer_type_id INTEGER NULL,',
    """,
    FOREIGN KEY (consumer_type_id) REFERENCES consumer_types (id)""",
    ', consumer_type_id',
)


def build(url: str | sa.URL, *, with_types: bool = True) -> None:
    """Make the tables and their rows in an empty database, with or without types of consumers."""
    server = sa.make_url(url).get_backend_name()
    script, rows = _TABLES, _ROWS
    if not with_types:
        for part in _TYPES:
            script, rows = script.replace(part, ''), rows.replace(part, '')
        rows = rows.replace(', 3, 1)', ', 3)').replace(', 1, NULL)', ', 1)')
    script = _worded(script, server)
    corruption.plant(url, *script.split(';'), *rows.split(';'))
    if server == 'postgresql':
        corruption.plant(
            url, *(f"SELECT setval('{table}_id_seq', (SELECT max(id) FROM {table}))" for table in _NUMBERED)
        )


def _worded(script: str, server: str) -> str:
    script = script.replace('TIMES', 'created_at TIME NULL, updated_at TIME NULL')
    for word, meaning in _WORDS[server].items():
        script = re.sub(rf'\b{word}\b', meaning, script)
    return script
