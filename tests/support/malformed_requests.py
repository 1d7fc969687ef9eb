"""Malformed requests, generated from valid ones, and a small topology whose state is compared around each request."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import sqlalchemy as sa
import webob
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from placement import handler
from placement.db import tables
from placement.web import microversion
from tests.support import error_details

HOST = '4e8e5957-649f-477b-9e5b-f1f75b21c03c'
CHILD = '0c9d2f1e-7a3b-4d58-8e61-92b7c5a4d3f0'
EMPTY = 'b1d6c7a2-3f4e-4a90-9c8b-7e6d5f4a3b21'
AGGREGATE = '93f8a6b5-1c2d-4e3f-8a7b-6c5d4e3f2a1b'
CONSUMER = '8a3f2c7d-5e0b-4f61-9d2a-6b1c0e4f7a95'
OTHER_CONSUMER = 'd7c6b5a4-9382-4170-8f6e-5d4c3b2a1908'

GOOD_HEADERS = {
    'X-Auth-Token': 'admin',
    'OpenStack-API-Version': 'placement 1.29',
    'Content-Type': 'application/json',
    'Accept': 'application/json',
}


@dataclasses.dataclass(frozen=True)
class Request:
    """A request as it is sent. ``target`` is path and query, percent-encoded."""

    method: str
    target: str
    headers: Mapping[str, str] = dataclasses.field(default_factory=lambda: GOOD_HEADERS)
    body: bytes = b''

    def __repr__(self) -> str:
        start = f'{self.method} {self.target[:300]!r} {dict(self.headers)!r:.600}'
        return f'{start} {self.body[:300]!r} ({len(self.body)} bytes)'


def send(app: Any, request: Request) -> webob.Response:
    """Send the request to the application, as an HTTP server would (PEP 3333), and read the whole answer."""
    path, _, query = request.target.partition('?')
    environ = {
        'REQUEST_METHOD': request.method,
        'PATH_INFO': unquote_to_bytes(path.encode('latin-1')).decode('latin-1'),
        'QUERY_STRING': query,
        'CONTENT_LENGTH': str(len(request.body)),
        'wsgi.input': io.BytesIO(request.body),
    }
    for name, value in request.headers.items():
        key = name.upper().replace('-', '_')
        environ[key if key in {'CONTENT_TYPE', 'CONTENT_LENGTH'} else f'HTTP_{key}'] = value
    response: webob.Response = webob.Request.blank('/', environ).get_response(app)
    assert not any(mark in text for field in response.headerlist for text in field for mark in '\r\n\0')
    return response


class Topology:
    """An application with a few providers and allocations, whose stored state is compared around each request."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.sent = 0
        self.rejected = 0
        self._looks = itertools.count()
        engine = sa.create_engine(app.db.engine.url, isolation_level='AUTOCOMMIT', poolclass=sa.NullPool)
        self._connection = engine.connect()
        self.populate()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _version(self) -> int:
        """A number that SQLite changes whenever another connection commits a change; servers do not count changes."""
        if self._connection.dialect.name == 'sqlite':
            return int(self._connection.exec_driver_sql('PRAGMA data_version').scalar_one())
        return next(self._looks)

    def _rows(self) -> dict[str, list[str]]:
        return {
            name: sorted(repr(tuple(row)) for row in self._connection.execute(sa.select(table)))
            for name, table in tables.metadata.tables.items()
        }

    def request(self, method: str, target: str, body: Any = None) -> webob.Response:
        """Send a well-formed request, to set up the topology."""
        return send(self.app, Request(method, target, body=b'' if body is None else json.dumps(body).encode()))

    def populate(self) -> None:
        """Create what the templates of requests refer to, unless it exists."""
        for name, uuid, parent in (('host', HOST, None), ('child', CHILD, HOST), ('empty', EMPTY, None)):
            self.request('POST', '/resource_providers', {'name': name, 'uuid': uuid, 'parent_provider_uuid': parent})
        for target in ('/traits/CUSTOM_BLUE', '/resource_classes/CUSTOM_GOLD'):
            self.request('PUT', target)
        for name in ('VCPU', 'CUSTOM_GOLD'):
            self.request('POST', f'/resource_providers/{HOST}/inventories', {'resource_class': name, 'total': 100})
        generation = self.request('GET', f'/resource_providers/{HOST}').json['generation']
        aggregates = {'aggregates': [AGGREGATE], 'resource_provider_generation': generation}
        self.request('PUT', f'/resource_providers/{HOST}/aggregates', aggregates)
        claim = {'allocations': {HOST: {'resources': {'VCPU': 1}}}, 'project_id': 'p', 'user_id': 'u'}
        self.request('PUT', f'/allocations/{CONSUMER}', {**claim, 'consumer_generation': None})
        self._seen, self._state = self._version(), self._rows()

    def attack(self, request: Request) -> webob.Response:
        """Send ``request``; check what holds for every answer, and that a rejected request changed nothing."""
        self.sent += 1
        response = send(self.app, request)
        assert response.status_int < 500, (response.status, request)
        assert response.headers['x-openstack-request-id'].startswith('req-'), request
        if response.status_int >= 400:
            self.rejected += 1
            self._check_error(response, request)
        version = self._version()
        if version != self._seen:
            before, self._seen, self._state = self._state, version, self._rows()
            if response.status_int >= 400 or request.method in {'GET', 'HEAD', 'OPTIONS'}:
                assert before == self._state, (response.status, request)
        if self.sent % 100 == 0:
            self.populate()
        return response

    def _check_error(self, response: webob.Response, request: Request) -> None:
        """The error has its status and a detail, in valid UTF-8."""
        if request.method == 'HEAD':
            assert response.body == b'', request
            return
        text = response.body.decode('utf-8')
        if response.content_type == 'application/json':
            (error,) = json.loads(text)['errors']
            assert error['status'] == response.status_int, request
            error_details.check(json.loads(text))
        assert 'Traceback' not in text, request
        assert 'sqlalchemy' not in text.lower(), request


