"""Options that are set but that the service does not have, with advice on what there is instead."""

from __future__ import annotations

import difflib
import os

from oslo_config import cfg

from placement import conf as configuration

_STRATEGY = 'as with breadth-first, each host that has candidates provides one before any provides a second'
_NO_PART = 'nothing here depends on it'
#: Advice on common options of other services of this API: the group, the options, and what there is instead of them.
_ADVICE = (
    (
        'placement_database',
        'slave_connection',
        'all requests use [placement_database] connection; most reads come from memory',
    ),
    (
        'placement_database',
        (
            'max_retries retry_interval use_db_reconnect'
            ' db_max_retries db_retry_interval db_inc_retry_interval db_max_retry_interval'
        ),
        'a request does not wait for an unavailable database: it gets 503, and the next request connects again',
    ),
    ('placement_database', 'mysql_sql_mode', 'sessions always use TRADITIONAL'),
    ('placement_database', 'mysql_enable_ndb', 'tables always use InnoDB'),
    ('placement_database', 'connection_debug', 'use [DEFAULT] default_log_levels = sqlalchemy.engine=INFO'),
    ('placement_database', 'connection_trace sqlite_synchronous synchronous_reader backend', _NO_PART),
    ('placement_database', 'sqlite_busy_timeout', 'use connection = sqlite:////file?timeout=SECONDS'),
    ('placement', 'allocation_conflict_retry_count', 'use [placement_database] max_transaction_retries'),
    ('placement', 'allocation_candidates_generation_strategy', _STRATEGY),
    ('workarounds', 'optimize_for_wide_provider_trees', _STRATEGY),
    ('DEFAULT', 'log_options', 'values of options are not logged'),
    ('DEFAULT', 'verbose', 'the log has lines of level INFO, and with [DEFAULT] debug all lines'),
    ('DEFAULT', 'tempdir bindir', _NO_PART),
    ('oslo_middleware', 'max_request_body_size', 'use [api] max_request_body_size'),
    ('api', 'use_forwarded_for', 'use [oslo_middleware] enable_proxy_headers_parsing'),
    ('oslo_concurrency', 'lock_path', 'the service locks no files'),
    (
        'cache',
        'enabled backend memcache_servers',
        'only validated tokens are cached outside of the processes: [keystone_authtoken] memcached_servers',
    ),
)
COUNTERPARTS = {(group, name): advice for group, names, advice in _ADVICE for name in names.split()}


def list_unknown(conf: cfg.ConfigOpts) -> list[str]:
    """Return a line for each option that is set but unknown: ``[group] name in FILE`` or ``the variable OS_...``.

    The line ends with the corresponding setting of this service or the most similar option, if there is one. Options of
    [keystone_authtoken] are not checked: they depend on the auth plugin, which itself reports missing options.
    """
    # oslo.config itself reads these three.
    names = {'DEFAULT': {'config_file', 'config_dir', 'config_source'}}
    for group, option in configuration.registered_options(conf):
        names.setdefault(group, set()).update(configuration.plain(name) for name in (option.dest, option.name))
        for former in option.deprecated_opts:
            names.setdefault(former.group or group, set()).add(configuration.plain(former.name or option.name))

    def line(place: str, group: str, name: str) -> str:
        # A name that is less similar is rather an option of another service than a typing error.
        similar = difflib.get_close_matches(name, sorted(names.get(group, ())), 1, 0.8)
        advice = COUNTERPARTS.get((group, name)) or ''.join(f'did you mean {option}?' for option in similar)
        if group.startswith('profiler') and group not in names:
            advice = 'it needs the package osprofiler, which the extra "profiler" installs'
        return f'{place}: {advice}' if advice else place

    settings_by_file = {path: configuration.file_settings(path) for path in configuration.files(conf)}
    # [keystone_authtoken] auth_section may name another section for the options of the auth plugin.
    section = 'keystone_authtoken'
    skipped = {section, *(settings.get((section, 'auth_section')) for settings in settings_by_file.values())}
    lines = [
        line(f'[{group}] {name} in {path}', group, configuration.plain(name))
        for path, settings in settings_by_file.items()
        for group, name in settings
        if group not in skipped
        and configuration.plain(name) not in names.get(group, ())
        # Other values may refer to an option that has no other meaning here.
        and not (group == 'DEFAULT' and configuration.plain(name) in conf)
    ]
    for variable in sorted(os.environ):
        group, _, name = variable.removeprefix('OS_').lower().partition('__')
        # Variables of groups that are not ours may be meant for other programs.
        if variable.startswith('OS_') and group in names and name not in names[group]:
            lines.append(line(f'the variable {variable}', group, name))
    return lines
