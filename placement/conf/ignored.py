"""Finds options that are set but do not exist: misspelled ones, and those of other services of this API."""

from __future__ import annotations

import difflib
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping

from oslo_config import cfg

#: A group whose options depend on its auth plugin, so it is not checked; the plugin itself reports missing options.
_KEYSTONE = 'keystone_authtoken'
#: Options that oslo.config itself reads.
_READ_BY_PARSER = {'config_file', 'config_dir', 'config_source'}
_RETRIES = (
    'a request does not wait for an unavailable database, it is answered with 503 and the next one connects again'
)
_NO_PART = 'nothing here depends on it'
_TOKENS = 'only tokens are cached elsewhere: [keystone_authtoken] memcached_servers'
#: Advice on common options of other services of this API.
COUNTERPARTS = {
    ('placement_database', 'slave_connection'): 'all requests use connection; reads are mostly answered from memory',
    ('placement_database', 'max_retries'): _RETRIES,
    ('placement_database', 'retry_interval'): _RETRIES,
    ('placement_database', 'use_db_reconnect'): _RETRIES,
    ('placement_database', 'db_max_retries'): _RETRIES,
    ('placement_database', 'db_retry_interval'): _RETRIES,
    ('placement_database', 'db_inc_retry_interval'): _RETRIES,
    ('placement_database', 'db_max_retry_interval'): _RETRIES,
    ('placement_database', 'mysql_sql_mode'): 'sessions always use TRADITIONAL',
    ('placement_database', 'connection_debug'): 'use [DEFAULT] default_log_levels = sqlalchemy.engine=INFO',
    ('placement_database', 'connection_trace'): _NO_PART,
    ('placement_database', 'sqlite_synchronous'): _NO_PART,
    ('placement_database', 'synchronous_reader'): _NO_PART,
    ('placement_database', 'backend'): _NO_PART,
    ('placement', 'allocation_conflict_retry_count'): 'use [placement_database] max_transaction_retries',
    ('placement', 'allocation_candidates_generation_strategy'): 'use [placement] randomize_allocation_candidates',
    ('api', 'use_forwarded_for'): 'use [oslo_middleware] enable_proxy_headers_parsing',
    ('oslo_concurrency', 'lock_path'): 'the service locks no files',
    ('cache', 'enabled'): _TOKENS,
    ('cache', 'backend'): _TOKENS,
    ('cache', 'memcache_servers'): _TOKENS,
}
_VARIABLE = re.compile(r'OS_(?P<group>[A-Z0-9_]+?)__(?P<name>[A-Z0-9_]+)')


def find(
    conf: cfg.ConfigOpts, known: Iterable[tuple[str | None, list[cfg.Opt]]], environ: Mapping[str, str]
) -> list[str]:
    """Return a line for each option that is set but not known: ``[group] name in FILE`` or ``the variable OS_...``.

    The line ends with what does the same here, or with the option that was probably meant, if there is one.

    :param conf: made by ``placement.conf.load``.
    :param known: every option that exists, by group.
    :param environ: the environment variables.
    """
    names: dict[str, set[str]] = {'DEFAULT': set(_READ_BY_PARSER)}
    for group, options in known:
        for option in options:
            for of_group, name in _names(group or 'DEFAULT', option):
                names.setdefault(of_group, set()).add(name)
    files = {path: _settings(path) for path in _files(conf)}
    # [keystone_authtoken] auth_section is the name of another section for the options of the auth plugin.
    skipped = {_KEYSTONE, *(settings.get((_KEYSTONE, 'auth_section')) for settings in files.values())}
    found = [
        f'[{group}] {name} in {path}{_advice(group, name, names)}'
        for path, settings in files.items()
        for group, name in settings
        if group not in skipped and _plain(name) not in names.get(group, ())
    ]
    for variable in sorted(environ):
        match = _VARIABLE.fullmatch(variable)
        # Variables of groups that are not ours may be meant for other programs.
        own = names.get(match['group'].lower()) if match else None
        if match and own and match['name'].lower() not in own:
            advice = _advice(match['group'].lower(), match['name'].lower(), names)
            found.append(f'the variable {variable}{advice}')
    return found


def _advice(group: str, name: str, names: Mapping[str, set[str]]) -> str:
    """Return the end of the line about an unknown option: a colon and advice, or nothing."""
    if counterpart := COUNTERPARTS.get((group, _plain(name))):
        return f': {counterpart}'
    similar = difflib.get_close_matches(_plain(name), sorted(names.get(group, ())), 1)
    return f': did you mean {similar[0]}?' if similar else ''


def _names(group: str, option: cfg.Opt) -> Iterator[tuple[str, str]]:
    """Yield the groups and names under which an option can be set, deprecated ones included."""
    yield group, _plain(option.dest)
    yield group, _plain(option.name)
    for former in option.deprecated_opts:
        yield former.group or group, _plain(former.name or option.name)


def _files(conf: cfg.ConfigOpts) -> list[str]:
    """Return the files that ``conf`` was read from."""
    inside = (sorted(pathlib.Path(directory).glob('*.conf')) for directory in conf.config_dir)
    return [*conf.config_file, *(str(path) for paths in inside for path in paths)]


def _settings(path: str) -> dict[tuple[str, str], str]:
    """Return the last value of each option that a file sets, by group and name."""
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(path, sections).parse()
    return {(group, name): values[-1] for group, options in sections.items() for name, values in options.items()}


def _plain(name: str) -> str:
    return name.replace('-', '_')