# Values that break careless servers --------------------------------------------------------------------------------

STRINGS = [
    *('', ' ', '\t', '\n', 'null', 'true', '0', '-1', '{uuid}', '{0}', '{', '}', '%s', '%(x)s', '${x}'),
    *('$(id)', '\\', 'CUSTOM_', 'CUSTOM_a', 'CUSTOM_A\n', 'CUSTOM_' + 'A' * 248, 'CUSTOM_' + 'A' * 249),
    *('VCPU', 'vcpu', 'VCPU\n', '!', "'; DROP TABLE allocations; --", '" OR 1=1', '<script>alert(1)</script>'),
    *('&lt;', '../../etc/passwd', 'a/b', '%2f', 'Ünï', '\u202etxt', '\U0001f4a9', '\ufeff', '\uffff'),
    *('e\u0301', '\ufb01', '\U0001d7d9', '\u0663', 'x' * 255, 'x' * 256, '\x7f\x80'),
    *('{4e8e5957-649f-477b-9e5b-f1f75b21c03c}', 'urn:uuid:4e8e5957-649f-477b-9e5b-f1f75b21c03c', '-' * 36),
    *('f' * 36, '4E8E5957649F477B9E5BF1F75B21C03C', '4e8e5957-649f-477b-9e5b-f1f75b21c03c\n', 'in:', 'in:,'),
    *('1:2:3', ':', '\u0661'),
]

#: Texts to put in the place of a JSON value. Some are malformed JSON, as no encoder would write it.
JSON_TEXTS = [
    *(b'1e999', b'-1e999', b'NaN', b'Infinity', b'-Infinity', b'1e400', b'1e-400', b'-0', b'-0.0', b'2.0', b'2.5'),
    *(b'0', b'-1', b'01', b'1.', b'.5', b'0x10', b'1_000', b'+1', b'1E2', b'3.5e38', b'1.7976931348623157e308'),
    *(b'2147483647', b'2147483648', b'-2147483649', b'4294967296', b'9223372036854775807', b'9223372036854775808'),
    *(b'-9223372036854775809', b'18446744073709551616', b'1' + b'0' * 400, b'-1' + b'0' * 400, b'9' * 5000),
    *(rb'"\u0000"', rb'"a\u0000b"', rb'"\ud800"', rb'"\udfff\ud800"', rb'"\x00"', b'"\x00"', b'"\n"'),
    *(b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xf8\x88\x80\x80\x80"', b'"', b"'a'", rb'"\u12"'),
    b'"' + b'n' * 100_000 + b'"',
    *(b'null', b'true', b'false', b'[]', b'{}', b'[[]]', b'{"a": 1}', b'{"": {}}', b'[null]', b'[1, 1]'),
    *(b'[{}]', b'', b'[' * 5000 + b']' * 5000, b'{"a":' * 3000 + b'1' + b'}' * 3000, b'[' * 100_000),
    *(b'[0' + b',0' * 20_000 + b']', b'{"a": 1, "a": 2}', b'undefined', b'/* */ 1', b'1 1', b'[1,]'),
    *(b'{"a": 1,}', b'{1: 2}', b'\xef\xbb\xbf{}'),
    *(b'7', b'0.5', b'1e-300', b'"VCPU"', b'"CUSTOM_GOLD"', b'"CUSTOM_NONE"', b'"host"', b'"child"'),
]

strings = st.one_of(
    st.sampled_from(STRINGS), st.text(max_size=40).map(lambda text: text.encode('utf-8', 'ignore').decode())
)
json_texts = st.one_of(
    st.sampled_from(JSON_TEXTS),
    strings.map(lambda text: json.dumps(text).encode()),
    st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)).map(lambda number: b'%a' % number),
)

