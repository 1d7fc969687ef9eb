"""Finds options that are set but do not exist: misspelled ones, and those of other implementations of this API."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping

from oslo_config import cfg

#: A group whose options depend on its auth plugin, so it is not checked; the plugin itself reports missing options.
_KEYSTONE = 'keystone_authtoken'
#: Options that oslo.config itself reads.
_READ_BY_PARSER = {'config_file', 'config_dir', 'config_source'}
_VARIABLE = re.compile(r'OS_(?P<group>[A-Z0-9_]+?)__(?P<name>[A-Z0-9_]+)')


def find(
    conf: cfg.ConfigOpts, known: Iterable[tuple[str | None, list[cfg.Opt]]], environ: Mapping[str, str]
) -> list[str]:
    """Return the options that are set but not known, as ``[group] name in FILE`` or ``the variable OS_...``.

    :param conf: made by ``placement.conf.load``.
    :param known: every option that exists, by group.
    :param environ: the environment variables.
    """
    names: dict[str, set[str]] = {'DEFAULT': set(_READ_BY_PARSER)}
    for group, options in known:
        for option in options:
            for of_group, name in _names(group or 'DEFAULT', option):
                names.setdefault(of_group, set()).add(name)
    skipped = {_KEYSTONE, _keystone_section(conf)}
    found = [
        f'[{group}] {name} in {path}'
        for path in _files(conf)
        for group, name in _settings(path)
        if group not in skipped and _plain(name) not in names.get(group, ())
    ]
    for variable in sorted(environ):
        match = _VARIABLE.fullmatch(variable)
        # Variables of groups that are not ours may be meant for other programs.
        own = names.get(match['group'].lower()) if match else None
        if match and own and match['name'].lower() not in own:
            found.append(f'the variable {variable}')
    return found


def _names(group: str, option: cfg.Opt) -> Iterator[tuple[str, str]]:
    """The groups and names under which an option can be set, deprecated ones included."""
    yield group, _plain(option.dest)
    yield group, _plain(option.name)
    for former in option.deprecated_opts:
        yield former.group or group, _plain(former.name or option.name)


def _keystone_section(conf: cfg.ConfigOpts) -> str | None:
    """The value of [keystone_authtoken] auth_section: another section for the options of the auth plugin."""
    for path in _files(conf):
        for group, name in (settings := _settings(path)):
            if (group, name) == (_KEYSTONE, 'auth_section'):
                return settings[group, name]
    return None


def _files(conf: cfg.ConfigOpts) -> list[str]:
    """The files that ``conf`` was read from."""
    inside = (sorted(pathlib.Path(directory).glob('*.conf')) for directory in conf.config_dir)
    return [*conf.config_file, *(str(path) for paths in inside for path in paths)]


def _settings(path: str) -> dict[tuple[str, str], str]:
    """The last value of each option that a file sets, by group and name."""
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(path, sections).parse()
    return {(group, name): values[-1] for group, options in sections.items() for name, values in options.items()}


def _plain(name: str) -> str:
    return name.replace('-', '_')
