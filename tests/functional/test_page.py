"""The page: every view, as HTML and as JSON, its errors, and its headers for browsers."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib import parse

import os_resource_classes
import pytest
import webob
from oslo_config import cfg

from placement import exception
from placement.cache.refresh import ProviderCache
from placement.db.api import Database
from placement.db.health import TimedCheck
from placement.observability.metrics import Metrics
from placement.ops.audit.kinds import KINDS
from placement.ops.background_query import plan_query
from placement.ops.page import plan_view
from placement.ops.page.application import Page
from placement.ops.page.view import Sources
from tests.support import applications, clouds, corruption, fixtures
from tests.support.clouds import Cloud, Provider, uuid_of
from tests.support.fixtures import Counter

EMPTY_QUERY = 'resources=VCPU:999&limit=2'
NESTED_VIEWS = [
    '/',
    '/?size=VCPU:4,DISK_GB:10&trait=HW_CPU_X86_AVX2&page=1',
    f'/?aggregate={uuid_of("rack-a")}',
    '/trees',
    '/trees?q=nic&order=name&page=1',
    '/trees?order=VCPU&class=VCPU&state=fully_allocated',
    '/trees?lacking=VCPU:999',
    f'/trees/{uuid_of("compute-0")}',
    f'/trees/{uuid_of("compute-0-nic1")}',
    f'/trees/{uuid_of("store")}?consumer_page=1',
    f'/consumers/{uuid_of("machine-3")}',
    '/consumers',
    '/consumers?q=project-blue',
    '/why',
    '/why?query=resources%3DVCPU:999%26required%3DHW_CPU_X86_AVX2',
    '/why?query=/allocation_candidates%3Fresources%3DVCPU:1&microversion=1.20',
    '/plan',
    '/plan?drain=compute-0&spread=1',
    '/plan?ratio=VCPU%3D2',
    '/health',
    '/health?audit=all',
    '/health?audit=usage_mismatch',
]


@pytest.fixture
def sources(conf: cfg.ConfigOpts, db: Database) -> Sources:
    return Sources(conf, db, ProviderCache(db), TimedCheck(db))


@pytest.fixture
def page(sources: Sources) -> Page:
    return Page(sources)


@pytest.fixture(scope='module')
def nested_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page of a nested cloud, for tests that change nothing."""
    file = tmp_path_factory.mktemp('page') / 'placement.sqlite'
    fixtures.prepare(file)
    with applications.database(file) as db:
        clouds.create_cloud(db, clouds.nested())
        yield Page(Sources(applications.options(file), db, ProviderCache(db), TimedCheck(db)))


def get(page: Page, address: str, **environ: Any) -> webob.Response:
    return webob.Request.blank(address, **environ).get_response(page)


def json(page: Page, address: str) -> Any:
    response = get(page, address + ('&' if '?' in address else '?') + 'format=json')
    assert (response.status_int, response.content_type) == (200, 'application/json')
    return response.json


@pytest.mark.parametrize('address', [*NESTED_VIEWS, '/nowhere', '/page.css', '/icon.svg'])
def test_every_view_is_a_document_without_scripts_and_an_object(nested_page: Page, address: str) -> None:
    response = get(nested_page, address)
    policy = dict(part.strip().split(' ', 1) for part in response.headers['Content-Security-Policy'].split(';'))
    same_origin, none = dict.fromkeys(('style-src', 'img-src', 'form-action'), "'self'"), ('default-src', 'base-uri')
    assert policy == same_origin | dict.fromkeys((*none, 'frame-ancestors'), "'none'")
    assert response.headers['X-Content-Type-Options'] == 'nosniff'
    assert response.headers['Referrer-Policy'] == 'no-referrer'
    # What that policy would block, and files of other origins.
    assert not re.search(r'<script|<style|\sstyle=|\son[a-z]+=|(src|href)="(https?:)?//|@import|url\(', response.text)
    if address in NESTED_VIEWS:
        assert (response.status_int, response.content_type) == (200, 'text/html')
        assert response.text.startswith('<!doctype html>')
        assert 'None' not in re.sub('<[^>]*>', '', response.text).replace('None in the log', '')
        assert isinstance(json(nested_page, address), dict)
        head = get(nested_page, address, method='HEAD')
        assert (head.status_int, head.body) == (200, b'')
        # The figures of the health of the process change from one request to the next.
        assert head.content_length == len(response.body) or (address.startswith('/health') and head.content_length)


