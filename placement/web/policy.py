"""Enforces policy: the default rules, and the rules of the operator's policy files, which are read again after changes.

oslo.policy would reload a file into rules that other threads are evaluating, and while the file is being written. Here
a file is read only if it has not changed for a second. Then a new ``oslo_policy.Enforcer`` gets its rules, and replaces
the old one only if all of them are valid.
"""

from __future__ import annotations

import copy
import difflib
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, cast

from oslo_config import cfg
from oslo_log import log
from oslo_policy import policy as oslo_policy

from placement import conf as configuration
from placement import exception
from placement.web.policy_files import (
    FILE_NAME,
    FileState,
    are_settled,
    file_states,
    find_files,
    main_files,
    named_file,
    read_files,
)

LOG = log.getLogger(__name__)

#: How long the start waits for files that are being changed. Then it reads what they have.
_MAX_WAIT_SECONDS = 3.0
#: How often requests look for changes.
_LOOK_SECONDS = 0.1
#: Seconds between two lines of the log about the same invalid or missing files.
_REPORT_SECONDS = 60.0

_DENY = oslo_policy.RuleDefault('deny', '!').check


class LoadedPolicy(NamedTuple):
    """Rules that were read from policy files."""

    #: The states of the files before they were read.
    files: tuple[FileState, ...]
    rules: oslo_policy.Enforcer
    #: The roles of each rule that only requires one of several roles, in lower case. oslo.policy is slow even for such
    #: simple rules.
    roles: Mapping[str, frozenset[str]]
    #: The paths of the files, each with whether it has more than comments.
    sources: Mapping[str, bool]
    #: A sentence for each rule of the files that is invalid. Such a rule denies every request.
    errors: Sequence[str]
    #: A sentence for each rule without effect, and for a file that the configuration names and that does not exist.
    warnings: Sequence[str]


