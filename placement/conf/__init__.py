"""Configuration: every option of the service, and how their values are loaded.

A value comes from the last of these that has one: the default, the configuration file, the environment
(``OS_<GROUP>__<OPTION>``), the command line, the caller of ``load``.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from oslo_config import cfg
from oslo_log import log
from oslo_middleware import cors, http_proxy_to_wsgi
from oslo_policy import opts as policy_opts

from placement import exception
from placement.conf import ignored as ignored_options
from placement.conf.options import GROUPS

#: The directory of the configuration file, unless ``OS_PLACEMENT_CONFIG_DIR`` names another one.
DEFAULT_DIRECTORY = '/etc/placement'
#: Name of the configuration file in that directory.
FILE_NAME = 'placement.conf'
#: Name of the policy file, beside the configuration file.
POLICY_FILE_NAME = 'placement-policy.yaml'

#: The distribution of the reference service, whose Python package is also called ``placement``.
_REFERENCE_SERVICE = 'openstack-placement'

_ENFORCE_SCOPE = cfg.BoolOpt(
    'enforce_scope',
    default=False,
    help='Whether tokens that are scoped to the system or to a domain are rejected with 403. All operations are for'
    ' tokens of a project.',
)

#: api-ref/rules.md#pages-of-other-origins.
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


def load(
    argv: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    config_files: Sequence[str] | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
) -> cfg.ConfigOpts:
    """Make a new, independent set of values with every option registered and checked.

    :param argv: command line arguments of oslo.config, such as ``--config-file``.
    :param environ: environment variables to use; None uses the environment of this process.
    :param config_files: paths of the files to read instead of the default one; empty for none.
    :param overrides: values by group and option, which override all others.
    :raises ConfigurationInvalid: a file cannot be read, ``OS_PLACEMENT_CONFIG_DIR`` does not name a directory, or a
        value is invalid. The message is one line that says which.
    """
    variables = os.environ if environ is None else environ
    directory = pathlib.Path(variables.get('OS_PLACEMENT_CONFIG_DIR') or DEFAULT_DIRECTORY)
    if config_files is None:
        config_files = [] if '--config-file' in argv else _default_files(directory, variables)
    conf = cfg.ConfigOpts()
    _register(conf)
    try:
        conf(
            list(argv),
            project='placement',
            default_config_files=list(config_files),
            default_config_dirs=[],
            use_env=environ is None,
        )
        if conf.config_file:
            directory = pathlib.Path(conf.config_file[0]).absolute().parent
        elif conf.config_dir:
            directory = pathlib.Path(conf.config_dir[0]).absolute()
        conf.set_default('policy_file', str(directory / POLICY_FILE_NAME), group='placement')
        _override(conf, _from_environment(conf, environ or {}), variables)
        _override(conf, overrides or {})
        _check(conf, variables)
    except (cfg.Error, ValueError, OSError) as error:
        raise exception.ConfigurationInvalid(reason=' '.join(str(error).split())) from error
    return conf


def _default_files(directory: pathlib.Path, environ: Mapping[str, str]) -> list[str]:
    """Return the file in the directory of the configuration, if there is one."""
    # The default directory may be missing, because all options can be set in the environment.
    if environ.get('OS_PLACEMENT_CONFIG_DIR') and not directory.is_dir():
        reason = f'OS_PLACEMENT_CONFIG_DIR names {directory}, which is not a directory.'
        raise exception.ConfigurationInvalid(reason=reason)
    return [str(path) for path in [directory / FILE_NAME] if path.exists()]


def set_up_log(conf: cfg.ConfigOpts) -> None:
    """Configure logging as ``conf`` says.

    :raises ConfigurationInvalid: the file of the log or that of [DEFAULT] log_config_append cannot be used.
    """
    try:
        log.setup(conf, 'placement')
    except (log.LogConfigError, OSError) as error:
        raise exception.ConfigurationInvalid(reason=f'The log cannot be written: {error}') from error


def list_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return every option that the service reads, by group, for ``oslo-config-generator --namespace placement``."""
    from keystonemiddleware import opts as keystone_opts

    cors_opts = copy.deepcopy(cors.OPTS)
    cfg.set_defaults(cors_opts, **_CORS_DEFAULTS)
    return [
        *((group, list(opts)) for group, opts in GROUPS),
        ('cors', cors_opts),
        *_library_opts(),
        *keystone_opts.list_auth_token_opts(),
    ]


def ignored(conf: cfg.ConfigOpts) -> list[str]:
    """Return a line for each option that is set in the files of ``conf`` or the environment but does not exist.

    Options of [keystone_authtoken] are not checked, because they depend on the auth plugin.
    """
    ours: list[tuple[str | None, list[cfg.Opt]]] = [(str(group), list(opts)) for group, opts in GROUPS]
    return ignored_options.find(conf, [*ours, ('cors', cors.OPTS), *_library_opts()], os.environ)


def describe(conf: cfg.ConfigOpts) -> str:
    """Return the installed release, and the files that ``conf`` was read from, for the log."""
    files = ', '.join([*conf.config_file, *conf.config_dir]) or 'none, only the environment'
    return f'placement {metadata.version("placement")}, configuration: {files}'


