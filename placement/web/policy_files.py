"""The policy files: where they are, whether they have changed, and what they contain."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from oslo_config import cfg
from oslo_policy import policy as oslo_policy

from placement import conf as configuration
from placement import exception

#: The default policy file; the same in JSON, which is read if there is no other; and a former name of the default file.
FILE_NAME, _JSON_NAME, _FORMER_NAME = 'policy.yaml', 'policy.json', 'placement-policy.yaml'

#: A file that changed less than this time ago may still be incomplete.
SETTLING_SECONDS = 1.0
#: The clock of the host of a file system may be ahead by this time. Such a file is read later.
_MAX_AHEAD_SECONDS = 60.0

#: A line without content: a comment, or a mark of the start or end of a YAML document.
_NO_CONTENT = re.compile(rb'\s*(#.*|---|\.\.\.)?\s*')


class FileState(NamedTuple):
    """What changes when a file changes: its path, the time of its last change in nanoseconds, its size and inode."""

    path: str
    changed: int
    size: int
    inode: int


def named_file(conf: cfg.ConfigOpts) -> tuple[str, str] | None:
    """Return the group and the value of the option ``policy_file`` that is set, or None. [oslo_policy] comes first."""
    for group in ('oslo_policy', 'placement'):
        location = conf.get_location('policy_file', group)
        if location is not None and location.location not in (cfg.Locations.opt_default, cfg.Locations.set_default):
            return group, conf[group].policy_file
    return None


def is_customized(conf: cfg.ConfigOpts) -> bool:
    """Return whether there are policy files, or the configuration names one that may be missing."""
    try:
        return named_file(conf) is not None or bool(find_files(conf))
    except OSError:
        # ``policy.load`` says what cannot be read.
        return True


def main_files(conf: cfg.ConfigOpts) -> list[str]:
    """Return the path of the policy file that exists, in the directories in which oslo.policy looks for it, or nothing.

    The result has two paths, which is an error, if the default file exists with its former name, too.
    """
    named = named_file(conf)
    names = [named[1]] if named is not None else [FILE_NAME, _FORMER_NAME]
    if os.path.basename(names[0]) == FILE_NAME:
        names.insert(1, os.path.join(os.path.dirname(names[0]), _JSON_NAME))
    for directory in ['/'] if os.path.isabs(names[0]) else configuration.directories(conf):
        paths = [path for name in names if os.path.isfile(path := os.path.join(directory, name))]
        if paths:
            # As in oslo.policy, YAML has precedence over JSON.
            return paths[:1] + [path for path in paths[1:] if os.path.basename(path) != _JSON_NAME]
    return []


def find_files(conf: cfg.ConfigOpts) -> list[str]:
    """Return the policy files in the order in which they are read: the main file, then those of policy_dirs.

    :raises OSError: a directory cannot be read.
    """
    files = main_files(conf)
    places = [*configuration.directories(conf), *map(os.path.dirname, files)]
    for name in conf.oslo_policy.policy_dirs:
        paths = [name] if os.path.isabs(name) else [os.path.join(place, name) for place in places]
        directory = next(filter(os.path.isdir, paths), None)
        if directory is not None:
            visible = sorted(entry for entry in os.listdir(directory) if not entry.startswith('.'))
            files += [path for entry in visible if os.path.isfile(path := os.path.join(directory, entry))]
    return files


def file_states(conf: cfg.ConfigOpts) -> tuple[FileState, ...]:
    """Return the states of the policy files, in the order in which they are read, without what cannot be read."""
    states = []
    with contextlib.suppress(OSError):
        for path in find_files(conf):
            status = os.stat(path)
            states.append(FileState(path, status.st_ctime_ns, status.st_size, status.st_ino))
    return tuple(states)


def are_settled(files: tuple[FileState, ...]) -> bool:
    """Return whether no file has changed for ``SETTLING_SECONDS``.

    A time of change further in the future was set by a wrong clock, and is not waited for.
    """
    ages = [time.time() - file.changed / 1e9 for file in files]
    return not any(-_MAX_AHEAD_SECONDS < age < SETTLING_SECONDS for age in ages)


def read_files(paths: Sequence[str]) -> tuple[dict[str, bool], dict[str, str], dict[str, Any]]:
    """Return ``LoadedPolicy.sources``, and the file and the text of each rule. Later files have precedence.

    :raises ConfigurationInvalid: a file cannot be read, or is not a mapping in YAML or JSON.
    """
    sources: dict[str, bool] = {}
    file_of_rule: dict[str, str] = {}
    texts: dict[str, Any] = {}
    for path in paths:
        try:
            with open(path, 'rb') as file:
                content = file.read()
            overrides = oslo_policy.parse_file_contents(content)
            pairs = {str(name): text for name, text in overrides.items()}
        except (OSError, ValueError, AttributeError) as error:
            problem = 'it is not a mapping' if isinstance(error, AttributeError) else ' '.join(str(error).split())
            reason = f'The policy file {path} is invalid: {problem}.'
            raise exception.ConfigurationInvalid(reason=reason) from error
        sources[path] = not all(map(_NO_CONTENT.fullmatch, content.splitlines()))
        file_of_rule |= dict.fromkeys(pairs, path)
        texts |= pairs
    return sources, file_of_rule, texts
