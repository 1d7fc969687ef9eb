"""Enforces policy: the default rules, and the rules of the operator's policy file, which is reloaded when it changes.

oslo.policy would reload the file into rules that other threads are evaluating. Here a new ``oslo_policy.Enforcer``
loads a changed file, and replaces the old one only if the file is valid.
"""

from __future__ import annotations

import copy
import difflib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from oslo_config import cfg
from oslo_log import log
from oslo_policy import policy as oslo_policy

from placement import conf as configuration
from placement import exception

LOG = log.getLogger(__name__)

#: Seconds between two lines of the log about a policy file that is missing.
_REPORT_SECONDS = 60.0

#: Path, modification time in nanoseconds, size and inode of each policy file. They change when a file changes.
_FileStates = tuple[tuple[str, int, int, int], ...]


class _LoadedPolicy(NamedTuple):
    """The rules in force. ``roles`` maps each rule that only requires one of several roles to these roles.

    The roles are in lower case. oslo.policy is slow even for such simple rules.
    """

    rules: oslo_policy.Enforcer
    roles: Mapping[str, frozenset[str]]


class Enforcer:
    """Decides whether policy allows a caller to perform an operation. Each application has one.

    :param conf: a ``ConfigOpts`` with the groups ``placement`` and ``oslo_policy``.
    :param defaults: the default rules.
    :raises ConfigurationInvalid: the policy file is invalid, or is set in the configuration but does not exist.
    """

    def __init__(self, conf: cfg.ConfigOpts, defaults: Sequence[oslo_policy.RuleDefault]) -> None:
        self._conf = conf
        self._defaults = defaults
        enforced = defaults if conf.oslo_policy.enforce_scope else ()
        self._scopes = {rule.name: frozenset(rule.scope_types or ()) for rule in enforced}
        self._file = _policy_file(conf)
        self._directories = [os.path.join(os.path.dirname(self._file), name) for name in conf.oslo_policy.policy_dirs]
        self._lock = threading.Lock()
        self._loaded_states = self._file_states()
        self._sources = self._existing_sources()
        self._in_force = self._load()
        self._reported_at = -_REPORT_SECONDS

    @property
    def rules(self) -> oslo_policy.Enforcer:
        """The rules in force now. This enforcer does not see later changes of the file."""
        return self._in_force.rules

    def allows(self, rule: str, target: Mapping[str, Any], credentials: Any) -> bool:
        """Return whether a rule allows the operation. Reload the policy file first if it has changed.

        :param rule: the name of a declared rule.
        :param target: attributes of the object of the operation, such as ``project_id``.
        :param credentials: an ``oslo_context`` request context.
        """
        self._reload_if_changed()
        scope = 'system' if credentials.system_scope else 'domain' if credentials.domain_id else 'project'
        if rule in self._scopes and scope not in self._scopes[rule]:
            return False
        in_force = self._in_force
        roles = in_force.roles.get(rule)
        if roles is not None:
            return not roles.isdisjoint([role.lower() for role in credentials.roles])
        return bool(in_force.rules.authorize(rule, dict(target), credentials))

    def _reload_if_changed(self) -> None:
        states = self._file_states()
        if states == self._loaded_states:
            return
        with self._lock:
            if states == self._loaded_states:
                return
            # ``_loaded_states`` stays the same, so that the next request looks again.
            if self._is_source_missing():
                return
            try:
                in_force = self._load()
                # If the file was moved away while oslo.policy read it, oslo.policy has used the defaults.
                if self._file_states() != states:
                    return
                self._in_force, self._sources = in_force, self._existing_sources()
                LOG.info('The policy file %s has changed; its rules are in force now.', self._file)
            except exception.ConfigurationInvalid as error:
                LOG.error('%s The previous rules stay in force.', error)
            self._loaded_states = states

    def _existing_sources(self) -> list[str]:
        """Return the paths of the policy file and of the directories beside it that exist."""
        return [path for path in (self._file, *self._directories) if os.path.exists(path)]

    def _is_source_missing(self) -> bool:
        """Return whether a file or directory of the rules in force no longer exists. Log this once a minute."""
        missing = next((path for path in self._sources if not os.path.exists(path)), None)
        now = time.monotonic()
        if missing is not None and now - self._reported_at >= _REPORT_SECONDS:
            self._reported_at = now
            LOG.error('The policy file %s no longer exists. The previous rules stay in force until a reload.', missing)
        return missing is not None

    def _load(self) -> _LoadedPolicy:
        enforcer = oslo_policy.Enforcer(self._conf, policy_file=self._file)
        enforcer.suppress_deprecation_warnings = True
        for rule in self._defaults:
            # ``allows`` checks the scope, unless the option enforce_scope is off. Since release 6, oslo.policy lacks
            # this option and always checks the scope, so rules are registered without scope types.
            unscoped = copy.copy(rule)
            unscoped.scope_types = None
            enforcer.register_default(unscoped)
        try:
            enforcer.load_rules()
            self._check(enforcer)
            enforcer.check_rules(raise_on_violation=True)
        except exception.ConfigurationInvalid:
            raise
        except Exception as error:  # oslo.policy raises many kinds of exceptions for malformed files.
            raise self._invalid(' '.join(str(error).split())) from error
        # This class reloads the file, not oslo.policy.
        enforcer.use_conf = False
        rules = ((name, _roles_of(enforcer.rules, enforcer.rules.get(name))) for name in enforcer.registered_rules)
        return _LoadedPolicy(enforcer, {name: roles for name, roles in rules if roles is not None})

    def _check(self, enforcer: oslo_policy.Enforcer) -> None:
        """Reject invalid rules in the file, and warn of rules that no operation uses.

        :raises ConfigurationInvalid: a rule cannot be parsed, or refers to a rule that does not exist.
        """
        referred: set[str] = set()
        for name, rule in enforcer.file_rules.items():
            # oslo.policy replaces a check that it cannot parse by "!", which always denies.
            if '!' in str(rule.check) and '!' not in rule.check_str:
                raise self._invalid(f'rule "{name}" cannot be parsed: {rule.check_str}')
            for other in _references(rule.check):
                if other not in enforcer.rules:
                    hint = _hint(other, enforcer.rules)
                    raise self._invalid(f'rule "{name}" refers to "rule:{other}", which does not exist{hint}')
                referred.add(other)
        referred_in_force = {other for rule in enforcer.rules.values() for other in _references(rule)}
        operations = {rule.name for rule in self._defaults if isinstance(rule, oslo_policy.DocumentedRuleDefault)}
        for name in enforcer.file_rules:
            registered = enforcer.registered_rules.get(name)
            if registered is None and name not in referred and name != self._conf.oslo_policy.policy_default_rule:
                what = f'which no operation of this release uses{_hint(name, enforcer.registered_rules)}'
                configuration.warn_once(LOG, f'The policy file {self._file} sets the rule "{name}", {what}.')
            elif registered is not None and not (name in referred_in_force or name in operations):
                configuration.warn_once(
                    LOG, f'The policy file {self._file} sets the rule "{name}", which no other rule refers to.'
                )

    def _invalid(self, reason: str) -> exception.ConfigurationInvalid:
        return exception.ConfigurationInvalid(reason=f'The policy file {self._file} is invalid: {reason}.')

    def _file_states(self) -> _FileStates:
        """Return the states of the policy file and of the files in ``policy_dirs``, the directories beside it."""
        paths = [self._file]
        for directory in self._directories:
            if os.path.isdir(directory):
                paths += [entry.path for entry in os.scandir(directory)]
        states = []
        for path in paths:
            try:
                status = os.stat(path)
            except OSError:
                continue
            states.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(states)


