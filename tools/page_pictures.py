"""Make the pictures of doc/page.md from the screenshots of ``tox -e page``: ``python tools/page_pictures.py``.

Needs Pillow, which is in the extra ``bench``.
"""

from __future__ import annotations

import pathlib
import sys

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCREENSHOTS = ROOT / '.screenshots'
#: The pictures by the screenshots that they are made of, and the rows of pixels that are shown.
PICTURES = {
    'realistic-overview-1280-light': ('page-overview', 0, 1130),
    'realistic-overview-aggregate-1280-dark': ('page-heat-map', 1120, 2000),
    'realistic-trees-1280-light': ('page-trees', 0, 900),
    'realistic-tree-1280-light': ('page-tree', 0, 1130),
    'nested-why-1280-light': ('page-why', 0, 1130),
    'realistic-overview-390-light': ('page-narrow', 0, 1130),
}
#: Number of colours of a picture. Text stays sharp, rare colours are kept, and the file is a third as large.
COLOURS = 128


def main() -> int:
    """Write the pictures to ``doc/``."""
    for source, (target, top, bottom) in PICTURES.items():
        path = SCREENSHOTS / f'{source}.png'
        if not path.exists():
            print(f'{path} is not there: run tox -e page first', file=sys.stderr)
            return 1
        with Image.open(path) as shot:
            part = shot.convert('RGB').crop((0, top, shot.width, min(bottom, shot.height)))
            part.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE).save(
                ROOT / 'doc' / f'{target}.png', optimize=True
            )
    return 0


if __name__ == '__main__':
    sys.exit(main())
