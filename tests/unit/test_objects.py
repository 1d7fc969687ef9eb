"""The versioned objects: a class whose fields change needs a higher version."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from placement import objects
from placement.objects.base import PlacementObject

# Not at the top: importing oslo.versionedobjects before placement.objects imports oslo.messaging and eventlet too.
ovo_base: Any = importlib.import_module('oslo_versionedobjects.base')
fixture: Any = importlib.import_module('oslo_versionedobjects.fixture')

for _module in pkgutil.iter_modules(objects.__path__):
    importlib.import_module(f'placement.objects.{_module.name}')

#: Version and fingerprint of each class. A class whose fields change gets a new version, and then a new line here.
FINGERPRINTS = {
    'Allocation': '1.0-f2861f91ed05af35de529da51d0ae41a',
    'Consumer': '1.1-5fdf4ef420f4679b2a0b8a06cf2a5a73',
    'Inventory': '1.1-f7c063159012e439adb5b0eb975eda38',
    'ResourceClass': '1.0-6e7be3ba8dd9fa529f944bcf9612b287',
    'ResourceProvider': '1.0-37da1109dcf0392465ceae942b72c403',
    'Trait': '1.0-6e7be3ba8dd9fa529f944bcf9612b287',
}

CLASSES: dict[str, type[Any]] = {
    name: versions[0]
    for name, versions in ovo_base.VersionedObjectRegistry.obj_classes().items()
    if issubclass(versions[0], PlacementObject)
}


def test_a_change_of_fields_changes_the_version() -> None:
    """oslo.versionedobjects' own check: the expected and the actual fingerprints of classes that differ."""
    checker = fixture.ObjectVersionChecker({name: [cls] for name, cls in CLASSES.items()})
    expected, actual = checker.test_hashes(FINGERPRINTS)
    assert expected == actual
