"""Make the pictures of doc/page.md from the screenshots of ``tox -e page``: ``python tools/page_pictures.py``.

Needs Pillow, which is in the extra ``bench``.
"""

from __future__ import annotations

import pathlib
import sys

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCREENSHOTS = ROOT / '.screenshots'
#: The pictures by the screenshots that they are made of, and the height from the top that is shown, in pixels.
PICTURES = {
    'nested-overview-1280-light': ('page-overview', 1130),
    'large-overview-1280-dark': ('page-heat-map', 1130),
    'nested-tree-1280-light': ('page-tree', 900),
    'nested-why-1280-light': ('page-why', 1130),
    'large-overview-390-light': ('page-narrow', 1130),
}
#: Number of colours of a picture. Text stays sharp, rare colours are kept, and the file is a third as large.
COLOURS = 128


def main() -> int:
    """Write the pictures to ``doc/``."""
    for source, (target, height) in PICTURES.items():
        path = SCREENSHOTS / f'{source}.png'
        if not path.exists():
            print(f'{path} is not there: run tox -e page first', file=sys.stderr)
            return 1
        with Image.open(path) as shot:
            part = shot.convert('RGB').crop((0, 0, shot.width, min(height, shot.height)))
            part.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE).save(
                ROOT / 'doc' / f'{target}.png', optimize=True
            )
    return 0


if __name__ == '__main__':
    sys.exit(main())
