"""Tests the examples of api-ref on the whole application, and the order of the first checks of each operation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import webob
from oslo_config import cfg

from placement.web import error_responses
from tests.support import applications
from tests.support.http_client import send_request
from tests.support.pages import rows
from tests.support.search.examples import EXAMPLES, REJECTIONS, TOPOLOGIES, Section, listed, sections
from tests.support.search.oracle import assert_candidates
from tests.support.search.query_strings import uuid_of, with_uuids
from tests.support.search.store import Stored

API_REF = Path(__file__).resolve().parents[2] / 'api-ref'
PAGES = sorted(page for page in API_REF.glob('*.md') if '```http' in page.read_text())
LATEST = '1.29'


# Requests and responses ---------------------------------------------------------------------------------------


class Exchange(NamedTuple):
    """A request of a page, and the answer that the page gives."""

    method: str
    path: str
    version: str
    body: str
    status: int
    code: str
    expected: str


def exchanges(page: Path) -> Iterator[Exchange]:
    """The blocks marked ``http`` of a page: pairs of paragraphs, a request and its answer.

    ``<name>`` stands for a uuid.
    """
    blocks = re.findall(r'^```http\n(.*?)^```$', page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r'<(\w+)>', lambda match: uuid_of(match[1]), '\n\n'.join(blocks))
    paragraphs = iter(re.split(r'\n\n+', text.strip()))
    for request in paragraphs:
        line, _, body = request.partition('\n')
        method, path, version = re.fullmatch(r'([A-Z]+) (\S+)(?: at (\S+))?', line).groups()  # type: ignore[union-attr]
        status, _, expected = next(paragraphs).partition('\n')
        number, _, code = status.partition(' ')
        yield Exchange(method, path, version or LATEST, body, int(number), code, expected)


def _without_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_order(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted(map(_without_order, value), key=lambda item: json.dumps(item, sort_keys=True))
    return value


def _code(example: Exchange, response: webob.Response) -> str | None:
    """The code that the error must have; none below 1.23 and where no microversion was agreed on."""
    version = response.headers.get('OpenStack-API-Version')
    if version is None or int(version.partition('.')[2]) < 23:
        return None
    return example.code or error_responses.DEFAULT


@pytest.fixture
def conf(request: pytest.FixtureRequest, tmp_path: Path) -> cfg.ConfigOpts:
    """Options for the examples of a page: those that name microversions above 1.29 need an operator who allows them."""
    page = request.node.callspec.params.get('page')
    newest = (
        applications.NEWEST_MICROVERSION
        if page and re.search(r'^[A-Z]+ \S+ at 1\.(?!99)[3-9]\d$', page.read_text(), re.MULTILINE)
        else LATEST
    )
    return applications.options(tmp_path / 'placement.sqlite', placement={'max_microversion': newest})


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_examples_are_answered_as_the_page_says(app: Any, page: Path) -> None:
    for example in exchanges(page):
        body = json.loads(example.body) if example.body else None
        response = send_request(app, example.method, example.path, body, example.version)
        assert response.status_code == example.status, (example, response.text)
        if example.status >= 400:
            [error] = response.json['errors']
            assert example.expected in error['detail']
            assert error.get('code') == _code(example, response), example
        elif example.expected:
            assert _without_order(response.json) == _without_order(json.loads(example.expected)), example
        else:
            assert response.body == b'', example


@pytest.mark.usefixtures('every_microversion')
@pytest.mark.parametrize('topology', list(sections()), ids=lambda topology: topology.name)
def test_candidates_are_those_of_the_page(app: Any, topology: Section) -> None:
    stored = Stored(app, TOPOLOGIES[topology.name])
    for row in topology.queries:
        if 'Listed' in row:
            path = f'/resource_providers?{with_uuids(row["Query of the list"].strip("`"))}'
            listed_providers = stored.request(path, 29).json['resource_providers']
            assert sorted(provider['name'] for provider in listed_providers) == sorted(listed(row['Listed']))
    for example in EXAMPLES:
        if example.topology == topology.name:
            response = stored.candidates(example.query, example.minor)
            assert_candidates(stored.entries(response), example.entries())
            assert set(stored.summaries(response)) == set(example.summaries.split()), example
    for rejection in REJECTIONS:
        if rejection.topology == topology.name:
            path = f'/allocation_candidates?{with_uuids(rejection.query)}'
            response = stored.request(path, rejection.minor)
            assert response.status_code == 400, rejection
            [error] = response.json['errors']
            assert (error['code'], rejection.phrase in error['detail']) == (rejection.code, True), error


# The first checks of an operation -------------------------------------------------------------------------------

#: The names of the checks in the tables, and the headers of a request that only this check rejects.
GATES = {
    'media type': {'Content-Type': 'text/plain'},
    '`Accept` excludes JSON': {'Accept': 'text/plain'},
    'policy': {'X-Auth-Token': 'somebody'},
}


@pytest.fixture(scope='module')
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One application for requests that are all rejected."""
    directory = tmp_path_factory.mktemp('gates')
    with applications.application(directory / 'placement.sqlite', placement=applications.EVERY_MICROVERSION) as app:
        yield app


def operations() -> Iterator[tuple[str, str]]:
    """Every operation, and its section; a section with several tables of errors once for each."""
    for page in sorted(API_REF.glob('*.md')):
        for part in re.split(r'^## ', page.read_text(), flags=re.MULTILINE)[1:]:
            heading, _, text = part.partition('\n')
            if re.match(r'[A-Z]+ /', heading) and heading != 'GET /':
                yield heading, text


def _gates(text: str) -> list[tuple[int, str]]:
    """Status and name of the leading rows of the first table of errors that are such checks."""
    table = text[text.index('| Status | When ') :]
    gates = []
    for row in rows(table.partition('\n\n')[0]):
        name = re.split(r', also|; ', row['When'])[0]
        if name not in GATES and not re.fullmatch(r'(below|at) 1\.\d+', name):
            break
        gates.append((int(row['Status']), name))
    return gates


@pytest.mark.parametrize(('heading', 'text'), list(operations()), ids=lambda value: value.partition('\n')[0][:70])
def test_operations_check_in_the_order_of_their_tables(untouched: Any, heading: str, text: str) -> None:
    method, path = heading.split()
    gates = _gates(text)
    assert gates[-1] == (403, 'policy')
    # Every check rejects this request. The headers are corrected one by one, and the next check has to answer.
    version = '1.6' if heading == 'PUT /resource_classes/{name}' else applications.NEWEST_MICROVERSION
    for number, (status, _name) in enumerate(gates):
        shut = [name for _, name in gates[number:]]
        headers: dict[str, str] = {}
        for name in shut:
            headers.update(GATES.get(name, {}))
        body: dict[str, Any] | None = {} if method in ('PUT', 'POST') else None
        below = next((name for name in shut if name not in GATES), None)
        response = send_request(untouched, method, path, body, _below(below) if below else version, **headers)
        assert response.status_code == status, (heading, shut, response.text)


def _below(name: str) -> str:
    word, version = name.split()
    minor = int(version.partition('.')[2])
    return f'1.{minor - 1 if word == "below" else minor}'
