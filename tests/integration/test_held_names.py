"""A write lands on the class or trait that it named, or on nothing: two requests at once, on PostgreSQL and MariaDB.

One more session holds a lock, and does nothing else, to stop the first request between its look at the name and its
write.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
import webob

from placement import conf as placement_conf
from placement.web.context import RequestContext
from tests.support import databases, lasting_ids

pytestmark = pytest.mark.parametrize(
    'setting', databases.parameters(*databases.defaults()), indirect=True, scope='module'
)

#: Seconds in which a request that nobody stops is done, and after which one that is not has been stopped.
MOMENT = 0.7

Answers = concurrent.futures.Future[webob.Response]


class Service:
    """The application on the database server, and a pool of clients."""

    def __init__(self, app: Any, engine: sa.Engine) -> None:
        self._app = app
        self._engine = engine
        self._pool = concurrent.futures.ThreadPoolExecutor(4)

    def call(self, method: str, path: str, body: Any = None, version: str = '1.29') -> webob.Response:
        """Send a request and wait for the answer."""
        request = webob.Request.blank(path, method=method)
        request.headers['X-Auth-Token'] = 'admin'
        request.headers['OpenStack-API-Version'] = f'placement {version}'
        if body is not None:
            request.content_type = 'application/json'
            request.json = body
        return request.get_response(self._app)

    def begin(self, method: str, path: str, body: Any = None, version: str = '1.29') -> Answers:
        """Send a request, and give it a moment to get as far as it can."""
        answer = self._pool.submit(self.call, method, path, body, version)
        concurrent.futures.wait([answer], MOMENT)
        return answer

    @contextlib.contextmanager
    def holding(self, postgresql: str, mariadb: str) -> Iterator[None]:
        """A transaction of another session that has run one statement, rolled back at the end."""
        with self._engine.connect().execution_options(isolation_level='REPEATABLE READ') as connection:
            on_postgresql = connection.dialect.name == 'postgresql'
            with connection.begin() as transaction:
                connection.exec_driver_sql(postgresql if on_postgresql else mariadb)
                yield
                transaction.rollback()

    def no_new_inventory(self, provider: str) -> contextlib.AbstractContextManager[None]:
        """Let nobody insert an inventory of a provider, which may be looked at, and changed in every other way."""
        of_provider = f"SELECT id FROM placement_resource_providers WHERE uuid = '{provider}'"
        number = self.scalar(of_provider)
        return self.holding(
            'LOCK TABLE placement_inventories IN SHARE MODE',
            'SELECT id FROM placement_inventories FORCE INDEX (uniq_inventories0resource_provider_resource_class)'
            f' WHERE resource_provider_id = {number} FOR UPDATE',
        )

    def no_new_consumer(self, consumer: str) -> contextlib.AbstractContextManager[None]:
        """Let nobody create a consumer, for which there must be a project and a user."""
        statement = (
            'INSERT INTO placement_consumers (uuid, project_id, user_id)'
            f" SELECT '{consumer}', p.id, u.id FROM placement_projects p, placement_users u LIMIT 1"
        )
        return self.holding(statement, statement)

    def lock(self, table: str, column: str, value: str) -> contextlib.AbstractContextManager[None]:
        """Hold one row."""
        statement = f"SELECT id FROM {table} WHERE {column} = '{value}' FOR UPDATE"
        return self.holding(statement, statement)

    def scalar(self, query: str) -> Any:
        """What a query gives."""
        with self._engine.connect() as connection:
            return connection.exec_driver_sql(query).scalar()

    def close(self) -> None:
        """End the clients."""
        self._pool.shutdown()
        self._engine.dispose()


@pytest.fixture(scope='module')
def service(load_application: Callable[..., Any], database: sa.URL) -> Iterator[Service]:
    made = Service(load_application({}), sa.create_engine(database, poolclass=sa.NullPool))
    yield made
    made.close()


def test_no_id_is_given_twice(load_application: Callable[..., Any]) -> None:
    conf = placement_conf.load(environ={}, config_files=[], overrides={})
    db = load_application({}).db
    lasting_ids.check(RequestContext(conf=conf, db=db, roles=['admin'], user_id='admin', project_id='admin'))


@pytest.fixture
def name(service: Service) -> str:
    """A new custom class."""
    made = f'CUSTOM_{uuid.uuid4().hex.upper()}'
    assert service.call('PUT', f'/resource_classes/{made}').status_int == 201
    return made


@pytest.fixture
def provider(service: Service) -> str:
    """A new provider without inventory."""
    made = str(uuid.uuid4())
    assert service.call('POST', '/resource_providers', {'name': made, 'uuid': made}).status_int == 200
    return made


def inventories(service: Service, provider: str) -> list[str]:
    """The classes that a provider has inventory of."""
    return list(service.call('GET', f'/resource_providers/{provider}/inventories').json['inventories'])


def writing(kind: str, provider: str, name: str) -> tuple[str, str, Any]:
    """Method, path and body of a request that gives a provider inventory of a class."""
    path = f'/resource_providers/{provider}/inventories'
    if kind == 'POST':
        return 'POST', path, {'resource_class': name, 'total': 7}
    return 'PUT', path, {'resource_provider_generation': 0, 'inventories': {name: {'total': 7}}}


@pytest.mark.parametrize('kind', ['POST', 'PUT'])
def test_class_deleted_while_inventory_of_it_is_written(service: Service, name: str, provider: str, kind: str) -> None:
    """The class is deleted and another one created, between the look at the name and the insert."""
    other = f'{name}_2'
    with service.no_new_inventory(provider):
        writer = service.begin(*writing(kind, provider, name))
        assert not writer.done()
        deleter = service.begin('DELETE', f'/resource_classes/{name}')
        assert service.call('PUT', f'/resource_classes/{other}').status_int == 201
    assert writer.result().status_int in (200, 201), writer.result().text
    assert deleter.result().status_int == 409, deleter.result().text
    assert inventories(service, provider) == [name]


@pytest.mark.parametrize('kind', ['POST', 'PUT'])
def test_class_renamed_while_inventory_of_it_is_written(service: Service, name: str, provider: str, kind: str) -> None:
    """The class is renamed only after the write; so nobody who knows its new name finds inventory appear there."""
    other = f'{name}_2'
    with service.no_new_inventory(provider):
        writer = service.begin(*writing(kind, provider, name))
        assert not writer.done()
        renamer = service.begin('PUT', f'/resource_classes/{name}', {'name': other}, '1.6')
        assert not renamer.done()
    assert writer.result().status_int in (200, 201), writer.result().text
    assert renamer.result().status_int == 200, renamer.result().text
    assert inventories(service, provider) == [other]


def test_class_exchanged_while_it_is_claimed(service: Service, name: str, provider: str) -> None:
    """Inventory and class go, and another class gets inventory, between the look at the name and the claim."""
    path, other, consumer = f'/resource_providers/{provider}', f'{name}_2', str(uuid.uuid4())
    owner = {'project_id': 'held', 'user_id': 'held', 'consumer_generation': None}
    claim = {'allocations': {provider: {'resources': {name: 3}}}, **owner}
    assert service.call(*writing('POST', provider, name)).status_int == 201
    first = str(uuid.uuid4())
    assert service.call('PUT', f'/allocations/{first}', claim).status_int == 204
    assert service.call('DELETE', f'/allocations/{first}').status_int == 204
    with service.no_new_consumer(consumer):
        claimant = service.begin('PUT', f'/allocations/{consumer}', claim)
        assert not claimant.done()
        assert service.call('DELETE', f'{path}/inventories/{name}').status_int == 204
        deleter = service.begin('DELETE', f'/resource_classes/{name}')
        assert service.call('PUT', f'/resource_classes/{other}').status_int == 201
        assert service.call(*writing('POST', provider, other)).status_int == 201
    assert claimant.result().status_int in (400, 409), claimant.result().text
    assert deleter.result().status_int == 204, deleter.result().text
    assert service.call('GET', f'{path}/usages').json['usages'] == {other: 0}


def test_class_renamed_while_it_is_claimed(service: Service, name: str, provider: str) -> None:
    """The class is renamed only after the claim."""
    path, other, consumer = f'/resource_providers/{provider}', f'{name}_2', str(uuid.uuid4())
    owner = {'project_id': 'held', 'user_id': 'held', 'consumer_generation': None}
    claim = {'allocations': {provider: {'resources': {name: 3}}}, **owner}
    assert service.call(*writing('POST', provider, name)).status_int == 201
    first = str(uuid.uuid4())
    assert service.call('PUT', f'/allocations/{first}', claim).status_int == 204
    with service.no_new_consumer(consumer):
        claimant = service.begin('PUT', f'/allocations/{consumer}', claim)
        renamer = service.begin('PUT', f'/resource_classes/{name}', {'name': other}, '1.6')
        assert not claimant.done()
        assert not renamer.done()
    assert claimant.result().status_int == 204, claimant.result().text
    assert renamer.result().status_int == 200, renamer.result().text
    assert service.call('GET', f'{path}/usages').json['usages'] == {other: 6}


def test_two_rename_one_class(service: Service, name: str) -> None:
    """Whoever comes second finds no class of the old name, and leaves the row alone."""
    with service.lock('placement_resource_classes', 'name', name):
        renamers = [
            service.begin('PUT', f'/resource_classes/{name}', {'name': f'{name}_{number}'}, '1.6') for number in (1, 2)
        ]
        assert not any(renamer.done() for renamer in renamers)
    assert sorted(renamer.result().status_int for renamer in renamers) == [200, 404]


def test_class_renamed_while_it_is_deleted(service: Service, name: str) -> None:
    """The deletion waits for the rename, and then there is nothing of that name."""
    with service.lock('placement_resource_classes', 'name', name):
        renamer = service.begin('PUT', f'/resource_classes/{name}', {'name': f'{name}_2'}, '1.6')
        deleter = service.begin('DELETE', f'/resource_classes/{name}')
        assert not renamer.done()
        assert not deleter.done()
    assert sorted([renamer.result().status_int, deleter.result().status_int]) in ([200, 404], [204, 404])
    if renamer.result().status_int == 200:
        assert service.call('GET', f'/resource_classes/{name}_2').status_int == 200


def test_trait_deleted_while_a_provider_gets_it(service: Service, provider: str) -> None:
    """The trait is held from the look at the name on: its deletion waits, and is refused."""
    name = f'CUSTOM_{uuid.uuid4().hex.upper()}'
    assert service.call('PUT', f'/traits/{name}').status_int == 201
    body = {'traits': [name], 'resource_provider_generation': 0}
    with service.lock('placement_resource_providers', 'uuid', provider):
        writer = service.begin('PUT', f'/resource_providers/{provider}/traits', body)
        assert not writer.done()
        deleter = service.begin('DELETE', f'/traits/{name}')
        assert not deleter.done()
    assert writer.result().json['traits'] == [name]
    assert deleter.result().status_int == 409, deleter.result().text


def test_names_that_are_held_can_be_held_by_many(service: Service, name: str) -> None:
    """Two writers of one class, on different providers, do not wait for each other."""
    providers = [str(uuid.uuid4()) for _ in range(2)]
    for one in providers:
        assert service.call('POST', '/resource_providers', {'name': one, 'uuid': one}).status_int == 200
    with service.lock('placement_resource_providers', 'uuid', providers[0]):
        stopped = service.begin(*writing('POST', providers[0], name))
        assert not stopped.done()
        assert service.begin(*writing('POST', providers[1], name)).done()
    assert stopped.result().status_int == 201