#: A string, a number or another scalar of JSON; and a punctuation mark.
_TOKENS = re.compile(rb'"[^"]*"|[\w.-]+|[][{},:]')


@st.composite
def mutated_json(draw: st.DrawFn, template: Any) -> bytes:
    """``template`` (JSON data) as text with up to three things changed, most often one."""
    if isinstance(template, dict) and draw(st.integers(0, 9)) == 0:
        missing = draw(st.sampled_from(sorted(template)))
        template = {key: value for key, value in template.items() if key != missing}
    tokens: list[bytes] = _TOKENS.findall(json.dumps(template).encode())
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 3]))):
        scalars = [index for index, token in enumerate(tokens) if token not in b'[]{},:']
        is_any_token = draw(st.integers(0, 9)) == 0
        indexes = list(range(len(tokens))) if is_any_token else scalars
        index = draw(st.sampled_from(indexes)) if indexes else 0
        changes = [[draw(json_texts)]] * 8 + [[], tokens[index : index + 1] * 2]
        tokens[index : index + 1] = draw(st.sampled_from(changes))
    return b''.join(tokens)


ESCAPES = [
    *('%', '%zz', '%u0041', '%00', '%ff', '%C0%AF', '%ED%A0%80', '+', '%2B', ';', '&', '=', '#', '?', '..', '%2e%2e'),
    '\x80',
]

#: One piece of a path or a query string, already percent-encoded as a client would send it.
encoded_text = st.one_of(
    strings.map(lambda text: ''.join(f'%{byte:02X}' for byte in text.encode())),
    st.binary(max_size=12).map(lambda raw: ''.join(f'%{byte:02X}' for byte in raw)),
    st.sampled_from(ESCAPES),
)

header_values = st.one_of(
    st.sampled_from(
        [
            *('', ' ', ',', ';', 'a;b=c', '*', '*/*;q=x', 'text/html;q=1e999', 'application/json;q=0'),
            *('x' * 8000, '\xff\xfe', 'placement', 'placement 1.', 'placement 1.99999999999999999999'),
            *('placement -1.0', 'placement 1.1.1', 'placement', 'placement latest', 'placement LATEST'),
            *('placement \u00b9.\u00b2', 'compute 2.1, placement 1.29', 'placement 1e1.0', 'application/json'),
            *('Application/JSON', 'application/json; charset=utf-7', 'text/plain', 'multipart/form-data'),
            *('admin', 'admin:', ':admin', 'admin:\xff', 'nobody', 'req-\xe9'),
            *('req-00000000-0000-0000-0000-000000000000', 'a\tb'),
        ]
    ),
    st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=30),
)


# Requests --------------------------------------------------------------------------------------------------------

INVENTORY = {'total': 8, 'reserved': 1, 'min_unit': 1, 'max_unit': 4, 'step_size': 1, 'allocation_ratio': 1.5}
_OWNER = {'project_id': 'p', 'user_id': 'u'}
CLAIM = {'allocations': {HOST: {'resources': {'VCPU': 1, 'CUSTOM_GOLD': 2}, 'generation': 1}}, **_OWNER}
CLAIM_AT_1, NEW_CLAIM = {**CLAIM, 'consumer_generation': 1}, {**CLAIM, 'consumer_generation': None}
OLD_CLAIM = {'allocations': [{'resource_provider': {'uuid': HOST}, 'resources': {'VCPU': 1}}]}
_AT_0, _AT_3 = {'resource_provider_generation': 0}, {'resource_provider_generation': 3}
RESHAPED = {
    HOST: {**_AT_3, 'inventories': {'VCPU': INVENTORY, 'CUSTOM_GOLD': INVENTORY}},
    EMPTY: {**_AT_0, 'inventories': {}},
}
HOST_URL, EMPTY_URL = f'/resource_providers/{HOST}', f'/resource_providers/{EMPTY}'

