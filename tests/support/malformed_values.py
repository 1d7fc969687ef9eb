"""Values that break careless servers, and ways to insert them into valid requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st


class Raw(bytes):
    """Bytes that are inserted into a JSON document unchanged, whether they are JSON or not."""


class Pairs(list[tuple[str, Any]]):
    """An object that may have one key several times."""


NUMBERS = [
    Raw(text)
    for text in (
        *(b'1e999', b'-1e999', b'NaN', b'Infinity', b'-Infinity', b'1e400', b'1e-400', b'-0', b'-0.0', b'2.0', b'2.5'),
        *(b'0', b'-1', b'01', b'1.', b'.5', b'0x10', b'1_000', b'+1', b'1E2', b'3.5e38', b'1.7976931348623157e308'),
        *(b'2147483647', b'2147483648', b'-2147483649', b'4294967296', b'9223372036854775807', b'9223372036854775808'),
        *(b'-9223372036854775809', b'18446744073709551616', b'1' + b'0' * 400, b'-1' + b'0' * 400, b'9' * 5000),
    )
]

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

#: Spelled as JSON text because Python or a JSON encoder would not make them.
BROKEN_STRINGS = [
    Raw(text)
    for text in (
        *(rb'"\u0000"', rb'"a\u0000b"', rb'"\ud800"', rb'"\udfff\ud800"', rb'"\x00"', b'"\x00"', b'"\n"'),
        *(b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xf8\x88\x80\x80\x80"', b'"', b"'a'", rb'"\u12"'),
        b'"' + b'n' * 100_000 + b'"',
    )
]

STRUCTURES = [
    Raw(text)
    for text in (
        *(b'null', b'true', b'false', b'[]', b'{}', b'[[]]', b'{"a": 1}', b'{"": {}}', b'[null]', b'[1, 1]'),
        *(b'[{}]', b'', b'[' * 5000 + b']' * 5000, b'{"a":' * 3000 + b'1' + b'}' * 3000, b'[' * 100_000),
        *(b'[0' + b',0' * 20_000 + b']', b'{"a": 1, "a": 2}', b'undefined', b'/* */ 1', b'1 1', b'[1,]'),
        *(b'{"a": 1,}', b'{1: 2}', b'\xef\xbb\xbf{}'),
    )
]

strings = st.one_of(
    st.sampled_from(STRINGS), st.text(max_size=40).map(lambda text: text.encode('utf-8', 'ignore').decode())
)
#: Valid JSON of plausible types, which sometimes passes the schema and reaches the rules behind it.
plausible_values: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        [0, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**400, -1, 0.0, 0.5, 1e-300, 1e300, -0.5, 2.0]
    ),
    st.sampled_from(['VCPU', 'CUSTOM_GOLD', 'CUSTOM_NONE', 'CUSTOM_BLUE', 'host', 'child', None]),
    st.uuids().map(str),
    strings,
)
json_values: st.SearchStrategy[Any] = st.one_of(
    plausible_values,
    plausible_values,
    st.sampled_from(NUMBERS),
    st.sampled_from(BROKEN_STRINGS),
    st.sampled_from(STRUCTURES),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
)


def dump(node: Any) -> bytes:
    """Write a tree of lists, ``Pairs``, ``Raw`` and JSON values as JSON text, which ``Raw`` can make malformed."""
    if isinstance(node, Raw):
        return bytes(node)
    if isinstance(node, Pairs):
        return b'{' + b', '.join(_text(key) + b': ' + dump(value) for key, value in node) + b'}'
    if isinstance(node, list):
        return b'[' + b', '.join(map(dump, node)) + b']'
    return _text(node)


def _text(value: Any) -> bytes:
    return json.dumps(value).encode()


def load(value: Any) -> Any:
    """Convert JSON data into the tree that ``dump`` writes, as a copy."""
    if isinstance(value, dict):
        return Pairs((key, load(member)) for key, member in value.items())
    return [load(item) for item in value] if isinstance(value, list) else value


def _containers(node: Any) -> list[Any]:
    """Every list and object of the tree, outermost first."""
    containers = [node] if isinstance(node, list) else []
    for item in node if isinstance(node, list) else []:
        containers += _containers(item[1] if isinstance(node, Pairs) else item)
    return containers


def _replace(draw: st.DrawFn, node: Any) -> None:
    index = draw(st.integers(0, len(node) - 1))
    node[index] = (node[index][0], draw(json_values)) if isinstance(node, Pairs) else draw(json_values)


def _rename(draw: st.DrawFn, node: Any) -> None:
    index = draw(st.integers(0, len(node) - 1))
    node[index] = (draw(strings), node[index][1]) if isinstance(node, Pairs) else draw(json_values)


def _drop(draw: st.DrawFn, node: Any) -> None:
    del node[draw(st.integers(0, len(node) - 1))]


def _add(draw: st.DrawFn, node: Any) -> None:
    node.append((draw(strings), draw(json_values)) if isinstance(node, Pairs) else draw(json_values))


def _repeat(draw: st.DrawFn, node: Any) -> None:
    chosen = node[draw(st.integers(0, len(node) - 1))]
    node.append((chosen[0], draw(json_values)) if isinstance(node, Pairs) and draw(st.booleans()) else chosen)


_MUTATIONS: list[Callable[[st.DrawFn, Any], None]] = [*[_replace] * 6, _rename, _drop, _add, _repeat]


def _damage(draw: st.DrawFn, text: bytes) -> bytes:
    """Cut, fill or re-encode the finished text."""
    place = draw(st.integers(0, len(text)))
    return draw(
        st.sampled_from(
            [
                text[:place],
                text[:place] + b'\x00' + text[place:],
                text[:place] + b'\xff\xfe' + text[place:],
                text.decode('utf-8', 'replace').encode('utf-16'),
                b'\xef\xbb\xbf' + text,
                text + b' {}',
                text + b'\n' * 3,
            ]
        )
    )


@st.composite
def mutated_json(draw: st.DrawFn, template: Any) -> bytes:
    """``template`` (JSON data) as text with up to three things changed, most often one."""
    tree = load(template)
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 3]))):
        spots = [node for node in _containers(tree) if node]
        if not spots:
            return dump(draw(json_values))
        draw(st.sampled_from(_MUTATIONS))(draw, draw(st.sampled_from(spots)))
    text = dump(tree)
    return _damage(draw, text) if draw(st.integers(0, 19)) == 0 else text


#: One piece of a path or a query string, already percent-encoded as a client would send it.
encoded_text = st.one_of(
    strings.map(lambda text: ''.join(f'%{byte:02X}' for byte in text.encode())),
    st.binary(max_size=12).map(lambda raw: ''.join(f'%{byte:02X}' for byte in raw)),
    st.sampled_from(
        [
            *('%', '%zz', '%u0041', '%00', '%ff', '%C0%AF', '%ED%A0%80', '+', '%2B', ';', '&', '=', '#', '?'),
            *('..', '%2e%2e', '\x80'),
        ]
    ),
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