def test_with_nothing_stored_the_views_say_what_to_do_next(page: Page) -> None:
    views = {
        'A compute service creates the provider of its host when it starts': (
            *('/', '/?size=VCPU:1', '/trees', '/trees?q=x', '/why?query=resources=VCPU:1', '/health'),
        ),
        'An instance has allocations from the time when it is scheduled': ('/consumers', '/consumers?q=x'),
    }
    for message, addresses in views.items():
        for address in addresses:
            assert message in get(page, address).text, address
            json(page, address)


def test_the_overview_has_the_figures_of_the_reports(nested_page: Page) -> None:
    data = json(nested_page, '/?size=VCPU:4,DISK_GB:10')
    assert (data['providers'], data['trees']) == (21, 5)
    vcpu = data['classes'][0]
    assert (vcpu['resource_class'], vcpu['capacity'], vcpu['used'], vcpu['full']) == ('VCPU', 512, 164, 1)
    expected = {'fit': 87, 'complete': True, 'on_disabled_hosts': 32, 'exact': True, 'prevented_by_pools': 0}
    assert data['fit_estimate']['estimate'] == expected
    fits = data['heat_map']['fits']
    assert list(fits) == [row['aggregate'] for row in data['heat_map']['rows']]
    for aggregate, estimate in fits.items():
        alone = json(nested_page, f'/?size=VCPU:4,DISK_GB:10&aggregate={aggregate}')
        assert alone['fit_estimate']['estimate'] == alone['heat_map']['fits'][aggregate] == estimate
    assert json(nested_page, '/')['heat_map']['fits'] is None
    assert data['heat_map']['rows'][0]['utilizations'][0] == {'capacity': 256, 'used': 152, 'over_committed': 0}
    shown = get(nested_page, '/?size=VCPU:4,DISK_GB:10').text
    assert '<span class="big">87</span>' in re.sub(r'\s+<', '<', shown)
    assert 'of these <strong>32</strong> on disabled hosts' in shown
    assert '164 of 512' in shown
    enabled = json(nested_page, '/?size=VCPU:4,DISK_GB:10&root_trait=!COMPUTE_STATUS_DISABLED')
    assert (enabled['trees'], enabled['fit_estimate']['estimate']['fit'] < 87) == (4, True)
    assert json(nested_page, '/trees?root_trait=COMPUTE_STATUS_DISABLED')['total'] == 1


@pytest.fixture
def db_with_problems(db: Database) -> Database:
    """A database with five hosts: over-committed, fully reserved, fully allocated, disabled and free."""
    vcpu, memory = {'VCPU': {'total': 8}}, {'MEMORY_MB': {'total': 65536}}
    providers = [
        Provider('over', {'VCPU': {'total': 4}, **memory}, (), ('rack-a',)),
        Provider('reserved', {'VCPU': {'total': 8, 'reserved': 8}, 'MEMORY_MB': {'total': 9, 'reserved': 9}}),
        Provider('full', vcpu | memory, (), ('rack-b',)),
        Provider('disabled', vcpu | memory, ('COMPUTE_STATUS_DISABLED',), ('rack-b',)),
        Provider('free', vcpu | memory, (), ('rack-b',)),
    ]
    allocated: dict[str, dict[str, Mapping[str, int]]] = {
        f'machine-{name}-{n}': {name: {'VCPU': 4, 'MEMORY_MB': 8192}} for name in ('over', 'full') for n in (1, 2)
    }
    clouds.create_cloud(db, Cloud(providers, allocated))
    return db