#: Method, path and microversion, and a body that is valid or nearly valid.
BODY_TEMPLATES: list[tuple[str, Any]] = [
    ('POST /resource_providers 1.0', {'name': 'new', 'uuid': OTHER_CONSUMER}),
    ('POST /resource_providers 1.29', {'name': 'new', 'parent_provider_uuid': HOST}),
    (f'PUT {HOST_URL} 1.0', {'name': 'host'}),
    (f'PUT {EMPTY_URL} 1.29', {'name': 'empty', 'parent_provider_uuid': CHILD}),
    (f'POST {EMPTY_URL}/inventories 1.0', {'resource_class': 'VCPU', **INVENTORY}),
    (f'POST {EMPTY_URL}/inventories 1.29', {'resource_class': 'CUSTOM_GOLD', **_AT_0, **INVENTORY}),
    (f'PUT {HOST_URL}/inventories 1.20', {**_AT_3, 'inventories': {'VCPU': INVENTORY}}),
    (f'PUT {EMPTY_URL}/inventories 1.29', {**_AT_0, 'inventories': {'VCPU': INVENTORY, 'DISK_GB': {'total': 1}}}),
    (f'PUT {HOST_URL}/inventories/VCPU 1.29', {**_AT_3, **INVENTORY}),
    (f'PUT {EMPTY_URL}/aggregates 1.1', [AGGREGATE, OTHER_CONSUMER]),
    (f'PUT {EMPTY_URL}/aggregates 1.29', {'aggregates': [AGGREGATE, CONSUMER], **_AT_0}),
    (f'PUT {EMPTY_URL}/traits 1.29', {'traits': ['CUSTOM_BLUE', 'HW_CPU_X86_AVX2'], **_AT_0}),
    ('POST /resource_classes 1.29', {'name': 'CUSTOM_SILVER'}),
    ('PUT /resource_classes/CUSTOM_GOLD 1.6', {'name': 'CUSTOM_GOLD'}),
    (f'PUT /allocations/{OTHER_CONSUMER} 1.0', OLD_CLAIM),
    (f'PUT /allocations/{OTHER_CONSUMER} 1.8', {**OLD_CLAIM, **_OWNER}),
    (f'PUT /allocations/{CONSUMER} 1.27', CLAIM),
    (f'PUT /allocations/{CONSUMER} 1.29', CLAIM_AT_1),
    (f'PUT /allocations/{OTHER_CONSUMER} 1.29', NEW_CLAIM),
    ('POST /allocations 1.13', {CONSUMER: CLAIM, OTHER_CONSUMER: {**CLAIM, 'allocations': {}}}),
    ('POST /reshaper 1.30', {'inventories': RESHAPED, 'allocations': {CONSUMER: CLAIM_AT_1}}),
    ('POST /allocations 1.29', {CONSUMER: CLAIM_AT_1, OTHER_CONSUMER: NEW_CLAIM}),
]

#: Paths, and parameters with valid values.
QUERY_TEMPLATES = {
    '/resource_providers': f'name=host&uuid={HOST}&member_of=in:{AGGREGATE},{CONSUMER}&resources=VCPU:1,CUSTOM_GOLD:2'
    f'&in_tree={CHILD}&required=CUSTOM_BLUE,!HW_CPU_X86_AVX2',
    '/traits': 'name=in:CUSTOM_BLUE,HW_CPU_X86_AVX2&associated=true',
    '/usages': 'project_id=p&user_id=u',
    '/allocation_candidates': f'resources=VCPU:1,CUSTOM_GOLD:2&limit=5&required=CUSTOM_BLUE&member_of={AGGREGATE}'
    f'&resources1=VCPU:1&required1=!CUSTOM_BLUE&member_of1=in:{AGGREGATE}&resources2=VCPU:2&group_policy=none',
}

