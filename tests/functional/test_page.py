"""The page: every view, as HTML and as JSON, its errors, and its headers for browsers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib import parse

import pytest
import webob
from oslo_config import cfg

from placement.audit import checks
from placement.cache.refresh import ProviderCache
from placement.db.api import Database
from placement.page import health
from placement.page.application import Page
from placement.page.sources import Sources
from tests.support import applications, clouds, corruption
from tests.support.clouds import Cloud, Provider, uuid_of
from tests.support.fixtures import Counter

EMPTY_QUERY = 'resources=VCPU:999&limit=2'
NESTED_VIEWS = [
    '/',
    '/?size=VCPU:4,DISK_GB:10&trait=HW_CPU_X86_AVX2&page=1',
    f'/?aggregate={uuid_of("rack-a")}',
    '/trees',
    '/trees?q=nic&order=name&page=1',
    f'/trees/{uuid_of("compute-0")}',
    f'/trees/{uuid_of("compute-0-nic1")}',
    f'/trees/{uuid_of("store")}?holders=1',
    f'/consumers/{uuid_of("machine-3")}',
    '/why',
    '/why?query=resources%3DVCPU:999%26required%3DHW_CPU_X86_AVX2',
    '/why?query=/allocation_candidates%3Fresources%3DVCPU:1&microversion=1.20',
    '/health',
    '/health?audit=all',
    '/health?audit=usage_mismatch',
]


@pytest.fixture
def sources(conf: cfg.ConfigOpts, db: Database) -> Sources:
    return Sources(conf, db, ProviderCache(db))


@pytest.fixture
def page(sources: Sources) -> Page:
    return Page(sources)


@pytest.fixture
def nested(db: Database) -> None:
    clouds.plant(db, clouds.nested())


def get(page: Page, address: str, **environ: Any) -> webob.Response:
    return webob.Request.blank(address, **environ).get_response(page)


def json(page: Page, address: str) -> Any:
    answer = get(page, address + ('&' if '?' in address else '?') + 'format=json')
    assert (answer.status_int, answer.content_type) == (200, 'application/json')
    return answer.json


@pytest.mark.usefixtures('nested')
@pytest.mark.parametrize('address', NESTED_VIEWS)
def test_every_view_is_answered_as_html_and_as_json(page: Page, address: str) -> None:
    answer = get(page, address)
    assert (answer.status_int, answer.content_type) == (200, 'text/html')
    assert answer.text.startswith('<!doctype html>')
    assert 'None' not in re.sub('<[^>]*>', '', answer.text).replace('None in the log', '')
    assert isinstance(json(page, address), dict)


@pytest.mark.parametrize('address', ['/', '/?size=VCPU:1', '/trees', '/trees?q=x', '/why', '/health?audit=all'])
def test_views_of_an_empty_cloud(page: Page, address: str) -> None:
    assert get(page, address).status_int == 200
    json(page, address)


@pytest.mark.usefixtures('nested')
def test_the_overview_has_the_figures_of_the_reports(page: Page) -> None:
    told = json(page, '/?size=VCPU:4,DISK_GB:10')
    assert (told['providers'], told['trees']) == (21, 5)
    assert told['classes'][0] == {
        'resource_class': 'VCPU',
        'providers': 8,
        'capacity': 512,
        'used': 164,
        'free': 348,
        'max_allocatable': 64,
        'full': 1,
    }
    assert told['fit_estimate']['estimate'] == {'fit': 87, 'upper_bound': 87, 'complete': True}
    assert told['heat_map']['rows'][0]['fillings'][0] == {'capacity': 256, 'used': 152}
    shown = get(page, '/?size=VCPU:4,DISK_GB:10').text
    assert '<span class="big">87</span>' in re.sub(r'\s+<', '<', shown)
    assert '164 of 512' in shown
    enabled = json(page, '/?size=VCPU:4,DISK_GB:10&root_trait=!COMPUTE_STATUS_DISABLED')
    assert (enabled['trees'], enabled['fit_estimate']['estimate']['fit'] < 87) == (4, True)
    assert json(page, '/trees?root_trait=COMPUTE_STATUS_DISABLED')['total'] == 1


@pytest.mark.usefixtures('nested')
def test_a_tree_is_drawn_with_a_bar_for_each_class(page: Page) -> None:
    shown = get(page, f'/trees/{uuid_of("compute-0")}').text
    sideways = re.search(r'<svg class="tree sideways".*?</svg>', shown, re.DOTALL)
    assert sideways is not None
    assert sideways[0].count('class="box"') == 5
    assert sideways[0].count('class="branch"') == 4
    # Two classes on two NUMA nodes each, one class on two cards each; full inventories have the colour.
    assert sideways[0].count('class="track"') == 6
    assert sideways[0].count('class="full"') == 2
    assert f'/consumers/{uuid_of("machine-3")}' in shown
    assert f'/trees/{uuid_of("store")}' in shown


@pytest.mark.usefixtures('nested')
def test_why_shows_the_explanation_and_its_sentence(page: Page) -> None:
    told = json(page, '/why?query=resources%3DVCPU:999%26required%3DHW_CPU_X86_AVX2')['explanation']
    assert told['candidates'] == 0
    assert [(stage['rule'], stage['trees']) for stage in told['stages']] == [('resources', 0), ('required', 0)]
    assert told['sentence'] in get(page, '/why?query=resources%3DVCPU:999%26required%3DHW_CPU_X86_AVX2').text


@pytest.mark.usefixtures('nested')
def test_why_shows_every_parameter_of_1_39(conf: cfg.ConfigOpts, page: Page) -> None:
    conf.set_override('max_microversion', '1.39', group='placement')
    parameters = {
        'resources_A': 'VCPU:1',
        'in_tree_A': uuid_of('compute-0'),
        'required_B': 'in:HW_CPU_X86_AVX2,HW_CPU_X86_VMX',
        'member_of_B': f'!{uuid_of("rack-b")}',
        'root_required': '!COMPUTE_STATUS_DISABLED',
        'same_subtree': '_A,_B',
        'group_policy': 'none',
    }
    address = '/why?query=' + parse.quote(parse.urlencode(parameters))
    told = json(page, address)['explanation']
    rules = ['root_required', 'resources', 'in_tree', 'required', 'member_of', 'same_subtree']
    assert [stage['rule'] for stage in told['stages']] == rules
    shown = get(page, address).text
    assert 'in:HW_CPU_X86_AVX2,HW_CPU_X86_VMX' in shown
    assert 'same_subtree <span class="subject">_A,_B</span>' in shown


def test_searches_without_result_are_read_from_the_log(sources: Sources, tmp_path: Path) -> None:
    log = tmp_path / 'service.log'
    log.write_text(f'2026-01-02 03:04:05.006 7 INFO x [-] No allocation candidates for {EMPTY_QUERY}: resources\n')
    told = json(Page(Sources(sources.conf, sources.db, sources.provider_cache, log)), '/why')['empty_searches']
    (shape,) = told['shapes']
    assert shape == {'shape': 'resources=VCPU', 'count': 1, 'latest': EMPTY_QUERY, 'at': '2026-01-02 03:04:05'}
    log.unlink()
    assert 'cannot be read' in get(Page(Sources(sources.conf, sources.db, sources.provider_cache, log)), '/why').text


def test_the_audit_names_what_is_wrong(page: Page, conf: cfg.ConfigOpts) -> None:
    corruption.plant(
        conf.placement_database.connection, *corruption.SOUND, 'UPDATE placement_inventories SET used = 7 WHERE id = 1'
    )
    by_kind = {one['kind']: one for one in json(page, '/health?audit=all')['audit']}
    assert by_kind.keys() == set(checks.CHECKS)
    assert by_kind['usage_mismatch']['findings'] == [
        {
            'subject': {'resource_provider': corruption.ROOT, 'resource_class': 'VCPU'},
            'detail': 'recorded as used: 7; sum of the allocations: 2',
            'repairable': True,
        }
    ]
    assert f'/trees/{corruption.ROOT}' in get(page, '/health?audit=usage_mismatch').text
    assert '<span class="warn">allocations: 2</span>' in get(page, f'/trees/{corruption.ROOT}').text


def test_the_type_of_a_consumer_is_shown(page: Page, conf: cfg.ConfigOpts) -> None:
    corruption.plant(conf.placement_database.connection, *corruption.SOUND)
    address = f'/consumers/{corruption.HOLDER}'
    assert json(page, address)['type'] is None
    assert '<dt>Type</dt>' not in get(page, address).text
    corruption.plant(
        conf.placement_database.connection,
        "INSERT INTO placement_consumer_types (id, name) VALUES (1, 'INSTANCE')",
        'UPDATE placement_consumers SET consumer_type_id = 1',
    )
    assert json(page, address)['type'] == 'INSTANCE'
    assert '<dt>Type</dt><dd><bdi>INSTANCE</bdi></dd>' in get(page, address).text


def test_every_check_of_the_audit_has_a_title() -> None:
    assert list(health._KINDS) == list(checks.CHECKS)


@pytest.mark.usefixtures('nested')
@pytest.mark.parametrize(
    ('address', 'status', 'told'),
    [
        ('/nowhere', 404, 'There is no such page.'),
        ('/trees/', 404, 'There is no such page.'),
        (f'/trees/{uuid_of("nobody")}', 404, 'There is no provider with the uuid'),
        (f'/consumers/{uuid_of("nobody")}', 404, 'There is no consumer with the uuid'),
        ('/trees/compute-0', 400, 'which “compute-0” is not'),
        ('/consumers/%00', 400, 'A consumer is given by its uuid'),
        ('/?page=0', 400, '“page” is a number'),
        ('/trees?page=%D9%A3', 400, '“page” is a number'),
        ('/?trait=CUSTOM_NOTHING', 400, 'No such trait(s): CUSTOM_NOTHING.'),
        ('/?size=VCPU:0', 400, 'A size has the form'),
        ('/?size=CUSTOM_NOTHING:1', 400, 'No such resource class CUSTOM_NOTHING'),
        ('/?aggregate=rack-a', 400, 'which “rack-a” is not'),
        ('/trees?order=random', 400, '“order” is one of fullest, name'),
        ('/?format=xml', 400, '“format” is one of html, json'),
        ('/?trait=%ff', 400, 'not encoded in UTF-8'),
        ('/?' + 'a' * 30000, 400, 'longer than'),
        ('/why?query=nonsense', 400, 'There is no query for candidates in this text.'),
        ('/?root_trait=in:A', 400, 'Traits of the root have the form A,!B, not “in:A”.'),
        ('/trees?root_trait=CUSTOM_NOTHING', 400, 'No such trait(s): CUSTOM_NOTHING.'),
        ('/why?query=resources%3DVCPU', 400, 'Badly formed resources parameter.'),
        ('/why?query=resources%3DVCPU:1&microversion=1.99', 400, 'it takes 1.10 to 1.29'),
        ('/why?query=resources%3DCUSTOM_NOTHING:1', 400, 'No such resource class CUSTOM_NOTHING'),
        ('/health?audit=everything', 400, '“audit” is one of none, all, invalid_tree'),
    ],
)
def test_invalid_addresses_are_errors_with_a_reason(page: Page, address: str, status: int, told: str) -> None:
    answer = get(page, address)
    assert answer.status_int == status
    assert told in answer.text
    if 'format' not in address and '%ff' not in address and len(address) < 100:
        as_json = get(page, address + ('&' if '?' in address else '?') + 'format=json')
        assert as_json.status_int == status
        assert told in as_json.json['error']['detail']


@pytest.mark.parametrize('method', ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'TRACE'])
def test_methods_other_than_get_and_head_are_405(page: Page, method: str) -> None:
    answer = get(page, '/', method=method)
    assert (answer.status_int, answer.headers['Allow']) == (405, 'GET, HEAD')


def test_head_is_get_without_the_body(page: Page) -> None:
    answer, whole = get(page, '/', method='HEAD'), get(page, '/')
    assert (answer.status_int, answer.body, answer.content_length) == (200, b'', len(whole.body))


@pytest.mark.parametrize('host', ['localhost', 'localhost:8779', '127.0.0.1:1', '[::1]:8779', 'LOCALHOST'])
def test_host_headers_of_this_machine_are_answered(page: Page, host: str) -> None:
    assert get(page, '/', environ={'HTTP_HOST': host}).status_int == 200


@pytest.mark.parametrize(
    'host', ['evil.example', 'localhost.evil.example:80', '10.0.0.1', '', '[::2]:80', 'localhost:x']
)
def test_other_host_headers_are_421(page: Page, sources: Sources, host: str) -> None:
    assert get(page, '/', environ={'HTTP_HOST': host}).status_int == 421
    assert get(Page(sources, hosts=None), '/', environ={'HTTP_HOST': host or 'x'}).status_int == 200


@pytest.mark.usefixtures('nested')
@pytest.mark.parametrize('address', [*NESTED_VIEWS, '/nowhere', '/page.css', '/icon.svg'])
def test_the_content_security_policy_allows_only_own_styles_and_images(page: Page, address: str) -> None:
    answer = get(page, address)
    policy = dict(part.strip().split(' ', 1) for part in answer.headers['Content-Security-Policy'].split(';'))
    assert policy == {
        'default-src': "'none'",
        'style-src': "'self'",
        'img-src': "'self'",
        'form-action': "'self'",
        'base-uri': "'none'",
        'frame-ancestors': "'none'",
    }
    assert answer.headers['X-Content-Type-Options'] == 'nosniff'
    assert answer.headers['Referrer-Policy'] == 'no-referrer'
    # What that policy would block, and files of other origins.
    assert not re.search(r'<script|<style|\sstyle=|\son[a-z]+=|(src|href)="(https?:)?//|@import|url\(', answer.text)


def test_names_are_escaped(page: Page, db: Database) -> None:
    evil = '<script>alert(1)</script>"&'
    cloud = Cloud([Provider(evil, {'VCPU': {'total': 1}}, (), ('rack',))], {'one': {evil: {'VCPU': 1}}})
    clouds.plant(db, cloud)
    for address in ('/trees', f'/trees?q={"%3Cscript%3E"}', f'/trees/{uuid_of(evil)}', f'/consumers/{uuid_of("one")}'):
        shown = get(page, address).text
        assert '<script' not in shown
        assert '&lt;script&gt;' in shown
    assert '<b>' not in get(page, '/?aggregate=<b>').text


def test_below_a_prefix_all_links_have_the_prefix(page: Page, db: Database) -> None:
    clouds.plant(db, clouds.nested())
    for address in NESTED_VIEWS:
        shown = get(page, address, base_url='http://localhost/page').text
        targets = re.findall(r'(?:href|action)="([^"]*)"', shown)
        assert targets
        assert {target for target in targets if not target.startswith(('/page/', '#'))} == set()


def test_long_lists_are_paged(page: Page, db: Database) -> None:
    cloud = Cloud([Provider(f'host-{n:03}', {'VCPU': {'total': 200}}, (), (f'rack-{n}',)) for n in range(60)])
    cloud.held = {f'machine-{n}': {'host-000': {'VCPU': 1}} for n in range(60)}
    clouds.plant(db, cloud)
    seen = [row['name'] for n in (1, 2, 3) for row in json(page, f'/trees?order=name&page={n}')['trees']]
    assert seen == [one.name for one in cloud.providers]
    assert json(page, '/trees?page=4')['trees'] == []
    assert (json(page, '/')['heat_map']['pages'], len(json(page, '/?page=3')['heat_map']['rows'])) == (3, 10)
    tree = f'/trees/{uuid_of("host-000")}'
    holders = [row['uuid'] for n in (1, 2, 3) for row in json(page, f'{tree}?holders={n}')['consumers']]
    assert sorted(holders) == sorted(map(uuid_of, cloud.held))
    shown = get(page, '/trees?order=name&page=2').text
    assert '26–50 of 60 trees' in shown
    assert '/trees?order=name&amp;page=3' in shown


def test_a_large_tree_is_drawn_partly(page: Page, db: Database) -> None:
    children = [Provider(f'device-{n:02}', {'SRIOV_NET_VF': {'total': 8}}, parent='host') for n in range(70)]
    clouds.plant(db, Cloud([Provider('host', {}), *children]))
    shown = get(page, f'/trees/{uuid_of("host")}').text
    assert '31 further providers are in the table only.' in shown
    assert len(json(page, f'/trees/{uuid_of("host")}?page=2')['providers']) == 21


def test_a_damaged_tree_is_shown(page: Page, conf: cfg.ConfigOpts) -> None:
    corruption.plant(
        conf.placement_database.connection,
        *corruption.SOUND,
        'UPDATE placement_resource_providers SET parent_provider_id = 1 WHERE id = 3',
        'UPDATE placement_resource_providers SET parent_provider_id = 2 WHERE id = 1',
    )
    for uuid in (corruption.ROOT, corruption.CHILD, corruption.FLAT):
        assert get(page, f'/trees/{uuid}').status_int == 200


def test_an_unreachable_database_is_503(tmp_path: Path) -> None:
    away = applications.options(tmp_path / 'not' / 'there.sqlite')
    db = Database(away)
    for address in ('/', '/trees', f'/trees/{corruption.ROOT}', f'/consumers/{corruption.ROOT}', '/health'):
        answer = get(Page(Sources(away, db, ProviderCache(db))), address)
        assert answer.status_int == 503
        assert 'Nothing can be shown until it is back.' in answer.text
    db.dispose()


def test_a_database_without_our_tables(tmp_path: Path) -> None:
    empty = applications.options(tmp_path / 'empty.sqlite')
    db = Database(empty)
    for address in ('/', f'/trees/{corruption.ROOT}', '/health'):
        answer = get(Page(Sources(empty, db, ProviderCache(db))), address)
        assert answer.status_int == 503
        assert 'The database is not one of this service' in answer.text
        assert 'A table of the service is not in the database: ' in answer.text
    db.dispose()


@pytest.mark.usefixtures('nested')
@pytest.mark.parametrize(
    ('address', 'most'), [('/', 1), ('/trees', 1), ('/why?query=resources%3DVCPU:1', 1), ('/health', 2)]
)
def test_views_of_the_cache_take_one_or_two_statements(page: Page, queries: Counter, address: str, most: int) -> None:
    get(page, address)
    with queries(at_most=most):
        get(page, address)


@pytest.mark.usefixtures('nested')
def test_views_of_a_tree_and_a_consumer_take_few_statements(page: Page, queries: Counter) -> None:
    with queries(at_most=10):
        get(page, f'/trees/{uuid_of("compute-0")}')
    with queries(at_most=2):
        get(page, f'/consumers/{uuid_of("machine-3")}')
