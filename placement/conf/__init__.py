"""Configuration: every option of the service, and how a set of values comes together.

Values come, weakest first, from the defaults, the configuration file, the environment (``OS_<GROUP>__<OPTION>``),
the command line, and the caller of ``load``.
"""

from __future__ import annotations

import contextlib
import copy
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oslo_config import cfg
from oslo_log import log
from oslo_middleware import cors, http_proxy_to_wsgi
from oslo_policy import opts as policy_opts

from placement import exception
from placement.conf import api, healthcheck, metrics, placement, placement_database, server
from placement.conf import ignored as ignored_options

#: Where the configuration file is looked for when ``OS_PLACEMENT_CONFIG_DIR`` does not say.
DEFAULT_DIRECTORY = '/etc/placement'
#: Name of the configuration file in that directory.
FILE_NAME = 'placement.conf'
#: Name of the policy file, beside the configuration file.
POLICY_FILE_NAME = 'placement-policy.yaml'

_MODULES = (api, healthcheck, metrics, placement, placement_database, server)

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
    :param environ: what to take for the environment; None is the environment of this process.
    :param config_files: paths of the files to read instead of the default one; empty for none.
    :param overrides: group to option to value; these win over everything else.
    :raises ConfigurationInvalid: a file cannot be read, the directory of the configuration does not exist, or a value
        is not of its option's type. The message is one line that says which.
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
    """The file in the directory of the configuration, if there is one."""
    # The usual directory may be missing: the environment may say everything.
    if environ.get('OS_PLACEMENT_CONFIG_DIR') and not directory.is_dir():
        reason = f'OS_PLACEMENT_CONFIG_DIR names {directory}, which is not a directory.'
        raise exception.ConfigurationInvalid(reason=reason)
    return [str(path) for path in [directory / FILE_NAME] if path.exists()]


def list_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Every option that the service reads, by group, for ``oslo-config-generator --namespace placement``."""
    from keystonemiddleware import opts as keystone_opts

    cors_opts = copy.deepcopy(cors.OPTS)
    cfg.set_defaults(cors_opts, **_CORS_DEFAULTS)
    return [
        *((module.GROUP, list(module.OPTS)) for module in _MODULES),
        ('cors', cors_opts),
        *_library_opts(),
        *keystone_opts.list_auth_token_opts(),
    ]


def ignored(conf: cfg.ConfigOpts) -> list[str]:
    """Options that the files of ``conf`` or the environment set and nobody reads, each with the place that sets it.

    Those of [keystone_authtoken] are left to keystonemiddleware.
    """
    ours = [(str(module.GROUP), module.OPTS) for module in _MODULES]
    return ignored_options.find(conf, [*ours, ('cors', cors.OPTS), *_library_opts()], os.environ)


def _library_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    return [('oslo_middleware', list(http_proxy_to_wsgi.OPTS)), *policy_opts.list_opts(), *_log_opts()]


def _log_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    from oslo_log import _options

    return _options.list_opts()


def _register(conf: cfg.ConfigOpts) -> None:
    for module in _MODULES:
        # oslo.config keeps the options and their values inside the group, also when several ConfigOpts share it.
        conf.register_opts(module.OPTS, group=copy.deepcopy(module.GROUP))
    for group, opts in policy_opts.list_opts():
        conf.register_opts(opts, group=group)
    conf.register_opts(http_proxy_to_wsgi.OPTS, group='oslo_middleware')
    conf.register_opts(cors.OPTS, group='cors')
    for name, default in _CORS_DEFAULTS.items():
        conf.set_default(name, default, group='cors')
    log.register_options(conf)
    # Alembic reports each of its plug-ins.
    conf.set_default('default_log_levels', [*log.get_default_log_levels(), 'alembic=WARN'])


def _options(conf: cfg.ConfigOpts) -> Iterator[tuple[str, str]]:
    """Group and name of every option."""
    for name in conf:
        # Groups and options without a group share a namespace, and telling which is which reads the option.
        with _naming('DEFAULT', name, os.environ):
            member = conf[name]
        if isinstance(member, Mapping):
            yield from ((name, option) for option in member)
        else:
            yield 'DEFAULT', name


def _check(conf: cfg.ConfigOpts, environ: Mapping[str, str]) -> None:
    """Read every value, which is when oslo.config looks at what environment and files say."""
    for group, name in _options(conf):
        with _naming(group, name, environ):
            _ = conf[name] if group == 'DEFAULT' else conf[group][name]


@contextlib.contextmanager
def _naming(group: str, name: str, environ: Mapping[str, str] | None = None) -> Iterator[None]:
    """Say which option has a bad value and where it is set.

    :param environ: where oslo.config finds what wins over files; it blames a file that sets the same option.
    """
    try:
        yield
    except (cfg.NoSuchOptError, cfg.NoSuchGroupError, cfg.TemplateSubstitutionError) as error:
        # What stands behind the dollar sign is not repeated: it may be a part of a password.
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
    """What ``environ`` says, named as oslo.config names the variables of the process's own environment."""
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
