"""What is true of a database after its adoption, whatever the server."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from placement import conf as placement_conf
from placement import deploy
from placement.db import migration, tables
from placement.db.adoption import found_tables
from tests.support import damage, foreign
from tests.support.asking import ask


def without_used(statements: Iterable[str]) -> list[str]:
    """The same statements for inventories that do not know what is used."""
    return [
        re.sub(r', used\) VALUES \((.*), \d+\)', r') VALUES (\1)', one) if 'INTO inventories' in one else one
        for one in statements
    ]


def check_schema(url: str | sa.URL) -> None:
    """Nothing of ours is missing, their version is theirs, ours is the newest."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={'compare_type': True})
        differences = compare_metadata(context, tables.metadata)
    theirs = {_columns(one[1]) for one in differences if one[0] in ('remove_constraint', 'remove_index')}
    wrong = [one for one in differences if _matters(one, theirs)]
    assert not wrong, wrong
    with engine.connect() as connection:
        assert not [name for name, shape in found_tables.read(connection).items() if shape.reuses_ids]
    assert damage.column(url, 'SELECT last FROM resource_class_ids') == [10000]
    assert damage.column(url, 'SELECT version_num FROM alembic_version') == ['somebody-elses']
    assert damage.column(url, f'SELECT version_num FROM {migration.VERSION_TABLE}') == [migration.head()]


def _columns(item: Any) -> tuple[str, ...]:
    return (item.table.name, *item.columns.keys())


def _matters(difference: Any, theirs: set[tuple[str, ...]]) -> bool:
    """Whether something of ours is missing or different; what is theirs may stay, and stand in under its own name."""
    if isinstance(difference, list):
        return any(_matters(one, theirs) for one in difference)
    what = difference[0]
    if what == 'add_constraint':
        return _columns(difference[1]) not in theirs
    if what == 'add_index':
        # An index that begins with the same columns does.
        wanted = _columns(difference[1])
        return all(one[: len(wanted)] != wanted for one in theirs)
    if what == 'modify_nullable':
        # Theirs may be stricter where we always give a value.
        return bool(difference[6])
    return what not in ('remove_table', 'remove_column', 'remove_index', 'remove_constraint', 'remove_fk')


def check_rows(url: str | sa.URL) -> None:
    """Nothing of theirs is lost; what was not there is."""
    ask = damage.column
    assert ask(url, 'SELECT root_provider_id FROM resource_providers ORDER BY id') == [1, 1, 3]
    assert ask(url, 'SELECT generation FROM resource_providers ORDER BY id') == [5, 2, 0]
    assert ask(url, 'SELECT allocation_ratio FROM inventories ORDER BY id') == [1.5, 16.1, 0.1, 1.0]
    assert ask(url, 'SELECT used FROM inventories ORDER BY id') == [1024, 12, 0, 2]
    assert [str(one)[:10] for one in ask(url, 'SELECT updated_at FROM inventories WHERE id = 1')] == ['2019-02-01']
    assert ask(url, 'SELECT updated_at FROM inventories WHERE id > 1') == [None, None, None]
    assert ask(url, 'SELECT used FROM allocations ORDER BY id') == [1024, 4, 8, 2]
    assert ask(url, 'SELECT consumer_type_id FROM consumers ORDER BY id') == [1, None, None]
    assert ask(url, 'SELECT name FROM consumer_types') == ['INSTANCE']
    assert ask(url, 'SELECT name FROM resource_classes WHERE id IN (0, 1, 2, 10000) ORDER BY id') == [
        'VCPU',
        'MEMORY_MB',
        'DISK_GB',
        'CUSTOM_GOLD',
    ]
    assert ask(url, 'SELECT name FROM traits WHERE id < 3 ORDER BY id') == ['CUSTOM_FAST', 'HW_CPU_X86_AVX2']