def package_conflict() -> str | None:
    """Return a sentence if openstack-placement, whose files would overwrite ours, is installed as well; else None."""
    try:
        version = metadata.version(_REFERENCE_SERVICE)
    except metadata.PackageNotFoundError:
        return None
    return (
        f'{_REFERENCE_SERVICE} {version} is installed as well. Both are the Python package "placement", and each'
        ' overwrites files of the other: uninstall both, then install the one that is to run.'
    )


@functools.cache
def warn_once(logger: logging.LoggerAdapter[logging.Logger], text: str) -> None:
    """Log a warning about the configuration, once even if a process builds several applications from it."""
    logger.warning(text)


def _library_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    from oslo_log import _options as log_opts

    return [('oslo_middleware', list(http_proxy_to_wsgi.OPTS)), *_policy_opts(), *log_opts.list_opts()]


def _policy_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return the options of oslo.policy, with the one that it has no longer since version 6."""
    found: list[tuple[str | None, list[cfg.Opt]]] = [(group, list(opts)) for group, opts in policy_opts.list_opts()]
    if not any(option.name == _ENFORCE_SCOPE.name for _, opts in found for option in opts):
        found.append(('oslo_policy', [_ENFORCE_SCOPE]))
    return found


def _register(conf: cfg.ConfigOpts) -> None:
    for option_group, opts in GROUPS:
        # A copy, because oslo.config stores registered options in the group, and every ConfigOpts needs its own.
        conf.register_opts(opts, group=copy.deepcopy(option_group))
    for group, opts in _policy_opts():
        conf.register_opts(opts, group=group)
    conf.set_default(_ENFORCE_SCOPE.name, _ENFORCE_SCOPE.default, group='oslo_policy')
    conf.register_opts(http_proxy_to_wsgi.OPTS, group='oslo_middleware')
    conf.register_opts(cors.OPTS, group='cors')
    for name, default in _CORS_DEFAULTS.items():
        conf.set_default(name, default, group='cors')
    log.register_options(conf)
    # Alembic logs a line for each of its plug-ins.
    conf.set_default('default_log_levels', [*log.get_default_log_levels(), 'alembic=WARN'])


def _options(conf: cfg.ConfigOpts) -> Iterator[tuple[str, str]]:
    """Yield group and name of every option."""
    for name in conf:
        # ``conf`` has groups and the options of DEFAULT in one namespace. Telling them apart reads the option's value.
        with _naming('DEFAULT', name, os.environ):
            member = conf[name]
        if isinstance(member, Mapping):
            yield from ((name, option) for option in member)
        else:
            yield 'DEFAULT', name


def _check(conf: cfg.ConfigOpts, environ: Mapping[str, str]) -> None:
    """Read every value, because oslo.config validates a value of a file or the environment only when it is read."""
    for group, name in _options(conf):
        with _naming(group, name, environ):
            _ = conf[name] if group == 'DEFAULT' else conf[group][name]


@contextlib.contextmanager
def _naming(group: str, name: str, environ: Mapping[str, str] | None = None) -> Iterator[None]:
    """Make errors in the block say which option has an invalid value and where it is set.

    :param environ: the variables that override files. oslo.config's own message names the file even if the invalid
        value is that of a variable.
    :raises ValueError: with such a message, which does not contain secrets.
    """
    try:
        yield
    except (cfg.NoSuchOptError, cfg.NoSuchGroupError, cfg.TemplateSubstitutionError) as error:
        # The name after the dollar sign is not repeated, because it may be part of a password.
        reason = 'a dollar sign refers to an option that does not exist; $$ is a dollar sign'
        raise ValueError(f'[{group}] {name}: {reason}') from error
    except ValueError as error:
        # oslo.config says: Value for option NAME from LocationInfo(..., detail='FILE') is not valid: REASON
        before, _, reason = str(error).rpartition(' is not valid: ')
        variable = _variable(group, name)
        if variable in (environ or {}):
            place = f' in the environment ({variable})'
        else:
            file = re.search(r"detail='(.+?)'\)", before)
            place = f' in {file[1]}' if file else ''
        raise ValueError(f'[{group}] {name}{place}: {reason}') from error


def _variable(group: str, name: str) -> str:
    return f'OS_{group.upper()}__{name.upper()}'


def _from_environment(conf: cfg.ConfigOpts, environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the options that ``environ`` sets, by group, with the variable names that oslo.config uses."""
    found: dict[str, dict[str, str]] = {}
    for group, name in _options(conf) if environ else ():
        variable = _variable(group, name)
        if variable in environ:
            found.setdefault(group, {})[name] = environ[variable]
    return found


def _override(
    conf: cfg.ConfigOpts, values: Mapping[str, Mapping[str, Any]], environ: Mapping[str, str] | None = None
) -> None:
    for group, options in values.items():
        for name, value in options.items():
            with _naming(group, name, environ):
                conf.set_override(name, value, group=None if group == 'DEFAULT' else group)
