"""Make the pictures in ``doc/`` from the screenshots of ``tox -e servers -- -m page``.

To run: ``python tools/page_pictures.py``. It needs Pillow, which is in the extra ``bench``.
"""

from __future__ import annotations

import pathlib
import sys

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCREENSHOTS = ROOT / '.screenshots'
#: Each picture, the screenshot that it is made of, and the rows of pixels that are shown.
PICTURES = (
    ('page', 'realistic-overview-1280-light', 0, 486),
    ('page-overview', 'realistic-overview-1280-light', 0, 1130),
    ('page-heat-map', 'realistic-overview-aggregate-1280-dark', 1120, 2000),
    ('page-trees', 'realistic-trees-1280-light', 0, 900),
    ('page-tree', 'realistic-tree-1280-light', 0, 1130),
    ('page-why', 'nested-why-1280-light', 0, 1130),
    ('page-narrow', 'realistic-overview-390-light', 0, 1130),
)
#: Number of colors of a picture. Text stays sharp, rare colors are kept, and the file is a third as large.
COLORS = 128


if __name__ == '__main__':
    if not SCREENSHOTS.is_dir():
        sys.exit(f'{SCREENSHOTS} is missing: run tox -e servers -- -m page first')
    for target, source, top, bottom in PICTURES:
        with Image.open(SCREENSHOTS / f'{source}.png') as shot:
            part = shot.convert('RGB').crop((0, top, shot.width, min(bottom, shot.height)))
            part.quantize(COLORS, method=Image.Quantize.MAXCOVERAGE).save(ROOT / 'doc' / f'{target}.png', optimize=True)
