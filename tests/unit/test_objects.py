"""The versioned objects: their fields, and that another process can read a serialized object."""

from __future__ import annotations

import datetime as dt
import importlib
import pkgutil
from typing import Any

import pytest

from placement import objects
from placement.objects.base import PlacementObject
from placement.objects.resource_provider import ResourceProvider

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


def test_each_noun_is_an_object() -> None:
    nouns = {'ResourceProvider', 'Inventory', 'Allocation', 'Consumer', 'Trait', 'ResourceClass', 'Usage'}
    assert set(CLASSES) == nouns


@pytest.mark.parametrize('name', sorted(CLASSES))
def test_each_class_says_its_version(name: str) -> None:
    assert 'VERSION' in CLASSES[name].__dict__


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


def test_an_unknown_version_is_rejected() -> None:
    primitive = make(ResourceProvider).obj_to_primitive()
    primitive['placement_object.version'] = '2.0'
    with pytest.raises(ovo_base.exception.IncompatibleObjectVersion):
        PlacementObject.obj_from_primitive(primitive)


def test_none_is_accepted_for_nullable_fields_only() -> None:
    assert {name for name, field in ResourceProvider.fields.items() if field.nullable} == {
        'name',
        'parent_provider_uuid',
        'created_at',
        'updated_at',
    }


def test_private_annotations_are_no_fields() -> None:
    class Marked(PlacementObject):
        _inner: int = 0
        count: int | None

    assert set(Marked.fields) == {'count'}


def test_an_unsupported_type_is_rejected() -> None:
    with pytest.raises(KeyError):

        class _Odd(PlacementObject):
            numbers: set[int]
