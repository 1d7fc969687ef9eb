"""The documentation and the code agree."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from placement import handler, policies
from placement.schemas import Schema, Windows, allocation_candidate, requests
from placement.web import error_responses, microversion
from placement.web import operation as web_operation
from placement.web.operation import JsonBody, Microversions, RequestCheck, RequiresPolicy
from tests.support.pages import ROOT, first_cells
from tests.unit.test_openapi import OPERATIONS

API_REF = ROOT / 'api-ref'
PAGES = sorted([*ROOT.glob('*.md'), *API_REF.glob('*.md'), *(ROOT / 'doc').rglob('*.md')])

#: Kinds of files that refer to pages.
SOURCES = {'.py', '.yaml', '.md', '.conf', '.service', '.socket', '.ini', '.sh'}

#: Files that CONTRIBUTING.md mentions and a command makes.
MADE_BY_COMMANDS = {'placement-dev.sqlite'}

#: Base rules that other rules refer to; no operation checks them.
BASE_RULES = {rule.name for rule in policies.list_rules() if not rule.name.startswith('placement:')}


#: The pages on which the members of each schema are documented.
SCHEMA_PAGES: list[tuple[Schema | Windows, list[str]]] = [
    (allocation_candidate.GET, ['allocation-candidates.md']),
    (requests.CUSTOM_CLASS, ['resource-classes.md']),
    (requests.GET_TRAITS, ['traits.md']),
    (requests.PUT_TRAITS, ['resource-provider-traits.md']),
    (requests.GET_PROVIDERS, ['resource-providers.md']),
    (requests.POST_PROVIDER, ['resource-providers.md']),
    (requests.PUT_PROVIDER, ['resource-providers.md']),
    (requests.PUT_AGGREGATES, ['aggregates.md']),
    (requests.POST_INVENTORY, ['inventories.md']),
    (requests.PUT_INVENTORY, ['inventories.md']),
    (requests.PUT_INVENTORIES, ['inventories.md']),
    (requests.PUT_ALLOCATIONS, ['allocations.md']),
    (requests.POST_ALLOCATIONS, ['allocations.md']),
    (requests.POST_RESHAPER, ['reshaper.md', 'inventories.md', 'allocations.md']),
    (requests.GET_USAGES, ['usages.md']),
]


def _sections() -> dict[str, str]:
    """``GET /traits`` -> the text below that heading, for every operation of the reference."""
    sections: dict[str, str] = {}
    for page in sorted(API_REF.glob('*.md')):
        for part in re.split(r'^## ', page.read_text(), flags=re.MULTILINE)[1:]:
            heading, _, text = part.partition('\n')
            if re.match(r'[A-Z]+ /', heading):
                assert heading not in sections, f'{heading} is documented twice'
                sections[heading] = text
    return sections


def _documented_codes() -> set[str]:
    return {row for row in first_cells((API_REF / 'errors.md').read_text()) if row.startswith('placement.')}


def test_every_route_is_documented_and_every_documented_route_exists() -> None:
    declared = {f'{method} {path}' for path, methods in handler.ROUTE_DECLARATIONS.items() for method in methods}
    assert set(_sections()) == declared


def test_the_rules_of_a_search_name_every_parameter() -> None:
    text = (API_REF / 'candidate-search.md').read_text()
    names = [parameter.name for parameter in allocation_candidate.PARAMETERS]
    assert [name for name in names if not re.search(rf'`{name}\b', text)] == []


def test_the_reference_says_which_value_of_every_repeated_parameter_counts() -> None:
    _, _, text = (API_REF / 'allocation-candidates.md').read_text().partition('| A parameter that is repeated |')
    table, _, _ = text.partition('\n\n')
    assert [parameter.name for parameter in allocation_candidate.PARAMETERS if f'`{parameter.name}`' not in table] == []


def test_every_operation_names_its_policy_rule() -> None:
    documented = {
        rule for text in _sections().values() for rule in re.findall(r'^Policy: `(.+)`$', text, flags=re.MULTILINE)
    }
    assert documented == {rule.name for rule in policies.list_rules()} - BASE_RULES


def test_policy_rules_are_documented_at_the_operations_that_ask_for_them() -> None:
    for rule in policies.list_rules():
        for operation in getattr(rule, 'operations', []):
            heading = f'{operation["method"]} {operation["path"]}'
            assert f'Policy: `{rule.name}`' in _sections()[heading], heading


def test_every_error_code_is_documented_and_every_documented_code_exists() -> None:
    codes = {
        value
        for name, value in vars(error_responses).items()
        if name.isupper() and isinstance(value, str) and value.startswith('placement.')
    }
    assert _documented_codes() == codes


def test_every_microversion_is_documented_in_order() -> None:
    rows = re.findall(r'^\| *(\d+\.\d+) *\|', (API_REF / 'microversions.md').read_text(), flags=re.MULTILINE)
    assert rows == microversion.VERSIONS


def _members(schema: Any) -> set[str]:
    """The names of the members that a JSON Schema declares, at any depth."""
    if isinstance(schema, list):
        return set().union(*map(_members, schema))
    if not isinstance(schema, dict):
        return set()
    return set(schema.get('properties', ())).union(*map(_members, schema.values()))


def _members_since(schema: Schema | Windows) -> Iterator[tuple[str, str]]:
    """Each member that a schema declares, and the microversion that added it; '' for the first."""
    if schema is allocation_candidate.GET:  # Its schemas have patterns instead of names.
        first, *others = allocation_candidate.PARAMETERS
        yield from [(first.name, ''), *((parameter.name, _dotted(parameter.since)) for parameter in others)]
        return
    declared: set[str] = set()
    for since, window in reversed(schema) if isinstance(schema, tuple) else [((1, 0), schema)]:
        new = _members(window) - declared
        yield from ((name, f'{since[0]}.{since[1]}' if declared else '') for name in new)
        declared |= new


@pytest.mark.parametrize(('schema', 'pages'), SCHEMA_PAGES)
def test_members_are_documented_with_the_microversion_that_added_them(
    schema: Schema | Windows, pages: list[str]
) -> None:
    rows = [row for page in pages for row in (API_REF / page).read_text().splitlines() if row.startswith('|')]
    members = set(_members_since(schema))
    assert members
    for name, since in members:
        assert any(f'`{name}`' in row.split('|')[1] and since in row for row in rows), (name, since)


def test_the_schema_of_every_operation_is_compared_with_its_pages() -> None:
    compared = [schema for schema, _pages in SCHEMA_PAGES]
    for _path, _method, operation in OPERATIONS:
        assert {id(operation.query), id(operation.body)} <= {id(None), *map(id, compared)}


@functools.cache
def _anchors(page: Path) -> set[str]:
    """The anchors of a page: its headings, as Markdown viewers name them."""
    text = re.sub(r'^```.*?^```', '', page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r'^#+ (.+)$', text, flags=re.MULTILINE)
    anchors = [re.sub(r'[^\w -]', '', heading.lower()).replace(' ', '-') for heading in headings]
    assert len(anchors) == len(set(anchors)), f'{page}: two headings have one name'
    return set(anchors)


def _leads_somewhere(page: Path, anchor: str) -> bool:
    return page.exists() and (not anchor or anchor in _anchors(page))


@pytest.mark.parametrize('page', PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_existing_targets(page: Path) -> None:
    links = re.findall(r'\]\(([^)#\s]*)#?([^)\s]*)\)', page.read_text())
    local = [(target, anchor) for target, anchor in links if not target.startswith(('http://', 'https://'))]
    broken = [
        (target, anchor)
        for target, anchor in local
        if not _leads_somewhere((page.parent / target).resolve() if target else page, anchor)
    ]
    assert broken == []


def _sources() -> Iterator[Path]:
    """Every text file that is written by hand."""
    yield from (path for path in ROOT.iterdir() if path.suffix in ('.md', '.toml', '.ini', '.py'))
    for name in ('placement', 'tests', 'gabbits', 'bench', 'tools', 'etc', 'doc', 'api-ref', 'releasenotes'):
        yield from (path for path in (ROOT / name).rglob('*') if path.suffix in SOURCES)


def test_references_to_pages_lead_to_headings_that_exist() -> None:
    references, broken = 0, []
    for path in _sources():
        for target, anchor in re.findall(r'(?<!share/)\b((?:api-ref|doc)/[\w/-]+\.md)(?:#([\w-]+))?', path.read_text()):
            references += 1
            if not _leads_somewhere(ROOT / target, anchor):
                broken.append((str(path.relative_to(ROOT)), target, anchor))
    assert broken == []
    assert references > 100


#: A path as a page of the code names it: relative to the repository, to the package or to the reference.
_PATH = re.compile(r'`((?:[\w.-]+/)+|(?:[\w.-]+/)*[\w-]+\.(?:py|md|toml|ini|yaml|conf|json|sh|sqlite))(?:::\w+)?`')


@pytest.mark.parametrize('page', ['CONTRIBUTING.md', 'doc/architecture.md'])
def test_files_and_packages_that_a_page_of_the_code_names_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    named = {path for path in _PATH.findall(text) if 'RESOURCE' not in path}
    places = [ROOT, ROOT / 'placement', API_REF]
    assert {path for path in named if not any((place / path).exists() for place in places)} <= MADE_BY_COMMANDS
    modules = set(re.findall(r'`((?:placement|tests|bench)(?:\.\w+)+)`', text))
    assert {name for name in modules if importlib.util.find_spec(name) is None} == set()
    tests = re.findall(r'`?(tests/[\w/]+\.py)::(\w+)', text)
    assert all(f'def {name}(' in (ROOT / path).read_text() for path, name in tests)
    assert len(named) > 20


def test_every_error_code_is_in_the_table_of_an_operation() -> None:
    used = {code for text in _sections().values() for code in re.findall(r'`(placement\.[a-z_.]+)`', text)}
    assert used | {error_responses.DEFAULT} == _documented_codes()


def test_every_page_is_listed_in_its_index() -> None:
    for directory in (API_REF, ROOT / 'doc'):
        index = (directory / 'index.md').read_text()
        pages = {path.name for path in directory.glob('*.md')} - {'index.md'}
        assert {page for page in pages if f']({page})' not in index} == set()


def _dotted(version: tuple[int, int]) -> str:
    return f'{version[0]}.{version[1]}'


def _in_words(check: RequestCheck) -> str:
    match check:
        case Microversions(first, None, otherwise):
            return f'{otherwise} below {_dotted(first)}'
        case Microversions(first, tuple(last), otherwise):
            return f'{otherwise} outside of {_dotted(first)} to {_dotted(last)}'
        case JsonBody():
            return '415 unless the body is `application/json`'
        case web_operation.accepts_json:
            return '406 unless `application/json` is acceptable'
        case RequiresPolicy(rule):
            return f'403 unless `{rule}` allows it'
    raise AssertionError(check)


def operations_table() -> str:
    """The table of ``api-ref/operations.md``, made from the declarations."""
    rows = [
        f'| `{method} {path}` | {", ".join(map(_in_words, operation.checks)) or "none"} |'
        for path, method, operation in OPERATIONS
    ]
    return '\n'.join(['| Operation | Checks, in this order |', '|---|---|', *rows])


def test_the_page_of_operations_is_made_from_their_declarations() -> None:
    assert operations_table() in (API_REF / 'operations.md').read_text()


FIRST_NOTE = 'first-release-4d2f6c0b9a7e1835.yaml'
#: The sections that reno knows; ``reno lint`` cannot be run in a clone without the whole history.
NOTE_SECTIONS = {'prelude', 'features', 'issues', 'upgrade', 'deprecations', 'critical', 'security', 'fixes', 'other'}


@pytest.mark.parametrize('note', sorted((ROOT / 'releasenotes' / 'notes').iterdir()), ids=lambda note: note.name)
def test_release_notes_have_the_sections_of_reno(note: Path) -> None:
    assert re.fullmatch(r'[a-z0-9-]+-[0-9a-f]{16}\.yaml', note.name), 'made with: reno new SHORT-NAME'
    sections = yaml.safe_load(note.read_text())
    assert set(sections) <= NOTE_SECTIONS
    assert all(isinstance(entry, str) for name in sections if name != 'prelude' for entry in sections[name])


def test_until_the_first_release_there_is_one_note() -> None:
    """It says what the service has. A note about a change would compare it with versions that nobody had."""
    notes = sorted(note.name for note in (ROOT / 'releasenotes' / 'notes').iterdir())
    if importlib.metadata.version('placement-server').startswith('1.0.0.dev'):
        assert notes == [FIRST_NOTE], f'extend {FIRST_NOTE} instead (CONTRIBUTING.md)'
    text = (ROOT / 'releasenotes' / 'notes' / FIRST_NOTE).read_text()
    assert re.findall(r'no longer|formerly|any longer|Before, |used to ', text) == []
