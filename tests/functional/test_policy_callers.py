"""Which operations the default rules allow to whom: every operation, requested by every kind of caller.

A request names what does not exist or has a bad body, but for a custom trait and class, which are created and deleted.
A caller to whom the policy allows an operation gets the status of the table, any other 403 with the name of the rule.
"""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from placement import policies
from tests.support import applications, fixtures
from tests.support.applications import NEWEST_MICROVERSION
from tests.support.http_client import send_request

UUID = '5b36e1c0-7f5e-4b8e-a3a3-9a5fd25e2d9c'
PROVIDER = f'/resource_providers/{UUID}'

#: Method, path and body of a request, its microversion, the rule, and the status if the caller may do it.
OPERATIONS: list[tuple[str, str, list[str] | None, str, str, int]] = [
    ('GET', f'/resource_providers?uuid={UUID}', None, '1.29', 'resource_providers:list', 200),
    ('POST', '/resource_providers', [], '1.29', 'resource_providers:create', 400),
    ('GET', PROVIDER, None, '1.29', 'resource_providers:show', 404),
    ('PUT', PROVIDER, [], '1.29', 'resource_providers:update', 404),
    ('DELETE', PROVIDER, None, '1.29', 'resource_providers:delete', 404),
    ('GET', f'{PROVIDER}/inventories', None, '1.29', 'resource_providers:inventories:list', 404),
    ('POST', f'{PROVIDER}/inventories', [], '1.29', 'resource_providers:inventories:create', 404),
    ('GET', f'{PROVIDER}/inventories/VCPU', None, '1.29', 'resource_providers:inventories:show', 404),
    ('PUT', f'{PROVIDER}/inventories', [], '1.29', 'resource_providers:inventories:update', 404),
    ('PUT', f'{PROVIDER}/inventories/VCPU', [], '1.29', 'resource_providers:inventories:update', 404),
    ('DELETE', f'{PROVIDER}/inventories', None, '1.29', 'resource_providers:inventories:delete', 404),
    ('DELETE', f'{PROVIDER}/inventories/VCPU', None, '1.29', 'resource_providers:inventories:delete', 404),
    ('GET', f'{PROVIDER}/aggregates', None, '1.29', 'resource_providers:aggregates:list', 404),
    ('PUT', f'{PROVIDER}/aggregates', [], '1.29', 'resource_providers:aggregates:update', 404),
    ('GET', f'{PROVIDER}/traits', None, '1.29', 'resource_providers:traits:list', 404),
    ('PUT', f'{PROVIDER}/traits', [], '1.29', 'resource_providers:traits:update', 400),
    ('DELETE', f'{PROVIDER}/traits', None, '1.29', 'resource_providers:traits:delete', 404),
    ('GET', '/traits?name=in:CUSTOM_POLICY_CALLERS', None, '1.29', 'traits:list', 200),
    ('GET', '/traits/CUSTOM_POLICY_CALLERS', None, '1.29', 'traits:show', 404),
    ('PUT', '/traits/CUSTOM_POLICY_CALLERS', [], '1.29', 'traits:update', 201),
    ('DELETE', '/traits/CUSTOM_POLICY_CALLERS', None, '1.29', 'traits:delete', 204),
    ('GET', '/resource_classes', None, '1.29', 'resource_classes:list', 200),
    ('POST', '/resource_classes', [], '1.29', 'resource_classes:create', 400),
    ('GET', '/resource_classes/CUSTOM_POLICY_CALLERS', None, '1.29', 'resource_classes:show', 404),
    ('PUT', '/resource_classes/CUSTOM_POLICY_CALLERS', [], '1.29', 'resource_classes:update', 201),
    ('DELETE', '/resource_classes/CUSTOM_POLICY_CALLERS', None, '1.29', 'resource_classes:delete', 204),
    ('GET', f'{PROVIDER}/usages', None, '1.29', 'resource_providers:usages', 404),
    ('GET', '/usages?project_id=demo', None, '1.29', 'usages', 200),
    ('GET', '/usages?project_id=demo', None, NEWEST_MICROVERSION, 'usages', 200),
    ('GET', f'{PROVIDER}/allocations', None, '1.29', 'resource_providers:allocations:list', 404),
    ('POST', '/allocations', [], '1.29', 'allocations:manage', 400),
    ('GET', f'/allocations/{UUID}', None, '1.29', 'allocations:list', 200),
    ('PUT', f'/allocations/{UUID}', [], '1.29', 'allocations:update', 400),
    ('DELETE', f'/allocations/{UUID}', None, '1.29', 'allocations:delete', 404),
    ('GET', '/allocation_candidates', None, '1.29', 'allocation_candidates:list', 400),
    ('POST', '/reshaper', [], NEWEST_MICROVERSION, 'reshaper:reshape', 400),
]
RULES = {rule for *_, rule, _ in OPERATIONS}

