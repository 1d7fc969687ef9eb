"""Writes amounts of resource classes and times for people: ``335 of 923 TiB``, not ``351698944 of 967578624``.

The quantity of a class follows from its name. The standard classes (os-resource-classes) end with the unit of their
amounts: ``_MB`` and ``_GB`` are MiB and GiB, because that is what the compute service reports under these names;
``_KILOBIT_PER_SEC`` and ``_KILOPACKET_PER_SEC`` are multiples of 1000. All other standard classes count things. The
owner of a custom class alone knows its unit, whatever its name, so its amounts are plain numbers.

JSON documents have the numbers as they are stored.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Mapping
from typing import NamedTuple

_CUSTOM = 'CUSTOM_'
#: Significant digits of a rounded amount. All digits before the decimal point are shown.
_DIGITS = 3
#: The largest percentage that is shown.
_MAX_PERCENT = 9999


class _Scale(NamedTuple):
    """The units of a quantity, each ``factor`` times the one before. Stored amounts are in the first unit."""

    factor: int
    units: tuple[str, ...]


_SCALES = {
    '_MB': _Scale(1024, ('MiB', 'GiB', 'TiB', 'PiB', 'EiB')),
    '_GB': _Scale(1024, ('GiB', 'TiB', 'PiB', 'EiB')),
    '_KILOBIT_PER_SEC': _Scale(1000, ('kbit/s', 'Mbit/s', 'Gbit/s', 'Tbit/s', 'Pbit/s')),
    '_KILOPACKET_PER_SEC': _Scale(1000, ('kpacket/s', 'Mpacket/s', 'Gpacket/s', 'Tpacket/s')),
}
_PLAIN = _Scale(1, ('',))


def amount(resource_class: str, value: int, round_down: bool = False) -> str:
    """Return an amount with its unit, such as ``64 GiB``; ``0`` has no unit.

    :param value: at least 0.
    :param round_down: set for a limit, so that the shown amount does not exceed it.
    """
    return ' '.join(filter(None, _rounded(_scale(resource_class), value, _DIGITS, round_down)))


def used_of_capacity(resource_class: str, used: int, capacity: int) -> str:
    """Return a usage and a capacity, such as ``335 of 923 TiB`` or ``512 MiB of 1.5 TiB``.

    If the numbers differ, they are shown with enough digits to differ, so that only a full inventory looks full.
    """
    scale = _scale(resource_class)
    for digits in itertools.count(_DIGITS):
        (number, unit), (limit, unit_of_limit) = (
            _rounded(scale, value, digits, round_down=False) for value in (used, capacity)
        )
        if used == capacity or (number, unit) != (limit, unit_of_limit):
            break
    unit_of_amount = '' if unit == unit_of_limit else unit
    return ' '.join(filter(None, (number, unit_of_amount, 'of', limit, unit_of_limit)))


def percent(used: int, capacity: int) -> str:
    """Return the used share of a capacity as a percentage, rounded down: only a full one is ``100%``.

    A share between 0 and 1% is ``<1%``. A share between 100% and 101% is ``>100%``, as is any usage of a capacity of 0.
    """
    if not capacity:
        return '>100%' if used else '0%'
    whole = used * 100 // capacity
    if whole > _MAX_PERCENT:
        return f'>{_MAX_PERCENT}%'
    if whole == 0 and used:
        return '<1%'
    return '>100%' if whole == 100 and used > capacity else f'{whole}%'


def size_text(resources: Mapping[str, int]) -> str:
    """Return amounts by class in the form of a query parameter, such as ``VCPU:4,MEMORY_MB:8192``."""
    return ','.join(f'{name}:{value}' for name, value in resources.items())


def amounts_text(resources: Mapping[str, int]) -> str:
    """Return amounts by class with their units, such as ``VCPU 4, MEMORY_MB 8 GiB``."""
    return ', '.join(f'{name} {amount(name, value)}' for name, value in resources.items())


def moment(time: dt.datetime | None) -> str:
    """Return an aware time to the minute, such as ``2026-11-24 08:10 UTC``."""
    return time.astimezone(dt.UTC).strftime('%Y-%m-%d %H:%M UTC') if time else 'an unknown time'


def ago(seconds: float) -> str:
    """Return a time span in the largest unit that fits, such as ``3 minutes ago``."""
    whole = max(int(seconds), 0)
    for size, unit in ((86400, 'day'), (3600, 'hour'), (60, 'minute')):
        if whole >= size:
            return f'{plural(whole // size, unit)} ago'
    return f'{whole} s ago' if whole else 'just now'


def plural(count: int, noun: str, plural_noun: str | None = None) -> str:
    """Return a number with its noun, in the singular or the plural: ``1 row``, ``2,000 rows``."""
    return f'{count:,} {noun if count == 1 else plural_noun or noun + "s"}'


def _scale(resource_class: str) -> _Scale:
    if resource_class.startswith(_CUSTOM):
        return _PLAIN
    return next((scale for suffix, scale in _SCALES.items() if resource_class.endswith(suffix)), _PLAIN)


def _rounded(scale: _Scale, value: int, digits: int, round_down: bool) -> tuple[str, str]:
    """Return a number with about ``digits`` digits, and the largest unit in which the number is at least 1."""
    if not value:
        return '0', ''
    size = 1
    for unit in scale.units:
        decimals = max(digits - len(str(value // size)), 0) if size > 1 else 0
        # Integers, because a double has too few digits for the sum over a large cloud.
        scaled = (value * 10**decimals + (0 if round_down else size // 2)) // size
        if scaled < scale.factor * 10**decimals or unit == scale.units[-1]:
            break
        size *= scale.factor
    whole, fraction = divmod(scaled, 10**decimals)
    shown = f'{fraction:0{decimals}}'.rstrip('0') if decimals else ''
    return f'{whole:,}.{shown}' if shown else f'{whole:,}', unit