class Enforcer:
    """Decides whether policy allows a caller to perform an operation. Each application has one.

    :param conf: made by ``placement.conf.load``.
    :param defaults: the default rules.
    :param loaded: the rules in force in the process from which this one was forked. They are in force until the files
        have changed and are valid, as if this process had not been restarted meanwhile. So a file that is missing or
        invalid for a moment neither lets the default rules apply nor prevents the start.
    :raises ConfigurationInvalid: a policy file is not YAML, or cannot be read, or there are two main policy files.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, defaults: Sequence[oslo_policy.RuleDefault], loaded: LoadedPolicy | None = None
    ) -> None:
        self._conf = conf
        self._defaults = defaults
        enforced = defaults if conf.oslo_policy.enforce_scope else ()
        self._scopes = {rule.name: frozenset(rule.scope_types or ()) for rule in enforced}
        self._lock = threading.Lock()
        self._look_again_at = 0.0
        #: The files that could not replace the rules in force, and the time at which the log says so again.
        self._rejected: tuple[tuple[FileState, ...] | None, float] = (None, 0.0)
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while loaded is None and not are_settled(file_states(conf)) and time.monotonic() < deadline:
            time.sleep(0.05)
        #: The rules in force now.
        self.loaded = loaded or load(conf, defaults)
        for text in self.loaded.errors:
            configuration.log_once(LOG, log.ERROR, f'{text} It denies every request.')
        for text in self.loaded.warnings:
            configuration.log_once(LOG, log.WARNING, text)

    def allows(self, rule: str, target: Mapping[str, Any], credentials: Any) -> bool:
        """Return whether a rule allows the operation. Reload the policy files first if they have changed.

        :param rule: the name of a declared rule.
        :param target: attributes of the object of the operation, such as ``project_id``.
        :param credentials: an ``oslo_context`` request context.
        """
        if time.monotonic() >= self._look_again_at:
            self._reload_if_changed()
        scope = 'system' if credentials.system_scope else 'domain' if credentials.domain_id else 'project'
        if rule in self._scopes and scope not in self._scopes[rule]:
            return False
        loaded = self.loaded
        roles = loaded.roles.get(rule)
        if roles is not None:
            return not roles.isdisjoint([role.lower() for role in credentials.roles])
        return bool(loaded.rules.authorize(rule, dict(target), credentials))

    def _reload_if_changed(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._look_again_at = now + _LOOK_SECONDS
            files = file_states(self._conf)
            rejected, report_again_at = self._rejected
            if files == self.loaded.files or not are_settled(files) or (files == rejected and now < report_again_at):
                return
            try:
                loaded = load(self._conf, self._defaults)
                _reject_invalid(loaded, self.loaded)
            except exception.ConfigurationInvalid as error:
                LOG.error('%s The previous rules stay in force.', error)
                self._rejected = files, now + _REPORT_SECONDS
                return
            # Files that have changed meanwhile are read again when they are settled.
            if file_states(self._conf) == files:
                self.loaded = loaded
                for text in loaded.warnings:
                    configuration.log_once(LOG, log.WARNING, text)
                LOG.info('The rules of %s are in force now.', ', '.join(loaded.sources) or 'no policy file')


def _reject_invalid(loaded: LoadedPolicy, previous: LoadedPolicy) -> None:
    """Raise ConfigurationInvalid if a rule is invalid, or if a file of the previous rules is missing or empty."""
    if loaded.errors:
        raise exception.ConfigurationInvalid(reason=loaded.errors[0])
    for path, had_rules in previous.sources.items():
        if path not in loaded.sources:
            reason = f'The policy file {path} no longer exists. Reload the service to run without it.'
            raise exception.ConfigurationInvalid(reason=reason)
        if had_rules and not loaded.sources[path]:
            reason = f'The policy file {path} is empty. Write {{}} into it to use the default rules.'
            raise exception.ConfigurationInvalid(reason=reason)


def load(conf: cfg.ConfigOpts, defaults: Sequence[oslo_policy.RuleDefault]) -> LoadedPolicy:
    """Read the policy files, and complete their rules with the default ones. Log nothing.

    :raises ConfigurationInvalid: a file or a directory cannot be read, a file is not YAML, or there are two main files.
    """
    files = file_states(conf)
    if len(main := main_files(conf)) > 1:
        reason = (
            f'There are two policy files, {" and ".join(main)}. Move the rules into {main[0]}, and remove {main[1]}.'
        )
        raise exception.ConfigurationInvalid(reason=reason)
    try:
        paths = find_files(conf)
    except OSError as error:
        raise exception.ConfigurationInvalid(reason=f'The policy files cannot be read: {error}.') from error
    sources, file_of_rule, texts = read_files(paths)
    parsed = {name: _parsed(name, text) for name, text in texts.items()}
    errors = {name: f'cannot be parsed: {texts[name]}' for name, rule in parsed.items() if rule is None}
    overrides = {name: rule or oslo_policy.RuleDefault(name, '!') for name, rule in parsed.items()}
    checks = {rule.name: rule.check for rule in [*defaults, *overrides.values()]}
    _add_invalid_rules(checks, overrides.keys(), errors)
    rules = oslo_policy.Enforcer(conf, policy_file=FILE_NAME, use_conf=False)
    rules.suppress_deprecation_warnings = True
    for rule in defaults:
        # ``allows`` checks the scope, unless the option enforce_scope is off. Since release 6, oslo.policy lacks
        # this option and always checks the scope, so rules are registered without scope types.
        unscoped = copy.copy(rule)
        unscoped.scope_types = None
        rules.register_default(unscoped)
    rules.file_rules.update(overrides)
    rules.set_rules({name: _DENY if name in errors else check for name, check in checks.items()}, use_conf=False)
    roles = {name: _roles_of(rules.rules, rules.rules.get(name)) for name in rules.registered_rules}
    return LoadedPolicy(
        files=files,
        rules=rules,
        roles={name: names for name, names in roles.items() if names is not None},
        sources=sources,
        errors=[
            f'The rule "{name}" of the policy file {file_of_rule[name]} {reason}.' for name, reason in errors.items()
        ],
        warnings=list(_warnings(conf, rules, defaults, file_of_rule)),
    )


# Rules ------------------------------------------------------------------------------------------------------------


def _parsed(name: str, text: Any) -> oslo_policy.RuleDefault | None:
    """Return the rule that a file has for a name, or None if it cannot be parsed."""
    # oslo.policy takes null, 0 and false for a rule that allows everything.
    if not isinstance(text, str | list):
        return None
    # oslo.policy would log a traceback, with this logger, whose name was read in oslo.policy 4.5.1 to 6.0.1.
    parser = logging.getLogger('oslo_policy._parser')
    level = parser.level
    parser.setLevel(logging.CRITICAL)
    try:
        rule = oslo_policy.RuleDefault(name, cast('str', text))
    except Exception:  # oslo.policy raises many kinds of exceptions for malformed rules.
        return None
    finally:
        parser.setLevel(level)
    # oslo.policy replaces a check that it cannot parse by "!", which always denies.
    return None if '!' in str(rule.check) and '!' not in str(text) else rule


def _add_invalid_rules(checks: Mapping[str, Any], names: Set[str], errors: dict[str, str]) -> None:
    """Add what is wrong with rules to ``errors``.

    :param checks: the checks of all rules, by name.
    :param names: the rules of the policy files.
    :param errors: a reason for each rule that denies every request, by name.
    """
    for name in names - errors.keys():
        unknown = next((other for other in _references(checks[name]) if other not in checks), None)
        if unknown is not None:
            errors[name] = f'refers to "rule:{unknown}", which does not exist{_hint(unknown, checks)}'
        elif name in _reachable(name, checks):
            errors[name] = 'refers to itself'
    # A rule that denies every request would let "not rule:NAME" allow them.
    for name in names - errors.keys():
        reachable = {name, *_reachable(name, checks)}
        invalid = next(iter(reachable & errors.keys()), None)
        if invalid is not None and any(
            isinstance(part, oslo_policy.NotCheck) for other in reachable for part in _nested(checks[other])
        ):
            errors[name] = f'contains "not" and refers to the rule "{invalid}", which is invalid'


def _warnings(
    conf: cfg.ConfigOpts,
    rules: oslo_policy.Enforcer,
    defaults: Sequence[oslo_policy.RuleDefault],
    file_of_rule: Mapping[str, str],
) -> Iterator[str]:
    """Yield ``LoadedPolicy.warnings``: for a file that does not exist, then for each rule that no operation uses."""
    named = named_file(conf)
    if named is not None and not main_files(conf):
        group, name = named
        yield f'The policy file {name}, named by [{group}] policy_file, does not exist. The default rules apply.'
    operations = {rule.name for rule in defaults if isinstance(rule, oslo_policy.DocumentedRuleDefault)}
    used = operations.union(*(_reachable(name, rules.rules) for name in operations))
    for name, path in file_of_rule.items():
        if name not in used and name != conf.oslo_policy.policy_default_rule:
            hint = '' if name in rules.registered_rules else _hint(name, rules.registered_rules)
            yield f'The policy file {path} sets the rule "{name}", which no operation of this release uses{hint}.'


def _nested(check: Any) -> Iterator[Any]:
    """Yield a check and all checks that it consists of."""
    yield check
    # The operands of ``and`` and ``or``, or the operand of ``not``.
    for operand in getattr(check, 'rules', None) or [getattr(check, 'rule', None)]:
        if operand is not None:
            yield from _nested(operand)


def _references(check: Any) -> Iterator[str]:
    """Yield the names of the rules that a check refers to."""
    return (part.match for part in _nested(check) if getattr(part, 'kind', None) == 'rule')


def _reachable(name: str, checks: Mapping[str, Any]) -> set[str]:
    """Return the names of the rules to which a rule refers, also through other rules."""
    reached: set[str] = set()
    pending = [name]
    while pending:
        references = set(_references(checks[pending.pop()])) & checks.keys()
        pending += references - reached
        reached |= references
    return reached


def _hint(name: str, names: Iterable[str]) -> str:
    """Return the end of a sentence that suggests the most similar known name; empty if none is similar."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f' (did you mean "{close[0]}"?)' if close else ''


def _roles_of(rules: Mapping[str, Any], check: Any) -> frozenset[str] | None:
    """Return the roles one of which a check requires, in lower case; None if it requires anything else."""
    # This ends, because rules that refer to themselves were replaced.
    while getattr(check, 'kind', None) == 'rule':
        check = rules.get(check.match)
    if isinstance(check, oslo_policy.OrCheck):
        parts = [_roles_of(rules, part) for part in check.rules]
        return None if None in parts else frozenset().union(*(part for part in parts if part))
    # An attribute of the target replaces %(name)s, so such a check does not have a fixed role.
    if getattr(check, 'kind', None) != 'role' or '%' in check.match:
        return None
    return frozenset({str(check.match).lower()})