def test_the_fullest_class_is_none_that_may_be_full_on_purpose(tmp_path: Path) -> None:
    inventories = {'VCPU': {'total': 8}, 'VGPU': {'total': 1}}
    host = Provider('host', inventories, ('HW_CPU_X86_AVX2',), ('rack',))
    cloud = Cloud([host], {'machine': {'host': {'VCPU': 2, 'VGPU': 1}}})
    file = tmp_path / 'other.sqlite'
    fixtures.prepare(file)
    with applications.database(file) as db:
        clouds.create_cloud(db, cloud)
        shown = get(Page(Sources(applications.options(file), db, ProviderCache(db), TimedCheck(db))), '/').text
    assert re.findall('<span class="big">(.*?)</span> of (.*?) is used', shown) == [('25%', 'VCPU')]


@pytest.mark.usefixtures('db_with_problems')
def test_the_overview_leads_with_hosts_that_have_problems(page: Page) -> None:
    data = json(page, '/')
    assert data['problems'] == {
        'database_read_only': False,
        'over_committed': 1,
        'not_evacuable': None,
        'tolerated_failures': None,
        'reserved': 1,
        'without_capacity': {'hosts': 2, 'size': {'VCPU': 4, 'MEMORY_MB': 8192}},
    }
    assert json(page, f'/?aggregate={uuid_of("rack-b")}')['problems']['without_capacity']['hosts'] == 1
    shown = get(page, '/').text
    for link, names in (
        ('/trees?state=over_committed', ['over']),
        ('/trees?state=reserved', ['reserved']),
        ('/trees?lacking=VCPU%3A4%2CMEMORY_MB%3A8192', ['full', 'over']),
        ('/trees?state=fully_allocated&class=VCPU', ['full']),
    ):
        assert f'href="{link.replace("&", "&amp;")}"' in shown
        assert [row['name'] for row in json(page, f'{link}&order=name')['trees']] == names
        assert 'Only trees with these conditions: ' in get(page, link).text
    assert shown.index('over-committed host') < shown.index('<h2')


@pytest.mark.usefixtures('db_with_problems')
def test_trees_say_in_words_what_is_wrong_with_them(page: Page) -> None:
    rows = {row['name']: row for row in json(page, '/trees')['trees']}
    assert {name: row['over_committed'] for name, row in rows.items() if row['over_committed']} == {'over': ['VCPU']}
    assert rows['reserved']['reserved'] == ['VCPU', 'MEMORY_MB']
    assert [name for name, row in rows.items() if row['disabled']] == ['disabled']
    shown = get(page, '/trees').text
    for words in ('VCPU over-committed by 4', 'fully reserved', 'disabled'):
        assert words in shown
    host = get(page, f'/trees/{uuid_of("over")}').text
    assert 'Over-committed: 8 of 4 VCPU used' in host
    assert '200%<br>over-committed' in host
    assert re.search(r'Inventory changed [^.]* \([^.]* UTC\); allocations from [^.]* UTC to [^.]* UTC\. ', host)
    assert 'Disabled: the root has the trait' in get(page, f'/trees/{uuid_of("disabled")}').text


@pytest.mark.parametrize('spelling', [str.upper, lambda uuid: uuid.replace('-', ''), 'urn:uuid:{}'.format])
def test_providers_and_consumers_are_found_by_any_spelling_of_the_uuid(
    nested_page: Page, spelling: Callable[[str], str]
) -> None:
    address = f'/trees/{spelling(uuid_of("compute-0-nic1"))}'
    assert json(nested_page, address)['root']['name'] == 'compute-0'
    assert '<bdi>nic1</bdi> has the uuid in the address' in get(nested_page, address).text
    for search in (f'/trees?q={spelling(uuid_of("compute-0"))}', f'/consumers?q={spelling(uuid_of("machine-3"))}'):
        assert json(nested_page, search)['total'] == 1


