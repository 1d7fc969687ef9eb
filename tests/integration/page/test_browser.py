"""Each view of the page in Chromium: it fits the window, has no serious accessibility fault, and loads nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.page import browser
from tests.integration.page.realistic_cloud import (
    AVAILABILITY_ZONE,
    DOMAIN,
    LONG_NAME,
    NUMA_HOST,
    NUMA_INSTANCE,
    OVER_COMMITTED,
    PROJECT,
)
from tests.support.clouds import uuid_of

_NESTED_SEARCH = 'resources%3DVCPU:32,MEMORY_MB:60000%26required%3DHW_CPU_X86_AVX2%26resources1%3DSRIOV_NET_VF:9'
_FOUND_SEARCH = (
    'resources%3DMEMORY_MB:1024%26resources1%3DSRIOV_NET_VF:1%26resources2%3DSRIOV_NET_VF:1%26group_policy%3Disolate'
)
_GPU_HOSTS = '+'.join(uuid_of(f'gpu-{number:02}.ai.{DOMAIN}') for number in range(8, 48))
_REALISTIC_SEARCH = 'resources%3DVCPU:16,CUSTOM_PCI_10DE_2330:4,MEMORY_MB:262144%26required%3DHW_CPU_X86_AVX512F'

#: By cloud, the name and the address of each view.
VIEWS = {
    'empty': {
        'overview': '/?size=VCPU:4',
        'trees': '/trees',
        'consumers': '/consumers',
        'why': '/why?query=resources%3DVCPU:4',
        'plan': '/plan',
        'health': '/health?audit=all',
        'error': '/trees/nonsense',
    },
    'nested': {
        'overview': '/?size=VCPU:4,MEMORY_MB:4096,DISK_GB:10',
        'trees': '/trees',
        'tree': f'/trees/{uuid_of("compute-0")}',
        'consumer': f'/consumers/{uuid_of("machine-3")}',
        'why': f'/why?query={_NESTED_SEARCH}',
        'plan': '/plan?drain=compute-0+compute-2',
        'health': '/health?audit=all',
    },
    'realistic': {
        'overview': '/',
        'overview-aggregate': f'/?size=VCPU:4,MEMORY_MB:8192&aggregate={uuid_of(AVAILABILITY_ZONE)}',
        'trees': '/trees',
        'trees-over-committed': '/trees?state=over_committed',
        'trees-numa': f'/trees?q=numa&aggregate={uuid_of("hpc")}',
        'tree': f'/trees/{uuid_of(NUMA_HOST)}',
        'tree-over-committed': f'/trees/{uuid_of(OVER_COMMITTED)}',
        'consumers': f'/consumers?q={PROJECT}',
        'consumer': f'/consumers/{uuid_of(NUMA_INSTANCE)}',
        'why': f'/why?query={_REALISTIC_SEARCH}',
        'why-found': f'/why?query={_FOUND_SEARCH}',
        'plan': f'/plan?drain={uuid_of(NUMA_HOST)}+{uuid_of(OVER_COMMITTED)}',
        'plan-cannot': f'/plan?drain={_GPU_HOSTS}&keep_traits=1&keep_aggregates=1',
        'plan-ratio': '/plan?ratio=VCPU%3D0.5',
        'plan-invalid': '/plan?drain=nowhere',
        'why-invalid': '/why?query=resources%3DVCPU:4%26requird%3DHW_CPU_X86_AVX2',
        'health': '/health?audit=all',
    },
}
#: The boxes of a picture that overlap another one, and their texts that leave them or overlap another text or a bar.
_IN_THE_WAY = """() => {
    const edge = element => element.getBoundingClientRect();
    // Lines of text are as high as their font, which is more than their letters.
    const overlap = (one, other) => one.left < other.right && other.left < one.right
        && one.top + 3 < other.bottom - 3 && other.top + 3 < one.bottom - 3;
    const boxes = [...document.querySelectorAll('.tree .box')];
    const wrong = boxes.filter(box => boxes.some(other => other !== box && overlap(edge(box), edge(other))));
    for (const box of boxes) {
        const texts = [...box.querySelectorAll('p')];
        wrong.push(...texts.filter(text => text.scrollWidth > text.clientWidth || edge(text).right > edge(box).right
            || [...texts, ...box.querySelectorAll('.bar')].some(
                other => other !== text && overlap(edge(text), edge(other)))));
    }
    return {boxes: boxes.length, wrong: wrong.map(element => element.textContent)};
}"""
ALL = [(cloud, name) for cloud, views in VIEWS.items() for name in views]


#: Widths of a window, with a color scheme, which does not change the layout.
WINDOWS = [(390, 'light'), (1280, 'dark'), (1920, 'light')]


@pytest.mark.parametrize(('cloud', 'name'), ALL)
def test_view(chromium: Any, pages: dict[str, str], cloud: str, name: str) -> None:
    with browser.tab(chromium, pages[cloud]) as tab:
        status = tab.open(VIEWS[cloud][name])
        invalid = name in ('error', 'why-invalid', 'plan-invalid')
        if invalid:
            # The browser itself reports the status.
            tab.complaints.clear()
        assert status == (400 if invalid else 200)
        for width, scheme in WINDOWS:
            tab.resize(width, scheme)
            tab.keep(f'{cloud}-{name}-{width}-{scheme}')
            assert tab.overflow() <= 0, width
            assert tab.outside() == [], width
            assert tab.serious() == [], (width, scheme)


def test_links_lead_from_a_problem_to_the_host_and_from_an_instance_to_its_hosts(
    chromium: Any, pages: dict[str, str]
) -> None:
    with browser.tab(chromium, pages['realistic'], scripts=False) as tab:
        tab.open('/')
        tab.page.get_by_role('link', name='over-committed hosts').click()
        browser.has_text(tab.page.get_by_role('status'), '9 trees')
        tab.page.get_by_role('link', name=OVER_COMMITTED).click()
        host = tab.page.get_by_role('main').inner_text()
        assert 'Over-committed: 108 of 48 VCPU used' in host
        assert 'Inventory changed 3 hours ago' in host
        assert 'That change set the capacity below the 108 that were already allocated.' in host
        tab.page.get_by_role('link', name='Consumers', exact=True).click()
        tab.page.get_by_label('Uuid of an instance').fill(uuid_of(NUMA_INSTANCE))
        tab.page.get_by_role('button', name='Search').click()
        browser.has_text(tab.page.get_by_role('status'), '1 consumer')
        tab.page.get_by_role('link', name=LONG_NAME).click()
        browser.has_text(tab.page.get_by_role('heading', level=1), NUMA_HOST)
        tab.page.get_by_role('link', name=uuid_of(NUMA_INSTANCE)).click()
        assert tab.page.url.endswith(f'/consumers/{uuid_of(NUMA_INSTANCE)}')


@pytest.mark.parametrize(
    ('width', 'address'),
    [
        (390, '/trees'),
        (390, '/'),
        # The view with the most columns: those of a size, and eleven classes.
        (1280, '/?size=VCPU:4,MEMORY_MB:8192'),
    ],
)
def test_the_used_part_of_each_class_is_in_the_window(
    chromium: Any, pages: dict[str, str], width: int, address: str
) -> None:
    with browser.tab(chromium, pages['realistic'], width) as tab:
        tab.open(address)
        right_edges = tab.page.eval_on_selector_all(
            '.matrix .cell', 'cells => cells.map(cell => cell.getBoundingClientRect().right)'
        )
        assert len(right_edges) > 50
        assert max(right_edges) <= width


@pytest.mark.parametrize('width', [390, 1280])
@pytest.mark.parametrize('host', [NUMA_HOST, OVER_COMMITTED])
def test_boxes_of_a_picture_are_apart_and_have_their_texts_inside(
    chromium: Any, pages: dict[str, str], host: str, width: int
) -> None:
    with browser.tab(chromium, pages['realistic'], width) as tab:
        tab.open(f'/trees/{uuid_of(host)}')
        picture = tab.page.evaluate(_IN_THE_WAY)
        assert picture['boxes'] > 2
        assert picture['wrong'] == []


def test_everything_is_reachable_by_keyboard(chromium: Any, pages: dict[str, str]) -> None:
    with browser.tab(chromium, pages['nested']) as tab:
        tab.open('/')
        tab.page.keyboard.press('Tab')
        skip = tab.page.get_by_role('link', name='Skip to the content')
        browser.has_focus(skip)
        assert skip.bounding_box()['x'] >= 0
        tab.page.keyboard.press('Enter')
        browser.has_focus(tab.page.get_by_role('main'))
        # The links to the hosts with problems come first.
        for _ in range(tab.page.get_by_label('Problems').get_by_role('link').count()):
            tab.page.keyboard.press('Tab')
        for label in ('Aggregate', 'Traits', 'Traits of the root', 'Size to fit'):
            tab.page.keyboard.press('Tab')
            browser.has_focus(tab.page.get_by_label(label, exact=True))
        tab.page.keyboard.type('VCPU:4')
        tab.page.keyboard.press('Enter')
        tab.page.get_by_role('heading', name='Fit').wait_for()


def test_axe_finds_a_planted_fault(chromium: Any, pages: dict[str, str]) -> None:
    """Shows that axe runs, so that the tests above cannot pass without it."""
    with browser.tab(chromium, pages['nested']) as tab:
        tab.open('/why')
        tab.page.evaluate("document.querySelector('label').remove()")
        tab.page.evaluate("document.querySelector('textarea').removeAttribute('placeholder')")
        assert any(violation.startswith('label ') for violation in tab.serious())
