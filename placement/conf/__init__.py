"""Configuration: all options of the service, and how their values are loaded.

Later sources override earlier ones: the default, the configuration files in their order, the environment
(``OS_<GROUP>__<OPTION>``), the command line, the caller of ``load``.
"""

from __future__ import annotations

import copy
import functools
import glob
import importlib.util
import logging
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from oslo_config import cfg
from oslo_log import log
from oslo_policy import opts as policy_opts

from placement import exception, log_format, release
from placement.conf.options import GROUPS

LOG = log.getLogger(__name__)

#: A group, None for [DEFAULT], and its options.
_Group = tuple[str | cfg.OptGroup | None, Sequence[cfg.Opt]]

#: The directory of the configuration file, unless ``OS_PLACEMENT_CONFIG_DIR`` names another one.
DEFAULT_DIRECTORY = '/etc/placement'
#: Name of the configuration file in the directory.
FILE_NAME = 'placement.conf'
#: Name of the directory beside it, whose ``*.conf`` files are read after it.
DIRECTORY_NAME = 'placement.conf.d'

#: The distribution of the reference service, whose Python package is also called ``placement``.
_REFERENCE_SERVICE = 'openstack-placement'

_ENFORCE_SCOPE = cfg.BoolOpt(
    'enforce_scope',
    default=True,
    help='Whether tokens that are scoped to the system or to a domain are rejected with 403. All operations are for'
    ' tokens of a project.',
)

#: The rules are in api-ref/rules.md#pages-of-other-origins.
_CORS_DEFAULTS: dict[str, Any] = {
    'allow_methods': ['GET', 'PUT', 'POST', 'DELETE', 'PATCH'],
    'allow_headers': [
        'X-Auth-Token',
        'X-Openstack-Request-Id',
        'X-Identity-Status',
        'X-Roles',
        'X-Service-Catalog',
        'X-User-Id',
        'X-Tenant-Id',
        'OpenStack-API-Version',
    ],
    'expose_headers': [
        'X-Auth-Token',
        'X-Openstack-Request-Id',
        'X-Subject-Token',
        'X-Service-Token',
        'OpenStack-API-Version',
    ],
}

#: A reference to another option in a value, as oslo.config finds it.
_REFERENCE = re.compile(r'\$\{?([_a-z][._a-z0-9]*)')


def load(
    argv: Sequence[str] = (),
    config_files: Sequence[str] | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
) -> cfg.ConfigOpts:
    """Make a new, independent configuration, with all options registered and checked.

    :param argv: command line arguments of oslo.config, such as ``--config-file``.
    :param config_files: paths of the files to read instead of the default files; an empty list for no file.
    :param overrides: values by group and option, which override all other values.
    :raises ConfigurationInvalid: a file cannot be read, ``OS_PLACEMENT_CONFIG_DIR`` is not a directory, or a value is
        invalid. The message has one line.
    """
    conf = cfg.ConfigOpts()
    _register(conf)
    try:
        default_files, default_directories = _find_files(argv) if config_files is None else (config_files, [])
        conf(
            list(argv),
            project='placement',
            default_config_files=list(default_files),
            default_config_dirs=default_directories,
        )
        for name in _conf_directories(conf):
            # If it cannot be read, this raises an error, while oslo.config finds no file in it.
            os.listdir(name)
        _register_references(conf)
        # Packages are imported only if one of their options is set.
        if is_group_set(conf, 'profiler', overrides or {}):
            _register_groups(conf, _profiler_options())
        if is_group_set(conf, ('cors', 'oslo_middleware'), overrides or {}):
            register_middleware(conf)
        for group, values in (overrides or {}).items():
            for name, value in values.items():
                conf.set_override(name, value, group=None if group == 'DEFAULT' else group)
        for group, option in registered_options(conf):
            _read(conf, group, option)
    except cfg.ConfigFilesPermissionDeniedError as error:
        reason = f'Permission denied: {", ".join(error.config_files)} cannot be read.'
        raise exception.ConfigurationInvalid(reason=reason) from error
    except (cfg.Error, ValueError, OSError) as error:
        raise exception.ConfigurationInvalid(reason=' '.join(str(error).split())) from error
    return conf