def test_a_picture_of_a_tree_has_a_limited_number_of_boxes_and_bars(page: Page, db: Database) -> None:
    classes = os_resource_classes.STANDARDS[:10]
    root = Provider('n0', {name: {'total': 100} for name in classes})
    children = [Provider(f'n{number}', {}, parent=f'n{number - 1}') for number in range(1, 60)]
    clouds.create_cloud(db, Cloud([root, *children], {'machine': {'n0': {classes[0]: 25}}}))
    picture = get(page, f'/trees/{uuid_of("n0")}').text.partition('<section')[0]
    # As many boxes are nested in each other.
    assert picture.count('class="box"') == picture.count('<ul>\n<li><div') == picture.count('</li>\n</ul>') == 40
    assert '20 further providers are in the tables only.' in picture
    assert '2 further classes' in picture
    assert re.findall('<rect class="fine" width="([0-9.]+)"', picture) == ['25.0', *['0.0'] * 7]


#: One path of each view, and the query parameters of all.
VIEWS = [
    *('/', '/trees', f'/trees/{uuid_of("compute-0")}', '/consumers', f'/consumers/{uuid_of("machine-3")}'),
    *('/why', '/health'),
]
PARAMETERS = {
    *('aggregate', 'audit', 'class', 'consumer_page', 'format', 'lacking', 'microversion', 'order', 'page', 'q'),
    *('query', 'root_trait', 'size', 'state', 'trait'),
}


@pytest.mark.parametrize('address', VIEWS)
def test_no_parameter_makes_the_page_fail(nested_page: Page, address: str) -> None:
    """Nor an unknown one with the name of an argument of a function of the page, as links keep the parameters."""
    for name in ('path', 'self', 'values', 'view', 'sources', 'prefix', 'request', 'query_string', 'name', 'uuid'):
        assert get(nested_page, f'{address}?{name}=x').status_int == 200, name
    values = ['-1', '\0é%', f'VCPU:{10**14}', '!A,B', '*?[(]', 'resources=&limit=0']
    for name in sorted(PARAMETERS):
        for value in values:
            response = get(nested_page, f'{address}?{parse.urlencode({name: value})}')
            assert response.status_int in (200, 400, 404), (name, value)


def test_a_consumer_without_a_record_is_found(page: Page, url: str) -> None:
    corruption.plant(url, *corruption.SOUND, 'DELETE FROM placement_consumers')
    data = json(page, f'/consumers?q={corruption.HOLDER}')
    assert [row['uuid'] for row in data['consumers']] == [corruption.HOLDER]
    assert 'no record' in get(page, f'/consumers?q={corruption.HOLDER}').text


@pytest.mark.usefixtures('db_with_problems')
def test_health_makes_the_quick_checks_and_names_hosts(page: Page) -> None:
    findings = {check['kind']: check['found'] for check in json(page, '/health')['audit']}
    assert {kind for kind, count in findings.items() if count is not None} == {
        name for name, kind in KINDS.items() if kind.runs_by_default
    }
    assert findings['over_committed'] == 1
    shown = get(page, '/health').text
    assert re.search(f'<a href="/trees/{uuid_of("over")}" title="{uuid_of("over")}"><bdi>over</bdi></a>', shown)
    assert '1 finding' in shown
    assert '/health?audit=usage_mismatch' in shown


def test_why_shows_the_sentence_and_a_rule_of_each_parameter(conf: cfg.ConfigOpts, page: Page, db: Database) -> None:
    clouds.create_cloud(db, clouds.nested())
    conf.set_override('max_microversion', applications.NEWEST_MICROVERSION, group='placement')
    query = (
        f'resources_A=VCPU:1&in_tree_A={uuid_of("compute-0")}&required_B=in:HW_CPU_X86_AVX2,HW_CPU_X86_VMX'
        f'&member_of_B=!{uuid_of("rack-b")}&root_required=!COMPUTE_STATUS_DISABLED&same_subtree=_A,_B&group_policy=none'
    )
    data = json(page, f'/why?query={parse.quote(query)}')['explanation']
    shown = get(page, f'/why?query={parse.quote(query)}').text
    for words in ('in:HW_CPU_X86_AVX2,HW_CPU_X86_VMX', *data['sentences']):
        assert words in shown


