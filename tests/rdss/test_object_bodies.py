"""RDSS, "Digital Object Versioning", by tables: the objects that a message names, and its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdckit.rdss.object_bodies import KEY, named_objects, read_object, version_pairs

A, B, C = (f"0000000{number}-0000-4000-8000-00000000abcd" for number in (1, 2, 3))
NEWER, OLDER = "isNewVersionOf", "isPreviousVersionOf"


def relation(kind: str, value: object) -> dict[str, Any]:
    return {"relationType": kind, "identifier": {"identifierType": "UUID", "identifierValue": value}}


# What A says of itself; which pairs of versions that makes, the newer one first.
RELATIONS: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "nothing": (None, []),
    "newer than one": ([relation(NEWER, B)], [(A, B)]),
    "older than one": ([relation(OLDER, B)], [(B, A)]),
    "both, and one of them twice": (
        [relation(NEWER, B), relation(OLDER, C), relation(NEWER, B)],
        [(A, B), (C, A), (A, B)],
    ),
    "a URN, large letters, blanks": ([relation(NEWER, f" urn:uuid:{B.upper()} ")], [(A, B)]),
    "another relation": ([relation("cites", B)], []),
    "a version of itself": ([relation(NEWER, A)], [(A, A)]),
    "what is no object": ([relation(NEWER, "10.5555/x"), relation(NEWER, None), relation(NEWER, 7)], []),
    "of another form": ([7, {"relationType": NEWER}, {"relationType": NEWER, "identifier": "x"}], []),
    "no list": ({"relationType": NEWER}, []),
}


@pytest.mark.parametrize("name", RELATIONS)
def test_versions_are_read_of_an_object_and_of_a_message_about_it(name: str) -> None:
    related, pairs = RELATIONS[name]
    assert version_pairs(A, None if related is None else json.dumps(related)) == pairs
    named = named_objects("MetadataUpdate", A, json.dumps({KEY: A, "objectRelatedIdentifier": related}))
    others = [other for pair in pairs for other in pair if other != A]
    expected = list(dict.fromkeys([A, *others]))
    assert named == expected


@pytest.mark.parametrize("text", ["?", "", "[1", '{"objectRelatedIdentifier": NaN}'])
def test_what_is_no_json_names_nobody(text: str) -> None:
    assert version_pairs(A, text) == []
    assert named_objects("MetadataUpdate", A, text) == [A]


def test_updates_alone_make_an_object_a_version() -> None:
    body = json.dumps({"objectRelatedIdentifier": [relation(NEWER, B)]})
    assert named_objects("MetadataCreate", A, body) == [A]
    assert named_objects("MetadataUpdate", A, None) == [A]


def test_an_object_is_there_in_its_own_type_and_in_that_of_all() -> None:
    body = '{"objectUUID": "u", "objectResourceType": "dataset", "objectDate": [{"b": 1.0, "a": "é"}]}'
    values = {KEY: "u", "objectResourceType": "dataset", "objectDate": '[{"a":"é","b":1.0}]'}
    assert read_object("u", body, None) == read_object("u", body, "dataset") == (True, values)
    assert read_object("u", body, "article") == read_object("u", None, None) == (False, {KEY: "u"})