def _find_files(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the configuration file in the default directory, if it exists, and the directory for more files beside it.

    :raises ConfigurationInvalid: ``OS_PLACEMENT_CONFIG_DIR`` is not a directory.
    """
    named = os.environ.get('OS_PLACEMENT_CONFIG_DIR')
    directory = pathlib.Path(named or DEFAULT_DIRECTORY)
    # The default directory may be missing, because all options can be set in the environment.
    if '--config-file' not in argv and named and not directory.is_dir():
        reason = f'OS_PLACEMENT_CONFIG_DIR names {directory}, which is not a directory.'
        raise exception.ConfigurationInvalid(reason=reason)
    file = directory / FILE_NAME
    # oslo.config skips the other directory if it does not exist. With --config-dir, only that directory is read.
    return [str(file)] if file.exists() else [], [str(directory / DIRECTORY_NAME)]


def set_up_log(conf: cfg.ConfigOpts) -> None:
    """Configure logging from ``conf``.

    :raises ConfigurationInvalid: the log file or the file of [DEFAULT] log_config_append cannot be used.
    """
    has_no_journal = conf.use_journal and importlib.util.find_spec('systemd') is None
    if has_no_journal:
        # Under systemd, standard error is the journal.
        conf.set_override('use_journal', False)
        conf.set_override('use_stderr', True)
    try:
        log.setup(conf, 'placement')
        log_format.escape_lines(conf)
    except (log.LogConfigError, OSError) as error:
        raise exception.ConfigurationInvalid(reason=f'The log cannot be written: {error}') from error
    if has_no_journal:
        LOG.warning('[DEFAULT] use_journal needs the package systemd-python; the log is on standard error instead')


def list_opts() -> list[_Group]:
    """Return every option that the service reads, by group, for ``oslo-config-generator --namespace placement``."""
    from keystonemiddleware import opts as keystone_opts

    ours = copy.deepcopy([*_registered(), *_middleware_options(), *_profiler_options()])
    return [*ours, *keystone_opts.list_auth_token_opts()]


def is_group_set(conf: cfg.ConfigOpts, prefix: str | tuple[str, ...], overrides: Iterable[str] = ()) -> bool:
    """Return whether a file or the environment sets an option of a group whose name begins with a prefix.

    :param overrides: groups of options that the caller of ``load`` sets.
    """
    groups = [group for path in files(conf) for group, _name in file_settings(path)]
    groups += [variable.removeprefix('OS_') for variable in os.environ if variable.startswith('OS_')]
    return any(group.lower().startswith(prefix) for group in [*groups, *overrides])


def files(conf: cfg.ConfigOpts) -> list[str]:
    """Return the files that ``conf`` was read from, in the order of oslo.config: later ones override earlier ones."""
    # As oslo.config, glob skips hidden files.
    patterns = [os.path.join(directory, '*.conf') for directory in _conf_directories(conf)]
    in_directories = [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    if conf.config_dirs or conf.config_file == conf.default_config_files:
        return [*conf.config_file, *in_directories]
    # The default directory is read before the files of the command line.
    return [*in_directories, *conf.config_file]


def _conf_directories(conf: cfg.ConfigOpts) -> list[str]:
    """Return the directories whose ``*.conf`` files are read: those of ``--config-dir`` or the default one."""
    return [*map(os.path.expanduser, conf.config_dirs)] or [*filter(os.path.isdir, conf.default_config_dirs)]


def directories(conf: cfg.ConfigOpts) -> list[str]:
    """Return the directories in which other files of the configuration are looked for, as oslo.config's ``find_file``.

    They are those of ``--config-dir``, those of the configuration files, and the default directory.
    """
    of_files = [os.path.dirname(path) for path in reversed(conf.config_file)]
    default = [os.path.dirname(directory) for directory in conf.default_config_dirs]
    return list(dict.fromkeys(map(os.path.abspath, [*conf.config_dirs, *of_files, *default])))


def describe(conf: cfg.ConfigOpts) -> str:
    """Return the installed release, and the files that ``conf`` was read from, for the log."""
    read = ', '.join(files(conf)) or 'none, only the environment'
    return f'placement {release()}, configuration: {read}'


def package_conflict() -> str | None:
    """Return a sentence if openstack-placement is also installed, because its files overwrite ours; otherwise None."""
    try:
        version = metadata.version(_REFERENCE_SERVICE)
    except metadata.PackageNotFoundError:
        return None
    return (
        f'{_REFERENCE_SERVICE} {version} is installed as well. Both are the Python package "placement", and each'
        ' overwrites files of the other: uninstall both, then install the one that is to run.'
    )


@functools.cache
def log_once(logger: logging.LoggerAdapter[logging.Logger], level: int, text: str) -> None:
    """Log a line about the configuration, only once even if a process builds several applications from it."""
    logger.log(level, text)


def register_middleware(conf: cfg.ConfigOpts) -> None:
    """Register the options of the middleware, unless ``load`` did: it does only if one of them is set."""
    _register_groups(conf, _middleware_options())


def _registered() -> list[_Group]:
    """Return the options that ``load`` always registers, by group."""
    # The options have no other name. It was read in oslo.log 7.1.0 to 8.3.2.
    from oslo_log import _options as log_opts

    policy = [(group, list(opts)) for group, opts in policy_opts.list_opts()]
    if not any(option.name == _ENFORCE_SCOPE.name for _, opts in policy for option in opts):
        # Since release 6, oslo.policy does not have this option.
        policy.append(('oslo_policy', [_ENFORCE_SCOPE]))
    return [*GROUPS, *policy, *log_opts.list_opts()]


def _middleware_options() -> Sequence[_Group]:
    """Return the options of oslo.middleware that the service reads, by group."""
    # This is not at the top: it imports WebOb and Jinja, a tenth of the time in which a command starts.
    from oslo_middleware import cors, http_proxy_to_wsgi

    cors.set_defaults(**_CORS_DEFAULTS)
    # The name OPTS came with oslo.middleware 8.0; until 2025.2 is the oldest supported release.
    return [('cors', cors.CORS_OPTS), ('oslo_middleware', http_proxy_to_wsgi.OPTS)]


def _profiler_options() -> Sequence[_Group]:
    """Return the options of osprofiler, by group; none if it is not installed."""
    try:
        from osprofiler import opts
    except ImportError:
        return []
    return opts.list_opts()


def _register(conf: cfg.ConfigOpts) -> None:
    # This also registers options of the command line.
    log.register_options(conf)
    # oslo.policy registers its options again later. It would raise DuplicateOptError for a copy of a deprecated option
    # whose value was read meanwhile.
    policy_opts.set_defaults(conf)
    _register_groups(conf, _registered())
    # Alembic logs a line for each of its plug-ins.
    conf.set_default('default_log_levels', [*log.get_default_log_levels(), 'alembic=WARN'])


def _register_groups(conf: cfg.ConfigOpts, groups: Iterable[_Group]) -> None:
    for option_group, opts in groups:
        # Each ConfigOpts needs its own copy of the group, because oslo.config stores registered options in it.
        conf.register_opts(opts, group=copy.deepcopy(option_group))


def registered_options(conf: cfg.ConfigOpts) -> Iterator[tuple[str, cfg.Opt]]:
    """Yield the group's name and the option, for each option that is registered."""
    groups = _registered()
    if 'profiler' in conf:
        groups += _profiler_options()
    if 'cors' in conf:
        groups += _middleware_options()
    for group, options in groups:
        yield from ((str(group or 'DEFAULT'), option) for option in options)


def _read(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> None:
    """Read an option. Only reading makes oslo.config validate values from files and the environment.

    :raises ValueError: the value is invalid. The message says where it is set, without secrets.
    """
    name = option.dest
    variable = f'OS_{group}__{name}'.upper()
    try:
        _ = conf[name] if group == 'DEFAULT' else conf[group][name]
    except (cfg.NoSuchOptError, cfg.NoSuchGroupError, cfg.TemplateSubstitutionError) as error:
        # The reason does not contain the name after the dollar sign, because that may be part of a password.
        reason = 'a dollar sign refers to an option that does not exist; write a dollar sign as $$'
        raise ValueError(f'[{group}] {name}: {reason}') from error
    except ValueError as error:
        # oslo.config names the file even if the invalid value comes from a variable that overrides it.
        keys = {(group, name)} | {(old.group or group, plain(old.name or name)) for old in option.deprecated_opts}
        places = [
            path
            for path in files(conf)
            if not keys.isdisjoint((of_group, plain(key)) for of_group, key in file_settings(path))
        ]
        if variable in os.environ:
            places.append(f'the environment ({variable})')
        place = f' in {places[-1]}' if places else ''
        # oslo.config says: Value for option NAME from LOCATION is not valid: REASON
        reason = str(error).rpartition(' is not valid: ')[2]
        raise ValueError(f'[{group}] {name}{place}: {reason}') from error


def _register_references(conf: cfg.ConfigOpts) -> None:
    """Register the unknown options of [DEFAULT] that values in the files refer to, such as ``$my_ip``."""
    settings = [setting for path in files(conf) for setting in file_settings(path).items()]
    references = {name for _key, value in settings for name in _REFERENCE.findall(value)}
    for (group, key), _value in settings:
        name = plain(key)
        if group == 'DEFAULT' and name in references and name not in conf:
            conf.register_opt(cfg.StrOpt(name))


def file_settings(path: str) -> dict[tuple[str, str], str]:
    """Return the last value of each option that a file sets, by group and name."""
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(path, sections).parse()
    return {(group, name): values[-1] for group, options in sections.items() for name, values in options.items()}


def plain(name: str) -> str:
    """Return the name of an option as in ``conf``: files may have dashes."""
    return name.replace('-', '_')