def test_why_says_how_many_candidates_there_are(nested_page: Page) -> None:
    address = '/why?query=resources%3DVCPU:1,MEMORY_MB:2048%26resources1%3DSRIOV_NET_VF:1%26limit%3D3'
    assert get(nested_page, address).text.count('Found 3 candidates, as many as the limit allows.') == 1


def test_a_query_that_is_not_valid_stays_in_the_form(nested_page: Page) -> None:
    response = get(nested_page, '/why?query=GET /allocation_candidates%3Frequird%3D<b>&microversion=1.20')
    assert response.status_int == 400
    assert 'requird is not a parameter of GET /allocation_candidates.' in response.text
    assert '>GET /allocation_candidates?requird=&lt;b&gt;</textarea>' in response.text
    assert 'name="microversion" value="1.20"' in response.text


def test_health_has_the_counts_since_the_start_of_the_service(sources: Sources) -> None:
    metrics = Metrics()
    for status in (200, 404, 503):
        metrics.request_finished('/traits', 'GET', '1.29', status, 0.004)
    metrics.request_finished('/', 'GET', '1.29', 200, 0.002)
    with metrics.claim():
        pass
    with contextlib.suppress(exception.ConcurrentUpdate), metrics.claim():
        raise exception.ConcurrentUpdate
    metrics.transaction_retries.labels('deadlock').inc()
    metrics.search_finished(0, 0.1)
    metrics.search_finished(7, 0.1)
    page = Page(dataclasses.replace(sources, metrics=metrics.registry))
    activity = json(page, '/health')['activity']
    busiest, other = activity['routes']
    assert abs(busiest.pop('mean') - 0.004) < 1e-9
    assert busiest == {'route': '/traits', 'method': 'GET', 'requests': 3, 'client_errors': 1, 'server_errors': 1}
    assert (other['route'], activity['requests'], activity['server_errors']) == ('/', 4, 1)
    assert (activity['claims_accepted'], activity['claims_rejected']) == (1, {'concurrent_update': 1})
    assert activity['transactions_retried'] == {'deadlock': 1}
    assert (activity['searches'], activity['empty_searches']) == (2, 1)
    shown = get(page, '/health').text
    assert 'GET /traits' in shown
    assert 'etc/grafana/placement.json' in shown


def test_searches_without_result_are_read_from_the_log(sources: Sources, tmp_path: Path) -> None:
    log = tmp_path / 'service.log'
    log.write_text(f'2026-01-02 03:04:05.006 7 INFO x [-] No allocation candidates for {EMPTY_QUERY}: resources\n')
    sources.conf.set_override('log_file', str(log))
    page = Page(sources)
    (pattern,) = json(page, '/why')['empty_searches']['patterns']
    latest = {'latest_query': EMPTY_QUERY, 'latest_at': '2026-01-02 03:04:05'}
    assert pattern == {'pattern': 'resources=VCPU', 'count': 1, **latest}
    log.unlink()
    assert 'cannot be read' in get(page, '/why').text


def test_the_audit_names_what_is_wrong(page: Page, url: str) -> None:
    corruption.plant(url, *corruption.SOUND, 'UPDATE placement_inventories SET used = 7 WHERE id = 1')
    # One check, because after a second no other one begins.
    by_kind = {check['kind']: check for check in json(page, '/health?audit=usage_mismatch')['audit']}
    assert by_kind.keys() == set(KINDS)
    (finding,) = by_kind['usage_mismatch']['findings']
    assert (finding['subject']['resource_provider'], finding['repairable']) == (corruption.ROOT, True)
    assert f'/trees/{corruption.ROOT}' in get(page, '/health?audit=usage_mismatch').text
    assert '<span class="warn">allocations: 2</span>' in get(page, f'/trees/{corruption.ROOT}').text