VALUE_ENDS = [
    *('', ',', ':', '!', ',!', ':0', ':-1', ':' + '9' * 400, ':1e999', ':NaN', ':+1', ':%D9%A1', '%00', '%ff'),
    *('%0A', ',' * 500),
]


OTHER_HEADERS = ['Content-Length', 'X-Roles', 'X-OpenStack-Request-Id', 'Origin', 'Host', 'X-Forwarded-Proto', 'Cookie']


@st.composite
def _malformed_headers(draw: st.DrawFn) -> dict[str, str]:
    """Valid headers, up to three of them made invalid, left out or added."""
    headers = dict(GOOD_HEADERS)
    version = draw(st.sampled_from([*microversion.VERSIONS, 'latest']))
    headers['OpenStack-API-Version'] = f'placement {version}'
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 3]))):
        name = draw(st.sampled_from([*GOOD_HEADERS, *GOOD_HEADERS, *OTHER_HEADERS]))
        if draw(st.booleans()):
            headers.pop(name, None)
        else:
            headers[name] = draw(header_values)
    return headers


def with_body(line: str, body: bytes) -> Request:
    """A request with the method, path and microversion of a template."""
    method, target, version = line.split()
    return Request(method, target, {**GOOD_HEADERS, 'OpenStack-API-Version': f'placement {version}'}, body)


@st.composite
def bodies(draw: st.DrawFn) -> Request:
    """A write that was valid before its body was mutated."""
    line, template = draw(st.sampled_from(BODY_TEMPLATES))
    return with_body(line, draw(mutated_json(template)))


@st.composite
def _spoilt_parameter(draw: st.DrawFn, name: str, value: str) -> tuple[str, str]:
    """A parameter with an unusual end or value; sometimes with an unusual name."""
    spoilt = draw(st.one_of(st.sampled_from(VALUE_ENDS).map(lambda end: value + end), encoded_text))
    if draw(st.integers(0, 5)):
        return name, spoilt
    ends = st.sampled_from(['1', '0', '01', '99999999999999999999', '%00', '_x'])
    return draw(st.one_of(ends.map(lambda end: name + end), encoded_text)), value


@st.composite
def queries(draw: st.DrawFn) -> Request:
    """A list request whose parameters were valid before some were changed, repeated or renamed."""
    path = draw(st.sampled_from(list(QUERY_TEMPLATES)))
    parameters = dict(pair.split('=') for pair in QUERY_TEMPLATES[path].split('&'))
    names = draw(st.lists(st.sampled_from(sorted(parameters)), max_size=6))
    pairs = [(name, parameters[name]) for name in names]
    for index in draw(st.lists(st.integers(0, len(pairs) - 1), max_size=2)) if pairs else []:
        pairs[index] = draw(_spoilt_parameter(*pairs[index]))
    version = draw(st.sampled_from(['1.0', '1.10', '1.18', '1.21', '1.24', '1.25', *['1.29'] * 6]))
    target = path + '?' + '&'.join(f'{name}={value}' for name, value in pairs)
    return Request('GET', target, {**GOOD_HEADERS, 'OpenStack-API-Version': f'placement {version}'})


@st.composite
def anything(draw: st.DrawFn) -> Request:
    """Any route with any method, unusual path variables, headers and bodies."""
    path = draw(st.sampled_from(sorted(handler.ROUTE_DECLARATIONS)))
    variables = {'uuid': HOST, 'resource_class': 'VCPU', 'name': 'CUSTOM_GOLD', 'consumer_uuid': CONSUMER}
    for name, good in variables.items():
        path = path.replace(f'{{{name}}}', draw(st.one_of(st.just(good), encoded_text)))
    tail = draw(st.sampled_from([*[''] * 12, '/', '//', '/%2f', '?', '?a=%ff', '?\xff=\x00', '/../..', '%00']))
    unusual_methods = ['HEAD', 'PATCH', 'OPTIONS', 'TRACE', 'get', 'X' * 100, '', 'GE T']
    method = draw(st.sampled_from(['GET', 'PUT', 'POST', 'DELETE'] * 4 + unusual_methods))
    body = draw(st.one_of(st.just(b''), st.binary(max_size=60), json_texts))
    return Request(method, path + tail, draw(_malformed_headers()), body)


def derandomized(count: int) -> settings:
    """Settings of a test that sends the same ``count`` requests at every run."""
    return settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