def _policy_file(conf: cfg.ConfigOpts) -> str:
    """Return the absolute path of the policy file, from [oslo_policy] if set, otherwise from [placement].

    :raises ConfigurationInvalid: the option is set, but the file does not exist.
    """
    for group in ('oslo_policy', 'placement'):
        location = conf.get_location('policy_file', group)
        if location is None or location.location in (cfg.Locations.opt_default, cfg.Locations.set_default):
            continue
        name: str = conf[group].policy_file
        path = conf.find_file(name)
        if path is None or not os.path.isfile(path):
            raise exception.ConfigurationInvalid(
                reason=f'The policy file {name}, named by [{group}] policy_file, does not exist.'
            )
        return str(path)
    return str(conf.placement.policy_file)


def _references(check: Any) -> Iterator[str]:
    """Yield the names of the rules that a check refers to."""
    if getattr(check, 'kind', None) == 'rule':
        yield check.match
    # The operands of ``and`` and ``or``, or the operand of ``not``.
    for operand in getattr(check, 'rules', None) or [getattr(check, 'rule', None)]:
        if operand is not None:
            yield from _references(operand)


def _hint(name: str, names: Iterable[str]) -> str:
    """Return the end of a sentence that suggests the most similar known name; empty if none is similar."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f' (did you mean "{close[0]}"?)' if close else ''


def _roles_of(rules: Mapping[str, Any], check: Any) -> frozenset[str] | None:
    # This ends, because files with rules that refer to themselves were rejected before.
    while getattr(check, 'kind', None) == 'rule':
        check = rules.get(check.match)
    if isinstance(check, oslo_policy.OrCheck):
        parts = [_roles_of(rules, part) for part in check.rules]
        return None if None in parts else frozenset().union(*(part for part in parts if part))
    # An attribute of the target replaces %(name)s, so such a check does not have a fixed role.
    if getattr(check, 'kind', None) != 'role' or '%' in check.match:
        return None
    return frozenset({str(check.match).lower()})
