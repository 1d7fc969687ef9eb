"""``placement-manage db fingerprint``: prove that nothing else changed."""

from __future__ import annotations

import argparse
import json
import pathlib

from oslo_config import cfg

from placement import exception, uuid_spelling
from placement.cmd import output
from placement.db.api import Database
from placement.ops.fingerprint import Fingerprint, Kind, read_fingerprint
from placement.units import plural

#: Exit code if the fingerprints differ.
DIFFERENT = 1


def run(args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    """Print the fingerprint of the database, and what differs from a former one."""
    # A name would leave out only the row of the provider, not its inventories.
    for text in args.excluded:
        if not uuid_spelling.is_uuid(text):
            raise exception.BadQuery(f'--except takes the uuid of a provider or consumer, not {text!r}.')
    excluded = sorted(set(map(uuid_spelling.canonical_uuid, args.excluded)))
    # A former fingerprint that cannot be compared is reported before minutes are spent on the new one.
    former = None if args.compare is None else _read(args.compare, excluded)
    with output.waiting('Reading all rows'):
        fingerprint = read_fingerprint(db, excluded)
    differences = [] if former is None else fingerprint.differences(former)
    if args.format == 'json':
        output.print_json(
            {
                'whole': fingerprint.whole,
                'kinds': fingerprint.kinds,
                'except': excluded,
                **({} if former is None else {'differences': differences}),
            }
        )
        return DIFFERENT if differences else 0
    console = output.console()
    if former is not None:
        console.print(_sentence(fingerprint, former, differences), soft_wrap=True)
    table = output.table('Kind', 'Rows', 'Hash')
    for name, kind in {**fingerprint.kinds, 'all': fingerprint.whole}.items():
        table.add_row(name, str(kind.rows), kind.hash)
    console.print(table)
    return DIFFERENT if differences else 0


def _sentence(fingerprint: Fingerprint, former: Fingerprint, differences: list[str]) -> str:
    if not differences:
        return 'Nothing differs.'
    none = Kind(0, '')
    changes = [
        f'{name} ({plural(former.kinds.get(name, none).rows, "row")} before,'
        f' {fingerprint.kinds.get(name, none).rows} now)'
        for name in differences
    ]
    return f'Different: {", ".join(changes)}.'


def _read(path: pathlib.Path, excluded: list[str]) -> Fingerprint:
    """Read what ``--format json`` printed.

    :raises BadQuery: the file cannot be read, has something else, or leaves out other rows than ``excluded``.
    """
    try:
        document = json.loads(path.read_text())
        kinds = document['kinds'].items()
        former = Fingerprint({name: Kind(int(kind['rows']), str(kind['hash'])) for name, kind in kinds})
        left_out = [str(uuid) for uuid in document['except']]
    except OSError as error:
        raise exception.BadQuery(f'Cannot read {path}: {error.strerror}.') from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise exception.BadQuery(
            f'{path} is not the output of placement-manage db fingerprint --format json.'
        ) from error
    if left_out != excluded:
        options = ' '.join(f'--except {uuid}' for uuid in left_out) or 'no --except'
        raise exception.BadQuery(f'{path} was made with {options}. Pass the same --except to both calls.')
    return former
