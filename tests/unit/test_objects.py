"""The versioned objects: their fields, and that another process can read a serialized object."""

from __future__ import annotations

import datetime as dt
import importlib
import pkgutil
from typing import Any

import pytest

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
    'Usage': '1.0-bc1823384931748438e830f85b50d168',
}

CLASSES: dict[str, type[Any]] = {
    name: versions[0]
    for name, versions in ovo_base.VersionedObjectRegistry.obj_classes().items()
    if issubclass(versions[0], PlacementObject)
}

SOME_TIME = dt.datetime(2026, 7, 1, 12, 30, 15)
VALUES: dict[str, Any] = {
    'Integer': 7,
    'Float': 1.5,
    'String': 'name',
    'DateTime': SOME_TIME,
}


def make(cls: type[Any]) -> Any:
    """An object with a value in each field."""
    return cls(**{name: VALUES[type(field).__name__.removesuffix('Field')] for name, field in cls.fields.items()})


def values(instance: Any) -> dict[str, Any]:
    """The values of the fields of an object."""
    return {name: getattr(instance, name) for name in instance.fields}


def test_a_change_of_fields_changes_the_version() -> None:
    """oslo.versionedobjects' own check: the expected and the actual fingerprints of classes that differ."""
    checker = fixture.ObjectVersionChecker({name: [cls] for name, cls in CLASSES.items()})
    expected, actual = checker.test_hashes(FINGERPRINTS)
    assert expected == actual


@pytest.mark.parametrize('name', sorted(CLASSES))
def test_a_serialized_object_is_read_back(name: str) -> None:
    instance = make(CLASSES[name])
    primitive = instance.obj_to_primitive()
    assert primitive['placement_object.name'] == name
    read = PlacementObject.obj_from_primitive(primitive)
    assert type(read) is CLASSES[name]
    assert values(read) == values(instance)


@pytest.mark.parametrize('name', sorted(CLASSES))
def test_a_value_of_another_type_is_rejected(name: str) -> None:
    instance = make(CLASSES[name])
    for field in instance.fields:
        with pytest.raises((ValueError, TypeError)):
            setattr(instance, field, object())