@pytest.mark.parametrize(
    ('address', 'status', 'message'),
    [
        ('/nowhere', 404, 'There is no such page.'),
        (f'/trees/{uuid_of("nobody")}', 404, 'There is no resource provider with the uuid or name'),
        (f'/consumers/{uuid_of("nobody")}', 404, 'There is no consumer with the uuid'),
        ('/trees/compute-0', 400, '“compute-0” is not the uuid of a provider'),
        ('/consumers/%00', 400, 'is not the uuid of a consumer'),
        ('/?page=0', 400, '“page” must be a number'),
        ('/?size=VCPU:0', 400, 'A size has the form'),
        ('/?aggregate=rack-a', 400, '“aggregate” must be a uuid, not “rack-a”'),
        ('/trees?order=random', 400, '“order” must be fullest, name or a resource class, not “random”.'),
        ('/trees?state=broken', 400, '“state” must be one of any, available'),
        ('/trees?lacking=VCPU', 400, 'A size has the form'),
        ('/?format=xml', 400, '“format” must be one of html, json'),
        ('/?trait=%ff', 400, 'not encoded in UTF-8'),
        ('/?' + 'a' * 30000, 400, 'longer than'),
        ('/?root_trait=in:A', 400, 'Traits of the root have the form A,!B, not “in:A”.'),
        ('/trees?root_trait=CUSTOM_NOTHING', 400, 'No such trait(s): CUSTOM_NOTHING.'),
        ('/why?query=resources%3DVCPU:1&microversion=1.99', 400, 'a microversion from 1.10 to 1.29, not 1.99'),
        ('/why?query=resources%3DCUSTOM_NOTHING:1', 400, 'No such resource class CUSTOM_NOTHING'),
        ('/health?audit=everything', 400, '“audit” must be one of quick, all, outdated_class_sequence'),
    ],
)
def test_invalid_addresses_are_errors_with_a_reason(nested_page: Page, address: str, status: int, message: str) -> None:
    response = get(nested_page, address)
    assert response.status_int == status
    assert message in response.text
    if 'format' not in address and '%ff' not in address and len(address) < 100:
        as_json = get(nested_page, address + ('&' if '?' in address else '?') + 'format=json')
        assert as_json.status_int == status
        assert message in as_json.json['error']['detail']


@pytest.mark.parametrize('method', ['POST', 'OPTIONS', 'TRACE'])
def test_methods_other_than_get_and_head_are_405(page: Page, method: str) -> None:
    response = get(page, '/', method=method)
    assert (response.status_int, response.headers['Allow']) == (405, 'GET, HEAD')


def test_only_host_headers_of_this_machine_are_answered_unless_others_are_allowed(page: Page, sources: Sources) -> None:
    for host in ('localhost', 'localhost:8779', '127.0.0.1:1', '[::1]:8779', 'LOCALHOST'):
        assert get(page, '/', environ={'HTTP_HOST': host}).status_int == 200
    for host in ('evil.example', 'localhost.evil.example:80', '10.0.0.1', '', '[::2]:80', 'localhost:x'):
        assert get(page, '/', environ={'HTTP_HOST': host}).status_int == 421
        assert get(Page(sources, hosts=None), '/', environ={'HTTP_HOST': host or 'x'}).status_int == 200


def test_names_are_escaped(page: Page, db: Database) -> None:
    evil = '<script>alert(1)</script>"&'
    cloud = Cloud([Provider(evil, {'VCPU': {'total': 1}}, (), ('rack',))], {'one': {evil: {'VCPU': 1}}})
    clouds.create_cloud(db, cloud)
    for address in ('/trees', f'/trees?q={"%3Cscript%3E"}', f'/trees/{uuid_of(evil)}', f'/consumers/{uuid_of("one")}'):
        shown = get(page, address).text
        assert '<script' not in shown
        assert '&lt;script&gt;' in shown
    assert '<b>' not in get(page, '/?aggregate=<b>').text