SYSTEM = {'X-Auth-Token': 'root', 'OpenStack-System-Scope': 'all'}
ADMINISTRATOR_ROLES = {'X-Roles': 'admin,member,reader'}

#: The headers of a caller, and the rules that it satisfies.
CALLERS: dict[str, tuple[Mapping[str, str], Collection[str]]] = {
    'an administrator': ({'X-Auth-Token': 'admin'}, RULES),
    'a service': ({'X-Auth-Token': 'nova:service', 'X-Roles': 'service'}, RULES),
    'an administrator of a project': ({'X-Auth-Token': 'alice:demo', **ADMINISTRATOR_ROLES}, RULES),
    'a system administrator': ({**SYSTEM, **ADMINISTRATOR_ROLES}, ()),
    'a member of the project': ({'X-Auth-Token': 'bob:demo', 'X-Roles': 'member'}, ()),
    'a reader of the project': ({'X-Auth-Token': 'rita:demo', 'X-Roles': 'reader'}, {'usages'}),
    'a member of another project': ({'X-Auth-Token': 'bob:other', 'X-Roles': 'member'}, ()),
    'a reader of another project': ({'X-Auth-Token': 'rita:other', 'X-Roles': 'reader'}, ()),
    'a system reader': ({**SYSTEM, 'X-Roles': 'reader'}, ()),
    'nobody': ({'X-Auth-Token': 'nobody'}, ()),
}


def test_every_rule_is_that_of_an_operation_of_the_table() -> None:
    assert {f'placement:{rule}' for rule in RULES} == {
        rule.name for rule in policies.list_rules() if rule.name.startswith('placement:')
    }


@pytest.mark.parametrize(
    ('caller', 'enforce_scope'),
    [*((caller, True) for caller in CALLERS), ('a system administrator', False), ('a system reader', False)],
)
def test_the_rules_allow_operations_by_role_and_project(
    tmp_path: pathlib.Path, caller: str, enforce_scope: bool
) -> None:
    """And by scope, if that is enforced: then a token of the system is allowed nothing, else what its roles allow."""
    headers, allowed = CALLERS[caller]
    if not enforce_scope:
        allowed = RULES if caller == 'a system administrator' else ()
    fixtures.prepare(tmp_path / 'placement.sqlite')
    options: dict[str, dict[str, Any]] = {
        'placement': applications.EVERY_MICROVERSION,
        'oslo_policy': {'enforce_scope': enforce_scope},
    }
    with applications.application(tmp_path / 'placement.sqlite', **options) as app:
        for method, path, body, version, rule, status in OPERATIONS:
            response = send_request(app, method, path, body, version, **headers)
            case = f'{method} {path} {version}: {response.status} {response.text}'
            assert response.status_int == (status if rule in allowed else 403), case
            if rule not in allowed:
                (error,) = response.json['errors']
                assert error['code'] == 'placement.undefined_code', case
                assert f'Policy does not allow placement:{rule} to be performed' in error['detail'], case
