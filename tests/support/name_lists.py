"""Checks that the lists of traits and resource classes of one process have what another one wrote just before."""

from __future__ import annotations

import uuid
from typing import Any

from tests.support.http_client import create_provider, demand


def _custom(app: Any, kind: str, query: str = '') -> list[str]:
    """The custom names in a list, read twice, as the second response may be made of what the first one kept."""
    lists = [demand(app, 'GET', f'/{kind}{query}').json[kind] for _ in range(2)]
    assert lists[0] == lists[1]
    names = [name if kind == 'traits' else name['name'] for name in lists[0]]
    return [name for name in names if name.startswith('CUSTOM_')]


def check(reader: Any, writer: Any) -> None:
    """Create, rename, use and delete names in one application, and list them in another one after each write."""
    first, second, third = (f'CUSTOM_{uuid.uuid4().hex.upper()}' for _ in range(3))
    for kind in ('traits', 'resource_classes'):
        before = _custom(reader, kind)
        demand(writer, 'PUT', f'/{kind}/{second}')
        assert _custom(reader, kind) == [*before, second]
        demand(writer, 'PUT', f'/{kind}/{first}')
        assert _custom(reader, kind) == [*before, second, first]
        demand(writer, 'DELETE', f'/{kind}/{second}')
        assert _custom(reader, kind) == [*before, first]
    demand(writer, 'PUT', f'/resource_classes/{first}', {'name': third}, '1.6')
    assert _custom(reader, 'resource_classes') == [*before, third]
    assert first not in _custom(reader, 'traits', '?associated=true')
    traits = f'/resource_providers/{create_provider(writer)}/traits'
    demand(writer, 'PUT', traits, {'resource_provider_generation': 0, 'traits': [first]})
    assert first in _custom(reader, 'traits', '?associated=true')
    assert first not in _custom(reader, 'traits', '?associated=false')
    demand(writer, 'PUT', traits, {'resource_provider_generation': 1, 'traits': []})
    assert first not in _custom(reader, 'traits', f'?associated=true&name=in:{first}')
    assert _custom(reader, 'traits', f'?name=in:{first},{second}') == [first]