def test_below_a_prefix_all_links_have_the_prefix(page: Page, db: Database) -> None:
    clouds.create_cloud(db, clouds.nested())
    for address in NESTED_VIEWS:
        shown = get(page, address, base_url='http://localhost/page').text
        targets = re.findall(r'(?:href|action)="([^"]*)"', shown)
        assert targets
        assert {target for target in targets if not target.startswith(('/page/', '#'))} == set()


def test_long_lists_are_paged(page: Page, db: Database) -> None:
    cloud = Cloud([Provider(f'host-{n:03}', {'VCPU': {'total': 200}}, (), (f'rack-{n}',)) for n in range(60)])
    cloud.allocations = {f'machine-{n}': {'host-000': {'VCPU': 1}} for n in range(60)}
    cloud.providers += [Provider(f'device-{n:02}', {}, parent='host-059') for n in range(70)]
    clouds.create_cloud(db, cloud)
    seen = [row['name'] for n in (1, 2) for row in json(page, f'/trees?order=name&page={n}')['trees']]
    assert seen == [f'host-{n:03}' for n in range(60)]
    assert json(page, '/trees?page=3')['trees'] == []
    assert len(json(page, f'/trees/{uuid_of("host-059")}?page=2')['providers']) == 21
    assert (json(page, '/')['heat_map']['pages'], len(json(page, '/?page=3')['heat_map']['rows'])) == (3, 10)
    tree = f'/trees/{uuid_of("host-000")}'
    holders = [row['uuid'] for n in (1, 2, 3) for row in json(page, f'{tree}?consumer_page={n}')['consumers']]
    assert sorted(holders) == sorted(map(uuid_of, cloud.allocations))
    shown = get(page, '/trees?order=name&page=2').text
    assert '51–60 of 60 trees' in shown
    assert '/trees?order=name&amp;page=1' in shown


@pytest.mark.parametrize(
    'damage',
    [
        (
            'UPDATE placement_resource_providers SET parent_provider_id = 1 WHERE id = 3',
            'UPDATE placement_resource_providers SET parent_provider_id = 2 WHERE id = 1',
        ),
        corruption.ALL['no root'].statements,
        corruption.ALL['wrong root'].statements,
        corruption.ALL['missing root'].statements,
        ('UPDATE placement_inventories SET used = -8 WHERE id = 1',),
        (
            # The root that is recorded for the second is not the one to which its parents lead.
            'UPDATE placement_resource_providers SET parent_provider_id = 1, root_provider_id = 1 WHERE id = 3',
            'UPDATE placement_resource_providers SET parent_provider_id = NULL WHERE id = 2',
            'UPDATE placement_allocations SET resource_provider_id = 2',
        ),
    ],
    ids=['loop', 'no root', 'wrong root', 'missing root', 'negative usage', 'two roots'],
)
def test_a_damaged_database_is_shown(page: Page, url: str, damage: tuple[str, ...]) -> None:
    corruption.plant(url, *corruption.SOUND, *damage)
    for uuid in (corruption.ROOT, corruption.CHILD, corruption.FLAT):
        assert uuid in {provider['uuid'] for provider in json(page, f'/trees/{uuid}')['providers']}
        assert get(page, f'/trees/{uuid}').status_int == 200
    for address in ('/', '/trees', '/trees?class=VCPU', '/health'):
        assert get(page, address).status_int == 200


@pytest.mark.parametrize(
    ('file', 'message'),
    [
        ('not/there.sqlite', 'The database is unavailable'),
        ('empty.sqlite', 'The database does not have the tables of this service'),
    ],
)
def test_without_the_database_or_its_tables_the_page_is_503(tmp_path: Path, file: str, message: str) -> None:
    conf = applications.options(tmp_path / file)
    with applications.database(tmp_path / file) as db:
        for address in ('/', '/trees', f'/trees/{corruption.ROOT}', f'/consumers/{corruption.ROOT}', '/health'):
            response = get(Page(Sources(conf, db, ProviderCache(db), TimedCheck(db))), address)
            assert response.status_int == 503
            assert message in response.text


