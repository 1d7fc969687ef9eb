"""Generated malformed requests: valid ones whose body, parameters or headers were made invalid."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from placement import handler
from placement.web import microversion
from tests.support.malformed_values import encoded_text, header_values, json_values, mutated_json
from tests.support.raw_client import AGGREGATE, CHILD, CONSUMER, EMPTY, GOOD_HEADERS, HOST, OTHER_CONSUMER, Request

INVENTORY = {'total': 8, 'reserved': 1, 'min_unit': 1, 'max_unit': 4, 'step_size': 1, 'allocation_ratio': 1.5}
CLAIM = {
    'allocations': {HOST: {'resources': {'VCPU': 1, 'CUSTOM_GOLD': 2}, 'generation': 1}},
    'project_id': 'p',
    'user_id': 'u',
}
OLD_CLAIM = {'allocations': [{'resource_provider': {'uuid': HOST}, 'resources': {'VCPU': 1}}]}
HOST_URL, EMPTY_URL = f'/resource_providers/{HOST}', f'/resource_providers/{EMPTY}'

#: Method, path, microversion, and a body that is valid or nearly valid.
BODY_TEMPLATES: list[tuple[str, str, str, Any]] = [
    ('POST', '/resource_providers', '1.0', {'name': 'new', 'uuid': OTHER_CONSUMER}),
    ('POST', '/resource_providers', '1.29', {'name': 'new', 'parent_provider_uuid': HOST}),
    ('PUT', HOST_URL, '1.0', {'name': 'host'}),
    ('PUT', EMPTY_URL, '1.29', {'name': 'empty', 'parent_provider_uuid': CHILD}),
    ('POST', f'{EMPTY_URL}/inventories', '1.0', {'resource_class': 'VCPU', **INVENTORY}),
    (
        'POST',
        f'{EMPTY_URL}/inventories',
        '1.29',
        {'resource_class': 'CUSTOM_GOLD', 'resource_provider_generation': 0, **INVENTORY},
    ),
    ('PUT', f'{HOST_URL}/inventories', '1.20', {'resource_provider_generation': 3, 'inventories': {'VCPU': INVENTORY}}),
    (
        'PUT',
        f'{EMPTY_URL}/inventories',
        '1.29',
        {'resource_provider_generation': 0, 'inventories': {'VCPU': INVENTORY, 'DISK_GB': {'total': 1}}},
    ),
    ('PUT', f'{HOST_URL}/inventories/VCPU', '1.29', {'resource_provider_generation': 3, **INVENTORY}),
    ('PUT', f'{EMPTY_URL}/aggregates', '1.1', [AGGREGATE, OTHER_CONSUMER]),
    (
        'PUT',
        f'{EMPTY_URL}/aggregates',
        '1.29',
        {'aggregates': [AGGREGATE, CONSUMER], 'resource_provider_generation': 0},
    ),
    (
        'PUT',
        f'{EMPTY_URL}/traits',
        '1.29',
        {'traits': ['CUSTOM_BLUE', 'HW_CPU_X86_AVX2'], 'resource_provider_generation': 0},
    ),
    ('POST', '/resource_classes', '1.29', {'name': 'CUSTOM_SILVER'}),
    ('PUT', '/resource_classes/CUSTOM_GOLD', '1.6', {'name': 'CUSTOM_GOLD'}),
    ('PUT', f'/allocations/{OTHER_CONSUMER}', '1.0', OLD_CLAIM),
    ('PUT', f'/allocations/{OTHER_CONSUMER}', '1.8', {**OLD_CLAIM, 'project_id': 'p', 'user_id': 'u'}),
    ('PUT', f'/allocations/{CONSUMER}', '1.27', CLAIM),
    ('PUT', f'/allocations/{CONSUMER}', '1.29', {**CLAIM, 'consumer_generation': 1}),
    ('PUT', f'/allocations/{OTHER_CONSUMER}', '1.29', {**CLAIM, 'consumer_generation': None}),
    ('POST', '/allocations', '1.13', {CONSUMER: CLAIM, OTHER_CONSUMER: {**CLAIM, 'allocations': {}}}),
    (
        'POST',
        '/reshaper',
        '1.30',
        {
            'inventories': {
                HOST: {'resource_provider_generation': 3, 'inventories': {'VCPU': INVENTORY, 'CUSTOM_GOLD': INVENTORY}},
                EMPTY: {'resource_provider_generation': 0, 'inventories': {}},
            },
            'allocations': {CONSUMER: {**CLAIM, 'consumer_generation': 1}},
        },
    ),
    (
        'POST',
        '/allocations',
        '1.29',
        {CONSUMER: {**CLAIM, 'consumer_generation': 1}, OTHER_CONSUMER: {**CLAIM, 'consumer_generation': None}},
    ),
]

#: Path and its parameters, each with a valid value.
QUERY_TEMPLATES: list[tuple[str, dict[str, str]]] = [
    (
        '/resource_providers',
        {
            'name': 'host',
            'uuid': HOST,
            'member_of': f'in:{AGGREGATE},{CONSUMER}',
            'resources': 'VCPU:1,CUSTOM_GOLD:2',
            'in_tree': CHILD,
            'required': 'CUSTOM_BLUE,!HW_CPU_X86_AVX2',
        },
    ),
    ('/traits', {'name': 'in:CUSTOM_BLUE,HW_CPU_X86_AVX2', 'associated': 'true'}),
    ('/usages', {'project_id': 'p', 'user_id': 'u'}),
    (
        '/allocation_candidates',
        {
            'resources': 'VCPU:1,CUSTOM_GOLD:2',
            'limit': '5',
            'required': 'CUSTOM_BLUE',
            'member_of': AGGREGATE,
            'resources1': 'VCPU:1',
            'required1': '!CUSTOM_BLUE',
            'member_of1': f'in:{AGGREGATE}',
            'resources2': 'VCPU:2',
            'group_policy': 'none',
        },
    ),
]

VALUE_ENDS = [
    *('', ',', ':', '!', ',!', ':0', ':-1', ':' + '9' * 400, ':1e999', ':NaN', ':+1', ':%D9%A1', '%00', '%ff'),
    *('%0A', ',' * 500),
]


@st.composite
def _malformed_headers(draw: st.DrawFn) -> dict[str, str]:
    """Valid headers, up to three of them made invalid, left out or added."""
    headers = dict(GOOD_HEADERS)
    version = draw(st.sampled_from([*microversion.VERSIONS, 'latest']))
    headers['OpenStack-API-Version'] = f'placement {version}'
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 3]))):
        name = draw(
            st.sampled_from(
                [
                    *GOOD_HEADERS,
                    *GOOD_HEADERS,
                    'Content-Length',
                    'X-Roles',
                    'X-OpenStack-Request-Id',
                    'Origin',
                    'Host',
                    'X-Forwarded-Proto',
                    'Cookie',
                ]
            )
        )
        if draw(st.booleans()):
            headers.pop(name, None)
        else:
            headers[name] = draw(header_values)
    return headers


@st.composite
def bodies(draw: st.DrawFn) -> Request:
    """A write that was valid before its body was mutated."""
    method, target, version, template = draw(st.sampled_from(BODY_TEMPLATES))
    headers = {**GOOD_HEADERS, 'OpenStack-API-Version': f'placement {version}'}
    return Request(method, target, headers, draw(mutated_json(template)))


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
    path, parameters = draw(st.sampled_from(QUERY_TEMPLATES))
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
    for name, good in (
        ('uuid', HOST),
        ('resource_class', 'VCPU'),
        ('name', 'CUSTOM_GOLD'),
        ('consumer_uuid', CONSUMER),
    ):
        path = path.replace(f'{{{name}}}', draw(st.one_of(st.just(good), encoded_text)))
    tail = draw(st.sampled_from([*[''] * 12, '/', '//', '/%2f', '?', '?a=%ff', '?\xff=\x00', '/../..', '%00']))
    usual, unusual = (
        ['GET', 'PUT', 'POST', 'DELETE'],
        ['HEAD', 'PATCH', 'OPTIONS', 'TRACE', 'get', 'X' * 100, '', 'GE T'],
    )
    method = draw(st.sampled_from(usual * 4 + unusual))
    body = draw(st.one_of(st.just(b''), st.binary(max_size=60), json_values.flatmap(mutated_json)))
    return Request(method, path + tail, draw(_malformed_headers()), body)


def derandomized(count: int) -> settings:
    """Settings of a test that sends the same ``count`` requests at every run."""
    return settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
