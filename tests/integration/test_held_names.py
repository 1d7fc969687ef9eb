"""A write changes the class or trait that it named, or nothing: two requests at once, on PostgreSQL and MariaDB.

Another session holds a lock, and does nothing else, to stop the first request between reading the name and its
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

#: Seconds in which a request is done that waits for no lock; one that is not done by then waits for a lock.
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
        """Send a request, and wait until it is done or waits for a lock."""
        answer = self._pool.submit(self.call, method, path, body, version)
        concurrent.futures.wait([answer], MOMENT)
        return answer

    @contextlib.contextmanager
    def holding(self, postgresql: str, mariadb: str) -> Iterator[None]:
        """A transaction of another session, which runs one statement and is rolled back at the end."""
        with self._engine.connect().execution_options(isolation_level='REPEATABLE READ') as connection:
            on_postgresql = connection.dialect.name == 'postgresql'
            with connection.begin() as transaction:
                connection.exec_driver_sql(postgresql if on_postgresql else mariadb)
                yield
                transaction.rollback()

    def no_new_inventory(self, provider: str) -> contextlib.AbstractContextManager[None]:
        """Block inserts of inventories of a provider; reads and other changes of it are not blocked."""
        of_provider = f"SELECT id FROM placement_resource_providers WHERE uuid = '{provider}'"
        number = self.scalar(of_provider)
        return self.holding(
            'LOCK TABLE placement_inventories IN SHARE MODE',
            'SELECT id FROM placement_inventories FORCE INDEX (uniq_inventories0resource_provider_resource_class)'
            f' WHERE resource_provider_id = {number} FOR UPDATE',
        )

    def no_new_consumer(self, consumer: str) -> contextlib.AbstractContextManager[None]:
        """Block the creation of a consumer; a project and a user must exist."""
        statement = (
            'INSERT INTO placement_consumers (uuid, project_id, user_id)'
            f" SELECT '{consumer}', p.id, u.id FROM placement_projects p, placement_users u LIMIT 1"
        )
        return self.holding(statement, statement)

    def lock(self, table: str, column: str, value: str) -> contextlib.AbstractContextManager[None]:
        """Lock one row."""
        statement = f"SELECT id FROM {table} WHERE {column} = '{value}' FOR UPDATE"
        return self.holding(statement, statement)

    def scalar(self, query: str) -> Any:
        """The first value that a query returns."""
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
    """Between reading the name and the insert the class is deleted and another one created."""
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
    """The rename waits for the write, so no inventory appears under the new name after the rename."""
    other = f'{name}_2'
    with service.no_new_inventory(provider):
        writer = service.begin(*writing(kind, provider, name))
        assert not writer.done()
        renamer = service.begin('PUT', f'/resource_classes/{name}', {'name': other}, '1.6')
        assert not renamer.done()
    assert writer.result().status_int in (200, 201), writer.result().text
    assert renamer.result().status_int == 200, renamer.result().text
    assert inventories(service, provider) == [other]


def test_class_replaced_by_another_while_it_is_claimed(service: Service, name: str, provider: str) -> None:
    """Between reading the name and the claim, inventory and class are deleted, and another class gets inventory."""
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
    """The rename waits for the claim."""
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


def test_two_renames_of_one_class(service: Service, name: str) -> None:
    """The second rename finds no class of the old name and does not change the row."""
    with service.lock('placement_resource_classes', 'name', name):
        renamers = [
            service.begin('PUT', f'/resource_classes/{name}', {'name': f'{name}_{number}'}, '1.6') for number in (1, 2)
        ]
        assert not any(renamer.done() for renamer in renamers)
    assert sorted(renamer.result().status_int for renamer in renamers) == [200, 404]


def test_class_renamed_while_it_is_deleted(service: Service, name: str) -> None:
    """The deletion waits for the rename, and then finds no class of that name."""
    with service.lock('placement_resource_classes', 'name', name):
        renamer = service.begin('PUT', f'/resource_classes/{name}', {'name': f'{name}_2'}, '1.6')
        deleter = service.begin('DELETE', f'/resource_classes/{name}')
        assert not renamer.done()
        assert not deleter.done()
    assert sorted([renamer.result().status_int, deleter.result().status_int]) in ([200, 404], [204, 404])
    if renamer.result().status_int == 200:
        assert service.call('GET', f'/resource_classes/{name}_2').status_int == 200


def test_trait_deleted_while_a_provider_gets_it(service: Service, provider: str) -> None:
    """The trait is locked when its name is read: its deletion waits, and is refused."""
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


def test_writers_of_one_class_do_not_wait_for_each_other(service: Service, name: str) -> None:
    """The writers change different providers."""
    providers = [str(uuid.uuid4()) for _ in range(2)]
    for one in providers:
        assert service.call('POST', '/resource_providers', {'name': one, 'uuid': one}).status_int == 200
    with service.lock('placement_resource_providers', 'uuid', providers[0]):
        stopped = service.begin(*writing('POST', providers[0], name))
        assert not stopped.done()
        assert service.begin(*writing('POST', providers[1], name)).done()
    assert stopped.result().status_int == 201
