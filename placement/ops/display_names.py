"""The names of aggregates, projects and users for people. The API has only their uuids, so operators give a file."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Mapping

from oslo_log import log

from placement import exception, uuid_spelling

LOG = log.getLogger(__name__)


class DisplayNames:
    """Finds the name of a uuid in a JSON file: an object whose members are a uuid and its name.

    The file is read again when it has changed. If it cannot be read or is invalid, the names that were read last stay,
    and there is one warning.

    :param path: the file, from ``[placement] names_file``; None or empty if nothing has a name.
    :param warn: what gets the text of a warning; by default the log.
    """

    def __init__(self, path: str | None = None, warn: Callable[[str], None] | None = None) -> None:
        self._path = path
        self._warn = warn or (lambda text: LOG.warning('%s The previous names stay in use.', text))
        self._names: Mapping[str, str] = {}
        #: Modification time, size and inode of the file that was read last; None before the first look.
        self._state: tuple[int, int, int] | None = None

    def name(self, text: str) -> str | None:
        """Return the name of the aggregate, project or user with this uuid; None for any other text."""
        if self._path:
            self._read_if_changed(self._path)
        return self._names.get(uuid_spelling.canonical_uuid(text))

    def uuids(self, name: str) -> list[str]:
        """Return the uuids that have a name in the file, in canonical form."""
        # Reads the file if it has changed.
        self.name(name)
        return [uuid for uuid, other_name in self._names.items() if other_name == name]

    def aggregate_uuid(self, text: str) -> str:
        """Return the uuid of an aggregate that an operator wrote as its uuid or as its name in the file.

        :raises BadQuery: it is no uuid, and not the name of exactly one uuid.
        """
        if uuid_spelling.is_uuid(text):
            return uuid_spelling.aggregate_uuid(text)
        uuids = self.uuids(text)
        if len(uuids) == 1:
            return uuids[0]
        reason = f'the names file has {len(uuids)} uuids with this name' if uuids else 'the names file does not have it'
        raise exception.BadQuery(f'{text!r} is not the uuid of an aggregate{f", and {reason}" if self._path else ""}.')

    def label(self, text: str) -> str:
        """Return ``az1 (7d2c5d6a-...)``, with the whole uuid, for a uuid that has a name; any other text as it is."""
        name = self.name(text)
        return f'{name} ({text})' if name else text

    def _read_if_changed(self, path: str) -> None:
        try:
            status = os.stat(path)
            state = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            # A missing file has a state of its own, so that it is reported once, and read when it exists again.
            state = (0, 0, 0)
        if state == self._state:
            return
        self._state = state
        try:
            content = json.loads(pathlib.Path(path).read_bytes())
            names = {uuid_spelling.canonical_uuid(uuid): name for uuid, name in content.items()}
            problem = '' if all(isinstance(name, str) for name in names.values()) else 'has a name that is not a string'
        except OSError as error:
            problem = f'cannot be read: {error.strerror}'
        except AttributeError:
            problem = 'is not a JSON object'
        except ValueError as error:
            problem = f'is not a JSON object: {error}'
        if problem:
            self._warn(f'The names file {path} {problem}.')
        else:
            self._names = names