@contextlib.contextmanager
def _service(url: str | sa.URL) -> Iterator[Any]:
    connection = sa.make_url(url).render_as_string(hide_password=False)
    overrides = {'placement_database': {'connection': connection}, 'api': {'auth_strategy': 'noauth2'}}
    app = deploy.loadapp(placement_conf.load(environ={}, config_files=[], overrides=overrides))
    try:
        yield app
    finally:
        app.db.dispose()


def check_service(url: str | sa.URL) -> None:
    """The service answers over the old data, finds room in it, and claims, moves and names."""
    with _service(url) as app:
        _check_answers(app)
        _check_candidates(app)
        _check_claims(app)
        _check_names(app)


def _check_answers(app: Any) -> None:
    held = ask(app, 'GET', f'/allocations/{foreign.INSTANCE}').json
    assert {key: one['resources'] for key, one in held['allocations'].items()} == {
        foreign.HOST: {'MEMORY_MB': 1024},
        foreign.NUMA: {'VCPU': 4},
    }
    assert (held['project_id'], held['user_id'], held['consumer_generation']) == ('the-project', 'the-user', 3)
    assert ask(app, 'GET', f'/resource_providers/{foreign.NUMA}/usages').json['usages'] == {'VCPU': 12}
    usages = ask(app, 'GET', '/usages?project_id=the-project').json['usages']
    assert usages == {'MEMORY_MB': 1024, 'VCPU': 12}
    inventory = ask(app, 'GET', f'/resource_providers/{foreign.OTHER}/inventories/CUSTOM_GOLD').json
    assert inventory['allocation_ratio'] == 0.1
    numa = ask(app, 'GET', f'/resource_providers/{foreign.NUMA}').json
    assert (numa['root_provider_uuid'], numa['parent_provider_uuid']) == (foreign.HOST, foreign.HOST)
    traits = ask(app, 'GET', f'/resource_providers/{foreign.NUMA}/traits').json['traits']
    assert traits == ['HW_CPU_X86_AVX2']


def _check_candidates(app: Any) -> None:
    found = ask(app, 'GET', f'/allocation_candidates?resources=MEMORY_MB:512,VCPU:2&member_of={foreign.RACK}').json
    assert [set(one['allocations']) for one in found['allocation_requests']] == [{foreign.HOST, foreign.NUMA}]
    capacity = found['provider_summaries'][foreign.NUMA]['resources']['VCPU']
    assert capacity == {'capacity': int(16 * 16.1), 'used': 12}


def _check_claims(app: Any) -> None:
    claim = {'project_id': 'another', 'user_id': 'the-user', 'consumer_generation': None}
    small, large = ({'allocations': {foreign.OTHER: {'resources': {'VCPU': n}}}, **claim} for n in (6, 7))
    assert ask(app, 'PUT', f'/allocations/{uuid.uuid4()}', large).status_code == 409
    assert ask(app, 'PUT', f'/allocations/{uuid.uuid4()}', small).status_code == 204
    assert ask(app, 'PUT', f'/allocations/{uuid.uuid4()}', small).status_code == 409
    assert ask(app, 'DELETE', f'/allocations/{foreign.LOST}').status_code == 204
    usages = ask(app, 'GET', f'/resource_providers/{foreign.OTHER}/usages').json['usages']
    assert usages == {'CUSTOM_GOLD': 0, 'VCPU': 6}


def _check_names(app: Any) -> None:
    """New names get ids of their own, names that differ in case are two, and what is in use stays."""
    assert ask(app, 'PUT', '/resource_classes/CUSTOM_SILVER').status_code == 201
    assert ask(app, 'PUT', '/traits/CUSTOM_SLOW').status_code == 201
    assert ask(app, 'POST', '/resource_providers', {'name': 'HOST'}).status_code == 200
    assert ask(app, 'POST', '/resource_providers', {'name': 'host'}).status_code == 409
    assert ask(app, 'DELETE', '/traits/CUSTOM_FAST').status_code == 409
    assert ask(app, 'DELETE', '/resource_classes/CUSTOM_GOLD').status_code == 409
    assert ask(app, 'DELETE', f'/resource_providers/{foreign.HOST}').status_code == 409
