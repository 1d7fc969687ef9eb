"""Writes explanations for users: as sentences, and as a JSON document."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from placement import units
from placement.cache.providers import DISABLED_TRAIT, SHARING_TRAIT, Provider
from placement.ops.display_names import DisplayNames
from placement.ops.explain.checks import Check, Rule
from placement.ops.explain.explanation import BlockedTrees, ClosestProvider, Explanation, UnusablePool
from placement.search.conditions import Fault

#: Maximum numbers of sentences, of sets of checks in one of them, of checks in a set, and of groups.
_MAX_SENTENCES, _MAX_SETS, _MAX_CHECKS, _MAX_GROUPS = 5, 3, 3, 4


class Verb(NamedTuple):
    """The forms of the words that a phrase begins with. Phrases that begin with the same ones share them."""

    plural: str
    singular: str
    #: What stands for it in a phrase that follows a noun.
    after_noun: str = ''


HAVE, LACK = Verb('have', 'has', 'with'), Verb('lack', 'lacks', 'without')
ARE, ARE_MARKED = Verb('are', 'is'), Verb('are', 'is', 'marked')
ARE_TOO_SMALL = Verb('are too small for', 'is too small for', 'too small for')
HAVE_ENOUGH = Verb('have', 'has', 'large enough for')
_DO, _FIT = Verb('do', 'does'), Verb('fit', 'fits')
_PASS, _FAIL = Verb('pass', 'passes', 'passing'), Verb('fail', 'fails', 'failing')
_REACH_ONLY_POOLS = Verb('reach only pools', 'reaches only pools')


class Phrase(NamedTuple):
    """What people say of trees: a verb and the rest, such as "have" and "VCPU:4 free"."""

    verb: Verb
    rest: str = ''
    #: The rest in a phrase that follows a noun, if it is another one.
    rest_after_noun: str = ''


class Words(NamedTuple):
    """What people say of trees that pass a check, and of those that fail it.

    ``{subject}`` is the text of the query, ``{name}`` the class of an amount, ``{place}`` the aggregates.
    """

    passes: Phrase
    fails: Phrase


#: By the parameter of a rule, or by fault. A rule that forbids has a ``!`` before its parameter, or is ``disabled`` if
#: it forbids the trait of disabled hosts.
WORDS: dict[str, Words] = {
    Fault.ABSENT: Words(Phrase(HAVE, '{name}'), Phrase(HAVE, 'no {name}')),
    Fault.TOO_SMALL: Words(Phrase(HAVE_ENOUGH, '{subject}'), Phrase(ARE_TOO_SMALL, '{subject}')),
    Fault.FULL: Words(Phrase(HAVE, '{subject} free'), Phrase(LACK, '{subject}')),
    'required': Words(Phrase(HAVE, '{subject}'), Phrase(LACK, '{subject}')),
    '!required': Words(Phrase(LACK, '{subject}'), Phrase(HAVE, 'the forbidden {subject}')),
    'member_of': Words(Phrase(ARE, 'in {place}'), Phrase(ARE, 'not in {place}', 'in other aggregates')),
    '!member_of': Words(Phrase(ARE, 'outside {place}'), Phrase(ARE, 'in the forbidden {place}')),
    'disabled': Words(Phrase(ARE_MARKED, 'enabled'), Phrase(ARE_MARKED, 'disabled')),
    'in_tree': Words(Phrase(ARE, 'in the tree {subject}'), Phrase(ARE, 'in other trees')),
    'root_required': Words(Phrase(HAVE, '{subject} on the root'), Phrase(LACK, '{subject} on the root')),
    '!root_required': Words(Phrase(LACK, '{subject} on the root'), Phrase(HAVE, 'the forbidden {subject} on the root')),
}


class Writer:
    """Writes the explanations of one program.

    :param names: the names of aggregates.
    """

    def __init__(self, names: DisplayNames | None = None) -> None:
        self._names = names or DisplayNames()

    def sentences(self, explanation: Explanation) -> list[str]:
        """Return at most five sentences that say what a search finds, or why it finds nothing."""
        if explanation.candidates:
            note = ', as many as the limit allows' if explanation.candidates == explanation.limit else ''
            note = ', and there may be more: the search reached a limit' if explanation.limits_reached else note
            return [f'Found {units.plural(explanation.candidates, "candidate")}{note}.']
        if not explanation.trees:
            return ['No resource providers are stored.']
        texts = []
        if 0 < explanation.examined < explanation.trees:
            trees = units.plural(explanation.trees, _noun(explanation))
            texts = [f'This is about the first {explanation.examined:,} of {trees}, because a limit was reached.']
        elif explanation.limits_reached:
            texts = ['The search reached a limit before it found a candidate, so candidates may exist.']
        if explanation.placeable:
            texts += self._conflict(explanation)
        elif explanation.pools:
            texts += self._out_of_reach(explanation)
        elif explanation.suitable:
            texts += self._hosts_first(explanation)
        elif explanation.blocked:
            texts += self._none_suitable(explanation)
        return texts[:_MAX_SENTENCES]

    def _hosts_first(self, explanation: Explanation) -> list[str]:
        """Return what keeps the trees that are what was asked for from serving the request."""
        checks = [check for check in explanation.selective if check.fault is Fault.VIOLATED] or explanation.selective
        have = self._phrases(checks, passed=True) or [Phrase(HAVE, 'what was asked for')]
        states = '; '.join(f'{state.trees:,} {self.blocked_text(state)}' for state in explanation.states[:_MAX_SETS])
        rest = sum(state.trees for state in explanation.states[_MAX_SETS:])
        states += f'; {rest:,} for other reasons' if rest else ''
        return [f'{_counted(explanation, explanation.suitable, *have)}.', f'{states}.']

    def _none_suitable(self, explanation: Explanation) -> list[str]:
        """Return what no provider has, or else the check or the smallest set of checks that excludes most trees."""
        # That a device is no host is no news.
        of_hosts = [fact for fact in explanation.blocked if not any(check.lacks_host_class for check in fact.checks)]
        facts = of_hosts or explanation.blocked
        near_misses = [fact for fact in facts if len(fact.checks) == 1]
        texts = self._nowhere(explanation, near_misses)
        if near_misses:
            return texts or self._near_misses(explanation, facts)
        texts = texts or [f'No {_noun(explanation)} has all of it.']
        number = 'one' if facts[0].trees == 1 else f'{facts[0].trees:,}'
        return [*texts, f'The closest {number} {self.blocked_text(facts[0])}.']

    def _near_misses(self, explanation: Explanation, facts: Sequence[BlockedTrees]) -> list[str]:
        """Return what no tree has that has the rest, and which trees have it.

        For example, "No host large enough for VCPU:32 has CUSTOM_GPU. 1 host too small for VCPU:32 has."

        :param facts: the first one has the trees that fail only the check that the sentences are about.
        """
        [check], closest = facts[0].checks, facts[0].closest
        context = [other for other in explanation.selective if other.rule != check.rule]
        where = _after_noun(self._phrases(context, passed=True), ' ')
        passes = self.words(check).passes
        reason = ''
        if closest and closest.limit == 'capacity':
            reason = f': the largest has a capacity of {closest.free}'
        elif closest and closest.limit:
            reason = f': {closest.limit} is {closest.free} (closest: {closest.provider.display_name})'
        texts = [f'No {_noun(explanation)}{f" {where}" if where else ""} {_predicate(1, passes)}{reason}.']
        # "has", "is" or "does", which stands for the whole predicate.
        verb = Phrase(_DO if passes.verb is LACK else passes.verb)
        for fact in [fact for fact in facts if check not in fact.checks][:_MAX_SETS]:
            trees = f'{units.plural(fact.trees, _noun(explanation))} {_after_noun(self._phrases(fact.checks))}'
            texts.append(f'{trees} {_predicate(fact.trees, verb)}.')
        return texts

    def _nowhere(self, explanation: Explanation, near_misses: Sequence[BlockedTrees]) -> list[str]:
        """Return what no provider has, and how many trees fit otherwise."""
        texts = []
        for check in explanation.nowhere[:_MAX_SETS]:
            name = explanation.similar.get(check)
            hint = f' The closest name in use is {name}.' if name else ''
            texts.append(f'No provider {_predicate(1, self.words(check).passes)}.{hint}')
        nearly_fit = [fact for fact in near_misses if fact.checks[0] in explanation.nowhere]
        return texts + [f'{_counted(explanation, fact.trees, Phrase(_FIT))} otherwise.' for fact in nearly_fit]

    def _out_of_reach(self, explanation: Explanation) -> list[str]:
        """Return what trees lack that a pool out of their reach could supply."""
        pool = explanation.pools[0]
        fit = _counted(explanation, pool.trees, Phrase(_FIT))
        name = f'{"pool" if pool.shares else "provider"} {pool.provider.display_name}'
        texts = [f'{fit} except for {pool.rule.subject}: the {name} {self.pool_text(pool, in_sentence=True)}.']
        for state in explanation.states[:_MAX_SETS]:
            if all(check.rule != pool.rule for check in state.checks):
                texts.append(f'{state.trees:,} others {self.blocked_text(state)}.')
            elif state.pools:
                pools = f'The {state.pools:,} pools in them are' if state.pools > 1 else 'The pool in them is'
                texts.append(f'{pools} full{_closest_text(state.closest)}.')
        return texts

    def _conflict(self, explanation: Explanation) -> list[str]:
        """Return why trees that can serve each part alone cannot serve all parts together."""
        fits = {
            fact.rule: f'{"At least " if fact.at_least else ""}{_counted(explanation, fact.trees, Phrase(_FIT))}'
            for fact in explanation.between
        }
        if fit := next((fit for rule, fit in fits.items() if rule.parameter == 'microversion'), ''):
            text = "Without microversion 1.29, all of a host's resources come from one provider."
            return [text, f'{fit} from 1.29 on.']
        texts = [f'Each group fits alone in {units.plural(explanation.placeable, _noun(explanation))}.']
        if not explanation.conflicts:
            return texts
        conflict = explanation.conflicts[0]
        if conflict.groups:
            trees = 'none has' if conflict.trees == explanation.placeable else f'{conflict.trees:,} do not have'
            shown = list(conflict.groups[:_MAX_GROUPS])
            hidden = len(conflict.groups) - len(shown)
            last = f'{hidden:,} more' if hidden else shown.pop()
            number, groups = units.plural(len(conflict.groups), 'provider'), f'{", ".join(shown)} and {last}'
            return [*texts, f'With group_policy=isolate, {trees} {number} for groups {groups}.']
        texts.append(f'None fits all of them: in {conflict.example.display_name}, {conflict.reason.value}.')
        return texts + [f'{fit} without {self.rule_text(rule)}.' for rule, fit in list(fits.items())[:_MAX_SETS]]

    # Parts of sentences --------------------------------------------------------------------------------------

    def words(self, check: Check) -> Words:
        """Return the words for a check with its scope, which only traits need after a noun."""
        rule = check.rule
        key = f'{"!" if rule.forbids else ""}{rule.parameter}' if check.fault is Fault.VIOLATED else check.fault
        if rule.forbids and rule.names == (DISABLED_TRAIT,):
            key = 'disabled'
        values = {'subject': rule.subject, 'name': check.resource_class, 'place': self._place(rule.names)}
        groups, classes = check.scope
        served = f'group {_suffixes(groups)}' if groups else ' and '.join(classes)
        scope, scope_after_noun = f' for {served}' if served else '', ''
        if scope and WORDS[key].passes.verb in (HAVE, LACK) and not check.resource_class:
            scope = scope_after_noun = f' on the provider{scope}'

        def filled_in(phrase: Phrase) -> Phrase:
            rest_after_noun = (phrase.rest_after_noun or phrase.rest).format(**values) + scope_after_noun
            return Phrase(phrase.verb, phrase.rest.format(**values) + scope, rest_after_noun)

        return Words(*map(filled_in, WORDS[key]))

    def _phrases(self, checks: Sequence[Check], passed: bool = False) -> list[Phrase]:
        """Return what trees do that fail some checks, or pass them: at most three, and the number of the others."""
        words = [self.words(check) for check in checks[:_MAX_CHECKS]]
        phrases = [passes if passed else fails for passes, fails in words]
        if hidden := len(checks) - len(words):
            phrases.append(Phrase(_PASS if passed else _FAIL, units.plural(hidden, 'more check')))
        return phrases

    def _place(self, uuids: Sequence[str]) -> str:
        """Return aggregates with their names, if they have any."""
        if len(uuids) > _MAX_SETS:
            return f'any of {len(uuids)} aggregates'
        names = ((self._names.name(uuid), uuid) for uuid in uuids)
        return ' or '.join(f'{name} (aggregate {uuid})' if name else f'aggregate {uuid}' for name, uuid in names)

    def rule_text(self, rule: Rule) -> str:
        """Return a rule as in a query, such as ``resources1 VCPU:4``, and with the names of aggregates."""
        if rule.parameter == 'member_of':
            rule = dataclasses.replace(rule, subject=','.join(map(self._names.label, rule.names)))
        parameter, subject = rule.in_output
        return f'{parameter}{_suffixes(rule.suffixes)} {subject}'

    def blocked_text(self, blocked: BlockedTrees) -> str:
        """Return what trees lack, in the plural or the singular: ``lack VCPU:8 (closest: host-7, 6 free)``."""
        lacks = self._phrases(blocked.checks)
        if blocked.pools:
            lacks = [Phrase(_REACH_ONLY_POOLS, _after_noun(lacks))]
        return _predicate(blocked.trees, *lacks) + _closest_text(blocked.closest)

    def pool_text(self, pool: UnusablePool, in_sentence: bool = False) -> str:
        """Return what a pool has free, and what keeps trees from using it; unless ``in_sentence`` with aggregates."""
        aggregates = '' if in_sentence or not pool.aggregates else f' ({self._place(pool.aggregates)})'
        lacks = [f'is not in {self._place(check.rule.names)}' for check in pool.missing]
        lacks += [] if pool.reaches else [f'is in none of their aggregates{aggregates}']
        lacks += [] if pool.shares else [f'lacks {SHARING_TRAIT}']
        return f'has {pool.free:,} free, but {" and ".join(lacks)}'

    # The JSON document ---------------------------------------------------------------------------------------

    def document(self, explanation: Explanation) -> dict[str, Any]:
        """Return an explanation in JSON types: the sentences, then the fields of ``Explanation``."""
        return {'sentences': self.sentences(explanation), **self._json(explanation)}

    def _json(self, value: Any) -> Any:
        match value:
            case Provider():
                return {'name': value.display_name, 'uuid': value.uuid}
            case Rule():
                parameter, subject = value.in_output
                # In ``groups``, an empty text is the unsuffixed group.
                return {'rule': parameter, 'groups': value.suffixes, 'subject': subject, 'text': self.rule_text(value)}
            case enum.Enum():
                return value.value
            case Mapping():
                # A check of ``similar`` is named by the trait.
                keys = (key.rule.subject if isinstance(key, Check) else self._json(key) for key in value)
                return dict(zip(keys, value.values(), strict=True))
            case list() | tuple() | Set():
                return [self._json(item) for item in value]
        if not dataclasses.is_dataclass(value):
            return value
        members = {
            field.name: self._json(getattr(value, field.name)) for field in dataclasses.fields(value) if field.compare
        }
        texts: dict[Any, Any] = {BlockedTrees: self.blocked_text, UnusablePool: self.pool_text}
        write = texts.get(type(value))
        return members | {'text': write(value)} if write else members


def excluded_texts(excluded: Mapping[str, int]) -> list[str]:
    """Return how many trees a rule excludes, by fault, for a table."""
    words = {Fault.ABSENT: 'without inventory', Fault.TOO_SMALL: 'too small', Fault.FULL: 'full'}
    return [f'{count:,} {words.get(Fault(fault), "")}'.strip() for fault, count in excluded.items()]


def _closest_text(closest: ClosestProvider | None) -> str:
    # The amount has no commas, so that it can be compared with the one of the query.
    if closest is None:
        return ''
    text = f'{closest.free} free' if not closest.limit else f'{closest.limit} {closest.free}'
    return f' (closest: {closest.provider.display_name}, {text})'


def _noun(explanation: Explanation) -> str:
    return 'host' if explanation.about_hosts else 'tree'


def _counted(explanation: Explanation, count: int, *phrases: Phrase) -> str:
    """Return how many trees do something, such as ``12 hosts have CUSTOM_GPU``."""
    return f'{units.plural(count, _noun(explanation))} {_predicate(count, *phrases)}'


def _predicate(count: int, *phrases: Phrase) -> str:
    """Return what ``count`` trees do."""
    return _joined((phrase.verb.singular if count == 1 else phrase.verb.plural, phrase.rest) for phrase in phrases)


def _after_noun(phrases: Iterable[Phrase], separator: str = ' and ') -> str:
    """Return what follows the noun of trees that do something, such as ``with CUSTOM_GPU``."""
    return _joined(((phrase.verb.after_noun, phrase.rest_after_noun or phrase.rest) for phrase in phrases), separator)


def _joined(phrases: Iterable[tuple[str, str]], separator: str = ' and ') -> str:
    """Join phrases, those with the same beginning by "and": ``have A and B and are disabled``."""
    by_beginning: dict[str, list[str]] = {}
    for beginning, rest in dict.fromkeys(phrases):
        by_beginning.setdefault(beginning, []).append(rest)
    return separator.join(f'{beginning} {" and ".join(rests)}'.strip() for beginning, rests in by_beginning.items())


def _suffixes(suffixes: Sequence[str]) -> str:
    return ','.join((*suffixes[:2], '...', suffixes[-1]) if len(suffixes) > _MAX_GROUPS else suffixes)