@pytest.mark.parametrize(
    ('address', 'max_statements'),
    [
        ('/', 3),
        ('/trees', 2),
        (f'/trees/{uuid_of("compute-0")}', 7),
        ('/consumers', 1),
        ('/consumers?q=project-blue', 5),
        (f'/consumers/{uuid_of("machine-3")}', 3),
        ('/why?query=resources%3DVCPU:1', 2),
        ('/health', 5),
    ],
)
def test_views_take_few_statements(
    page: Page, db: Database, queries: Counter, address: str, max_statements: int
) -> None:
    """One is the check whether the database responds."""
    clouds.create_cloud(db, clouds.nested())
    get(page, address)
    with queries(at_most=max_statements):
        get(page, address)


# Plan -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def planned_page(conf: cfg.ConfigOpts, db: Database) -> Page:
    """The page of a nested cloud whose hosts are checked in the background."""
    clouds.create_cloud(db, clouds.nested())
    query = plan_query(db, conf.metrics)
    query.start()
    query.wait(60)
    return Page(Sources(conf, db, ProviderCache(db), TimedCheck(db), plan=query))


def test_the_overview_and_the_view_plan_have_the_check_of_failing_hosts(planned_page: Page, page: Page) -> None:
    data = json(planned_page, '/plan')
    assert data['failures']['sentences'][0] == 'The load of each of 3 hosts fits on the others.'
    assert 'Tolerated failures: any 1; the worst 2 cannot.' in get(planned_page, '/plan').text
    problems = json(planned_page, '/')['problems']
    assert (problems['not_evacuable'], problems['tolerated_failures']) == (0, 1)
    assert 'that cannot be evacuated' in get(planned_page, '/').text
    assert json(page, '/')['problems']['not_evacuable'] is None
    assert 'plan_interval' in get(page, '/plan').text


def test_a_drain_and_a_ratio_are_planned(planned_page: Page) -> None:
    data = json(planned_page, '/plan?drain=compute-2')
    assert (data['drain']['verdict'], len(data['drain']['moves'])) == ('fits', 3)
    text = get(planned_page, '/plan?drain=compute-2').text
    assert 'The 3 consumers of 1 host fit on 1 other host.' in text
    assert f'href="/trees/{uuid_of("compute-1")}"' in text
    drained = get(planned_page, '/plan?drain=compute-0,compute-1,compute-2&spread=1').text
    assert 'cannot be placed on the other hosts' in drained
    data = json(planned_page, '/plan?ratio=VCPU%3D2')
    assert (data['ratio']['before']['capacity'], data['ratio']['after']['capacity']) == (512, 256)
    assert 'the capacity of VCPU would shrink by 256' in get(planned_page, '/plan?ratio=VCPU%3D2').text
    for query, problem in (('drain=nowhere', 'There is no resource provider'), ('ratio=VCPU', 'Expected CLASS=VALUE')):
        response = get(planned_page, f'/plan?{query}')
        assert response.status_int == 400
        assert problem in response.text


def test_a_table_of_a_plan_says_how_many_rows_it_leaves_out(nested_page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ratio at which several providers are above their capacity, with what each of them uses of it."""
    monkeypatch.setattr(plan_view, '_ROWS', 1)
    above = json(nested_page, '/plan?ratio=VCPU%3D0.1')['ratio']['above_capacity']
    text = get(nested_page, '/plan?ratio=VCPU%3D0.1').text
    assert len(above) > 2
    assert f'And {len(above) - 1} more.' in text
    assert f'{above[0]["used"]} of {above[0]["capacity"]}' in text
    assert above[1]['uuid'] not in text
