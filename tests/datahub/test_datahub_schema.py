"""`datahub.schema` and `read_schema`: what cannot be followed is refused, and the error names its path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdckit import CdcError
from cdckit.datahub import Hub, InvalidSchema, Schema, read_schema, schema
from cdckit.errors import InvalidArgument

Document = dict[str, Any]

KEY: Document = {"reference": "number", "type": "integer", "key": True}
NAME: Document = {"reference": "name"}
ID: Document = {"reference": "id", "key": True}
FIRST = "*:mappings.product[0]"


def system(reference: str = "*", **mappings: list[Document]) -> Document:
    return {"reference": reference, "mappings": mappings}


def target(reference: str, *fields: Document, **more: Any) -> Document:
    return {"reference": reference, "fields": list(fields), **more}


def one(*fields: Document, **more: Any) -> Document:
    """A system with one source entity and one target, both called product."""
    return system(product=[target("product", *fields, **more)])


def link(reference: str, entity: str, *names: str, **more: Any) -> Document:
    return {"reference": reference, "type": "link", "linkEntity": entity, "linkKey": list(names), **more}


def children(reference: str, entity: str, parent: str, **more: Any) -> Document:
    return {
        "reference": reference,
        "type": "children",
        "childEntity": entity,
        "parentIdentifier": parent,
        **more,
    }


def refused(*documents: Any) -> InvalidSchema:
    with pytest.raises(InvalidSchema) as caught:
        schema(*documents)
    return caught.value


# Documents -----------------------------------------------------------------------------------------------


def test_an_error_carries_path_need_and_finding_and_says_them() -> None:
    error = refused(one(KEY, {"reference": "name", "length": 0}))
    assert isinstance(error, CdcError)
    assert isinstance(error, ValueError)
    assert error.path == f"{FIRST}.fields[1].length"
    assert error.needed == "a whole number from 1 to 2147483647"
    assert error.found == 0
    assert str(error) == f"{error.path} must be a whole number from 1 to 2147483647; it is 0."


DOCUMENTS: dict[str, tuple[Any, str]] = {
    "no object": ("*", "$"),
    "a list": ([system()], "$"),
    "null": (None, "$"),
    "an unknown property": (system() | {"mapping": {}}, "$"),
    "no reference": ({"mappings": {}}, "$.reference"),
    "an empty reference": ({"reference": "", "mappings": {}}, "$.reference"),
    "a reference that is a number": ({"reference": 5, "mappings": {}}, "$.reference"),
    "no mappings": ({"reference": "*"}, "*:mappings"),
    "mappings that are a text": ({"reference": "*", "mappings": "product"}, "*:mappings"),
    "mappings that are a list": ({"reference": "*", "mappings": [target("product", KEY)]}, "*:mappings"),
    "mappings that are a number": ({"reference": "*", "mappings": 5}, "*:mappings"),
    "a source entity without a name": (
        {"reference": "*", "mappings": {"": [target("product", KEY)]}},
        "*:mappings",
    ),
    "a target that is no list": (
        {"reference": "erp", "mappings": {"product": target("product", KEY)}},
        "erp:mappings.product",
    ),
    "no targets": (system(product=[]), "*:mappings.product"),
    "a target that is a text": ({"reference": "*", "mappings": {"product": ["product"]}}, FIRST),
    "one target twice": (
        system(product=[target("product", KEY), target("product", KEY)]),
        "*:mappings.product",
    ),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_of_another_form_is_refused(name: str) -> None:
    document, path = DOCUMENTS[name]
    assert refused(document).path == path


def test_without_documents_there_is_no_schema() -> None:
    with pytest.raises(InvalidArgument, match=r"schema\(\) needs documents to be one or more documents"):
        schema()


# Entity mappings -----------------------------------------------------------------------------------------

UNIQUE = {"reference": "fact_id", "key": True}

ENTITIES: dict[str, tuple[Document, str]] = {
    "an unknown property": (one(KEY, prioritty=1), ""),
    "no reference": (system(product=[{"fields": [KEY]}]), ".reference"),
    "no fields": (system(product=[{"reference": "product"}]), ".fields"),
    "an empty list of fields": (one(), ".fields"),
    "fields that are an object": (system(product=[{"reference": "product", "fields": KEY}]), ".fields"),
    "a field that is a text": (
        system(product=[{"reference": "product", "fields": ["number"]}]),
        ".fields[0]",
    ),
    "no field that is a key": (one(NAME), ".fields"),
    "no field that is a column": (one(children("parts", "product", "product")), ".fields"),
    "nothing but the deleted indicator": (one({"reference": "deleted_indicator", "key": True}), ".fields"),
    "one field twice": (one(KEY, NAME, NAME), ".fields"),
    "one field in two spellings": (one(KEY, NAME, {"reference": "Name"}), ".fields"),
    "a priority that is a text": (one(KEY, priority="1"), ".priority"),
    "a priority that is a boolean": (one(KEY, priority=True), ".priority"),
    "a priority with decimals": (one(KEY, priority=1.0), ".priority"),
    "a priority of more than 32 bits": (one(KEY, priority=2**31), ".priority"),
    "a reader that is no text": (one(KEY, messageReader={"name": "csv"}), ".messageReader"),
    "an empty reader": (one(KEY, messageReader=""), ".messageReader"),
    "a reader's config that is a list": (one(KEY, messageReaderConfig=[]), ".messageReaderConfig"),
    "filters that are a text": (one(KEY, messageFilters="trim"), ".messageFilters"),
    "a filter that is a number": (one(KEY, messageFilters=["trim", 5]), ".messageFilters[1]"),
    "a filter without a name": (one(KEY, messageFilters=[{"config": {}}]), ".messageFilters[0].name"),
    "a filter with a third property": (
        one(KEY, messageFilters=[{"name": "trim", "options": {}}]),
        ".messageFilters[0]",
    ),
    "a filter's config that is a text": (
        one(KEY, messageFilters=[{"name": "trim", "config": "both"}]),
        ".messageFilters[0].config",
    ),
    "unique that is no boolean": (one(UNIQUE, unique=1, uniqueIdentifier="fact_id"), ".unique"),
    "unique without its identifier": (one(UNIQUE, unique=True), ".uniqueIdentifier"),
    "unique by a field that is not there": (
        one(UNIQUE, unique=True, uniqueIdentifier="id"),
        ".uniqueIdentifier",
    ),
    "unique by a field that is no key": (
        one(KEY, NAME, unique=True, uniqueIdentifier="name"),
        ".uniqueIdentifier",
    ),
    "unique by a field that is read from elsewhere": (
        one(UNIQUE, unique=True, uniqueIdentifier="fact_id", sourceUniqueIdentifier="id"),
        ".uniqueIdentifier",
    ),
    "a sequence that is no key": (
        one(UNIQUE, NAME, unique=True, uniqueIdentifier="fact_id", uniqueSequence="name"),
        ".uniqueSequence",
    ),
    "export that is a text": (one(KEY, export="yes"), ".export"),
    "exported children": (
        system(
            product=[target("product", KEY, children("parts", "part", "product"), export=True)],
            part=[target("part", link("product", "product", "number", key=True))],
        ),
        ".fields",
    ),
    "an export identifier that is no field": (
        one(KEY, export=True, exportIdentifier="id"),
        ".exportIdentifier",
    ),
    "an export identifier that is no text": (one(KEY, export=True, exportIdentifier=1), ".exportIdentifier"),
    "standard fields that are a text": (one(KEY, exportStandardFields="yes"), ".exportStandardFields"),
}


@pytest.mark.parametrize("name", ENTITIES)
def test_an_entity_mapping_that_cannot_be_followed_is_refused(name: str) -> None:
    document, path = ENTITIES[name]
    assert refused(document).path == FIRST + path


def test_an_exported_entity_needs_no_key() -> None:
    found = schema(one(NAME, export=True)).targets["product"]
    assert found.export
    assert found.alternatives == ()


def test_what_documents_a_mapping_is_read_and_says_nothing() -> None:
    document = one({**KEY, "name": "No.", "description": "of the catalogue"}, name="P")
    assert dict(schema(document).targets["product"].fields) == dict(
        schema(one(KEY)).targets["product"].fields
    )


def test_a_data_store_is_refused_since_it_would_change_nothing() -> None:
    for store in ("ElasticSearchDataStore", None):
        with pytest.raises(InvalidSchema, match=r"^\*:mappings\.product\[0\]\.dataStore must be left out: "):
            schema(one(KEY, dataStore=store))


def test_what_is_not_unique_is_given_no_identifier_though_one_is_named() -> None:
    """`unique` decides: without it the field is read from the record like any other."""
    document = one(UNIQUE, unique=False, uniqueIdentifier="fact_id")
    (mapping,) = schema(document).systems["*"].mappings["product"]
    assert mapping.unique_identifier is None


def test_a_unique_entity_is_given_identifier_and_number_under_the_names_of_the_source() -> None:
    sequence = {"reference": "fact_no", "sourceReference": "no", "type": "integer", "key": True}
    identifier = {**UNIQUE, "sourceReference": "id"}
    named = {"uniqueIdentifier": "fact_id", "sourceUniqueIdentifier": "id"}
    numbered = {"uniqueSequence": "fact_no", "sourceUniqueSequence": "no"}
    document = one(identifier, sequence, unique=True, **named, **numbered)
    (mapping,) = schema(document).systems["*"].mappings["product"]
    assert (mapping.unique_identifier, mapping.unique_sequence) == ("id", "no")


# Fields --------------------------------------------------------------------------------------------------

DECIMAL: Document = {"reference": "price", "type": "decimal"}

FIELDS: dict[str, tuple[Document, str]] = {
    "an unknown property": ({"reference": "name", "lenght": 5}, ""),
    "no reference": ({"type": "text"}, ".reference"),
    "a reference that is a list": ({"reference": ["name"]}, ".reference"),
    "a standard column": ({"reference": "guid"}, ".reference"),
    "a standard column in capitals": ({"reference": "Valid_From_Timestamp"}, ".reference"),
    "the deleted indicator in capitals": ({"reference": "DELETED_INDICATOR"}, ".reference"),
    "an empty source": ({"reference": "name", "sourceReference": ""}, ".sourceReference"),
    "an unknown type": ({"reference": "name", "type": "varchar"}, ".type"),
    "a type in capitals": ({"reference": "name", "type": "Text"}, ".type"),
    "a type that is a number": ({"reference": "name", "type": 1}, ".type"),
    "a length of nothing": ({"reference": "name", "length": 0}, ".length"),
    "a length that is a text": ({"reference": "name", "length": "5"}, ".length"),
    "a length that is a boolean": ({"reference": "name", "length": True}, ".length"),
    "a decimal without measures": (DECIMAL, ".scale"),
    "a length of a number": ({"reference": "size", "type": "integer", "length": 5}, ".length"),
    "a scale of a double": ({"reference": "size", "type": "double", "scale": 5}, ".scale"),
    "decimals of a text": ({"reference": "size", "precision": 5}, ".precision"),
    "a decimal with a length": (DECIMAL | {"scale": 4, "precision": 2, "length": 4}, ".length"),
    "a decimal without scale": (DECIMAL | {"precision": 2}, ".scale"),
    "a decimal without precision": (DECIMAL | {"scale": 4}, ".precision"),
    "a decimal with more decimals than digits": (DECIMAL | {"scale": 2, "precision": 4}, ".precision"),
    "a decimal of 39 digits": (DECIMAL | {"scale": 39, "precision": 2}, ".scale"),
    "a decimal of no digits": (DECIMAL | {"scale": 0, "precision": 0}, ".scale"),
    "a decimal with less than no decimals": (DECIMAL | {"scale": 4, "precision": -1}, ".precision"),
    "a key that is a number": ({"reference": "name", "key": 1}, ".key"),
    "a key without a name": ({"reference": "name", "key": ""}, ".key"),
    "a key that is a number of any size": ({"reference": "name", "type": "number", "key": True}, ".type"),
    "a key that is a double": ({"reference": "name", "type": "double", "key": "other"}, ".type"),
    "a key that is children": (children("parts", "part", "product", key=True), ".type"),
    "a priority that is a text": ({"reference": "name", "priority": "high"}, ".priority"),
    "a link without an entity": ({"reference": "a", "type": "link", "linkKey": "x"}, ".linkEntity"),
    "a link without a key": ({"reference": "a", "type": "link", "linkEntity": "product"}, ".linkKey"),
    "a link's entity on a text": ({"reference": "a", "linkEntity": "product"}, ".linkEntity"),
    "a link's key on a text": ({"reference": "a", "linkKey": "number"}, ".linkKey"),
    "a link's key on children": (children("a", "part", "product") | {"linkKey": "number"}, ".linkKey"),
    "a link's key that is empty": (link("a", "product"), ".linkKey"),
    "a link's key that is a number": (link("a", "product") | {"linkKey": 5}, ".linkKey"),
    "a link's key with an empty part": (link("a", "product") | {"linkKey": "number,,name"}, ".linkKey"),
    "a link's key with a number in it": (link("a", "product") | {"linkKey": ["number", 5]}, ".linkKey"),
    "a link's key with one part twice": (link("a", "product", "number", "number"), ".linkKey"),
    "fewer source names than the key has": (
        link("a", "product", "number", "name", sourceLinkKey="number"),
        ".sourceLinkKey",
    ),
    "autocreate that is a text": (link("a", "product", "number", autocreate="yes"), ".autocreate"),
    # What is no link makes nothing.
    "autocreate on a text": ({"reference": "name", "autocreate": True}, ".autocreate"),
    "autocreate on children": (children("a", "part", "product", autocreate=True), ".autocreate"),
    "a child's number on a text": ({"reference": "name", "childSequence": "no"}, ".childSequence"),
    "children without an entity": (
        {"reference": "a", "type": "children", "parentIdentifier": "p"},
        ".childEntity",
    ),
    "children without a parent's field": (
        {"reference": "a", "type": "children", "childEntity": "part"},
        ".parentIdentifier",
    ),
    "a child's entity on a link": (link("a", "product", "number", childEntity="part"), ".childEntity"),
    "a parent's source that is a number": (
        children("a", "part", "product") | {"sourceParentIdentifier": 5},
        ".sourceParentIdentifier",
    ),
    "a parent's field on a text": ({"reference": "a", "parentIdentifier": "p"}, ".parentIdentifier"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_cannot_be_followed_is_refused(name: str) -> None:
    document, path = FIELDS[name]
    assert refused(one(KEY, document)).path == f"{FIRST}.fields[1]{path}"


def test_a_linked_key_is_a_list_or_a_text_with_commas() -> None:
    fields = [{"reference": "country", "key": True}, {"reference": "number", "key": True}]
    site = target("site", *fields)
    plans = []
    for names in (["country", "number"], "country, number", "number,country"):
        visit = target("visit", KEY, link("site", "site") | {"linkKey": names})
        found = schema(system(site=[site], visit=[visit]))
        (place,) = found.targets["visit"].mappings
        plans.append(found.key_plan(place, found.mapping(place).fields[1]))
    assert plans[0] == plans[1] == plans[2]
    assert [part.field for part in plans[0].parts] == ["country", "number"]
    assert plans[0].whole


def test_a_field_named_deleted_indicator_renames_it_and_is_no_column() -> None:
    document = one(KEY, {"reference": "deleted_indicator", "sourceReference": "gone", "type": "boolean"})
    found = schema(document)
    (mapping,) = found.systems["*"].mappings["product"]
    assert mapping.deleted_source == "gone"
    assert list(found.targets["product"].fields) == ["number"]


# Between mappings ----------------------------------------------------------------------------------------


def test_of_one_reference_there_is_one_document() -> None:
    error = refused(system("erp"), one(KEY), system("erp"))
    assert (error.path, error.found) == ("reference", "erp")


TEXT_NUMBER: Document = {"reference": "number", "key": True}

DIFFERING: dict[str, tuple[Document, Document, str]] = {
    "another type": (KEY, TEXT_NUMBER, ".fields[1].type"),
    "a decimal of other measures": (
        {"reference": "number", "type": "decimal", "scale": 4, "precision": 2, "key": True},
        {"reference": "number", "type": "decimal", "scale": 5, "precision": 2, "key": True},
        ".fields[1].type",
    ),
    "a text where there is a link": (
        link("number", "product", "number"),
        {"reference": "number"},
        ".fields[1].type",
    ),
    "another spelling": (TEXT_NUMBER, {"reference": "Number", "key": True}, ".fields[1]"),
}


@pytest.mark.parametrize("name", DIFFERING)
def test_a_field_is_the_same_in_all_mappings_of_its_target(name: str) -> None:
    first, second, path = DIFFERING[name]
    one_document = system("a", product=[target("thing", {"reference": "id", "key": True}, first)])
    other = system("b", goods=[target("thing", {"reference": "id", "key": True}, second)])
    if first["reference"] == "number" and first.get("type") == "link":
        one_document["mappings"]["product"].append(target("product", TEXT_NUMBER))
    # Systems are read in the order of their names, whatever the order in which they are given.
    assert refused(other, one_document).path == f"b:mappings.goods[0]{path}"


def test_texts_of_two_lengths_and_a_number_that_is_a_double_are_of_one_type() -> None:
    short = target("thing", {**TEXT_NUMBER, "length": 5}, {"reference": "size", "type": "number"})
    long = target("thing", {**TEXT_NUMBER, "length": 50}, {"reference": "size", "type": "double"})
    found = schema(system("a", thing=[short]), system("b", thing=[long]))
    assert found.targets["thing"].data.simpleString() == "struct<number:string,size:double>"


def test_an_entity_is_exported_by_all_its_mappings_or_by_none() -> None:
    error = refused(
        system("a", product=[target("product", KEY)]),
        system("b", goods=[target("product", KEY, export=True)]),
    )
    assert (error.path, error.found) == ("b:mappings.goods[0].export", True)


def test_fields_stand_in_the_order_in_which_they_are_first_named_the_default_system_first() -> None:
    colour, size = {"reference": "colour"}, {"reference": "size", "type": "integer"}
    found = schema(
        system("web", product=[target("product", size, KEY)]),
        system("erp", product=[target("product", colour, KEY)]),
        one(KEY, NAME),
    )
    assert list(found.targets["product"].fields) == ["number", "name", "colour", "size"]
    assert list(found.systems) == ["*", "erp", "web"]


def test_a_key_is_strict_when_all_mappings_have_the_same_in_any_order() -> None:
    a, b = {"reference": "a", "key": True}, {"reference": "b", "key": True}
    found = schema(system("x", t=[target("t", a, b)]), system("y", t=[target("t", b, a)])).targets["t"]
    assert found.strict
    assert found.alternatives == (("a", "b"),)


def test_keys_are_weak_when_mappings_differ_or_name_alternatives() -> None:
    a, b = {"reference": "a", "key": True}, {"reference": "b", "key": True}
    by_mapping = schema(system("x", t=[target("t", a)]), system("y", t=[target("t", b)])).targets["t"]
    by_name = schema(one(a, {"reference": "b", "key": "other"})).targets["product"]
    assert by_mapping.alternatives == by_name.alternatives == (("a",), ("b",))
    assert not by_mapping.strict
    assert not by_name.strict


# Links ---------------------------------------------------------------------------------------------------

CUSTOMER = target("customer", {"reference": "no", "sourceReference": "nr", "key": True}, NAME)
PERSON = target("person", {"reference": "emp", "key": "emp"}, {"reference": "nino", "key": "nino"})
SITE = target("site", {"reference": "country", "key": True}, {"reference": "no", "key": True})

LINKS: dict[str, tuple[Document, str]] = {
    "to nobody": (link("x", "nobody", "nr"), ".linkEntity"),
    "by a field that is no key": (link("x", "customer", "name"), ".linkKey"),
    "by a field that is not there": (link("x", "customer", "number"), ".linkKey"),
    "by the target's name of a field": (link("x", "customer", "no"), ".linkKey"),
    "by a key and more": (link("x", "customer", "nr", "name"), ".linkKey"),
    "to what is exported": (link("x", "letter", "id"), ".linkEntity"),
    "as a key, by part of a key": (link("x", "site", "country", key=True), ".linkKey"),
    "as a key, by two keys at once": (link("x", "person", "emp", "nino", key=True), ".linkKey"),
    "making what it knows in part": (link("x", "site", "country", autocreate=True), ".autocreate"),
    "making what has several keys": (link("x", "person", "emp", autocreate=True), ".autocreate"),
}


@pytest.mark.parametrize("name", LINKS)
def test_a_link_that_cannot_be_followed_is_refused(name: str) -> None:
    field, path = LINKS[name]
    letter = target("letter", {"reference": "id", "key": True}, export=True)
    document = system(
        customer=[CUSTOMER],
        person=[PERSON],
        site=[SITE],
        letter=[letter],
        order=[target("order", KEY, field)],
    )
    assert refused(document).path == f"*:mappings.order[0].fields[1]{path}"


def test_a_link_names_the_target_where_its_system_has_no_such_source_entity() -> None:
    here = system("a", order=[target("order", KEY, link("x", "customer", "no"))])
    found = schema(here, system("b", client=[CUSTOMER]))
    (place,) = found.targets["order"].mappings
    plan = found.key_plan(place, found.mapping(place).fields[1])
    assert (plan.entity, plan.whole, plan.mapping) == ("customer", True, None)
    wrong = system("a", order=[target("order", KEY, link("x", "customer", "nr"))])
    assert refused(wrong, system("b", client=[CUSTOMER])).path == "a:mappings.order[0].fields[1].linkKey"


def test_a_link_may_name_the_source_fields_of_a_link_in_the_linked_key() -> None:
    visit = target(
        "visit", link("site", "site", "country", "no", key=True), {"reference": "day", "key": True}
    )
    report = target("report", KEY, link("visit", "visit", "country", "no", "day"))
    found = schema(system(site=[SITE], visit=[visit], report=[report]))
    (place,) = found.targets["report"].mappings
    plan = found.key_plan(place, found.mapping(place).fields[1])
    assert plan.whole
    assert [part.field for part in plan.parts] == ["site", "day"]


def test_an_inner_link_needs_all_its_fields() -> None:
    visit = target(
        "visit", link("site", "site", "country", "no", key=True), {"reference": "day", "key": True}
    )
    report = target("report", KEY, link("visit", "visit", "country", "day"))
    error = refused(system(site=[SITE], visit=[visit], report=[report]))
    assert error.path == "*:mappings.report[0].fields[1].linkKey"


def test_keys_do_not_lead_back_to_themselves() -> None:
    a = target("a", ID, link("b", "b", "id", "a", key=True))
    b = target("b", ID, link("a", "a", "id", "b", key=True))
    error = refused(system(a=[a], b=[b]))
    assert (error.path, error.found) == ("mappings", ["a", "b", "a"])


def test_a_link_does_not_look_itself_up() -> None:
    """The key of b is read from the link in b, which is read from the key of a, which is read from ..."""
    a, b = target("a", ID, link("b", "b", "id", key=True)), target("b", ID, link("a", "a", "id", key=True))
    assert refused(system(a=[a], b=[b])).path == "*:mappings.a[0].fields[1].linkKey"


def test_links_that_are_no_keys_may_lead_in_a_circle() -> None:
    document = system(customer=[target("customer", TEXT_NUMBER, link("referrer", "customer", "number"))])
    assert schema(document).targets["customer"].links == ("referrer",)


# Children ------------------------------------------------------------------------------------------------

LINE = target("line", link("order", "order", "number", key=True), {"reference": "line_no", "key": True})
LINES = children("lines", "line", "order")


def test_children_that_can_be_followed() -> None:
    found = schema(system(order=[target("order", KEY, LINES)], line=[LINE]))
    assert found.families == ["order", "line"]
    assert [str(place) for place in found.all_mappings if "line" in found.reachable_targets(place)] == [
        "*:mappings.order[0]",
        "*:mappings.line[0]",
    ]


CHILDREN: dict[str, tuple[Document, str]] = {
    "of nobody": (children("lines", "nobody", "order"), ".childEntity"),
    "of a target that is no source entity": (children("lines", "order_line", "order"), ".childEntity"),
    "by a field that is not there": (children("lines", "line", "parent"), ".parentIdentifier"),
    "by a field that is no link": (children("lines", "line", "line_no"), ".parentIdentifier"),
    "by a link that is no key": (children("lines", "note", "order"), ".parentIdentifier"),
    "that are exported": (children("lines", "letter", "order"), ".childEntity"),
    # The numbers would go nowhere.
    "numbered in a field that is not there": (
        children("lines", "line", "order", childSequence="line_number"),
        ".childSequence",
    ),
    "numbered in no field": (
        children("lines", "line", "order", sourceChildSequence="line_no"),
        ".childSequence",
    ),
    "numbered in a field that is read from elsewhere": (
        children("lines", "line", "order", childSequence="line_no", sourceChildSequence="number"),
        ".childSequence",
    ),
}


def test_a_link_that_one_mapping_has_in_a_weak_key_leads_by_a_whole_key_in_all() -> None:
    """What another mapping looks up would be a key that is not known yet: a marked text, in the history."""
    desk = target("desk", {"reference": "floor", "key": True}, {"reference": "no", "key": True})
    number = {"reference": "number", "key": "number"}
    here = target("person", number, link("desk", "desk", "floor", "no", key="place"))
    there = target("person", number, link("desk", "desk", "no"))
    error = refused(system("a", desk=[desk], person=[here]), system("b", desk=[desk], person=[there]))
    assert error.path == "b:mappings.person[0].fields[1].linkKey"
    assert "the one whole key of desk, the link being part of a weak key" in str(error)


@pytest.mark.parametrize("name", CHILDREN)
def test_children_that_cannot_be_followed_are_refused(name: str) -> None:
    field, path = CHILDREN[name]
    document = system(
        order=[target("order", KEY, field)],
        line=[{**LINE, "reference": "order_line"}],
        note=[target("note", TEXT_NUMBER, link("order", "order", "number"))],
        letter=[target("letter", link("order", "order", "number", key=True), export=True)],
    )
    assert refused(document).path == f"*:mappings.order[0].fields[1]{path}"


def test_two_lists_of_one_record_do_not_name_the_same_children() -> None:
    """Each names all lines of its order: those of the other list would be deleted, every time."""
    line = {**LINE, "fields": [*LINE["fields"], link("gift_of", "order", "number", key=True)]}
    of_order = {"line": [line], "gift": [line], "note": [{**LINE, "reference": "note"}]}

    def orders(*fields: Document) -> Document:
        return system(order=[target("order", KEY, LINES, *fields)], **of_order)

    for entity in ("line", "gift"):
        error = refused(orders(children("gifts", entity, "order")))
        assert error.path == "*:mappings.order[0].fields[1].childEntity"
        assert "an entity that no other list of the record names by 'order'; it is 'line'" in str(error)
    schema(orders(children("gifts", "gift", "gift_of"), children("notes", "note", "order")))


def test_children_are_numbered_in_a_field_of_one_of_their_targets() -> None:
    """A line goes to two targets, and one of them has a place for its number."""
    number = {"reference": "place", "sourceReference": "no", "type": "integer"}
    lines = LINES | {"childSequence": "place", "sourceChildSequence": "no"}
    twice = [{**LINE, "fields": [*LINE["fields"], number]}, {**LINE, "reference": "note"}]
    found = schema(system(order=[target("order", KEY, lines)], line=twice))
    assert found.families == ["order", "line", "note"]


def test_autocreate_that_is_false_may_stand_anywhere() -> None:
    assert schema(one(KEY, {**NAME, "autocreate": False})).autocreated == set()


def test_a_child_entity_is_of_the_same_system() -> None:
    error = refused(system("a", order=[target("order", KEY, LINES)]), system("b", line=[LINE]))
    assert error.path == "a:mappings.order[0].fields[1].childEntity"


def test_a_parent_has_one_key() -> None:
    weak = target("order", {"reference": "number", "key": "a"}, {"reference": "code", "key": "b"}, LINES)
    error = refused(system(order=[weak], line=[LINE]))
    assert error.path == "*:mappings.order[0].fields[2]"


def test_a_parent_is_weak_by_what_another_system_says() -> None:
    other = system("b", order=[target("order", {"reference": "code", "key": True})])
    error = refused(system("a", order=[target("order", KEY, LINES)], line=[LINE]), other)
    assert error.path == "a:mappings.order[0].fields[1]"


def test_a_parents_field_leads_to_the_parent() -> None:
    """A child's field is given the guid of the order that holds it: in a link to customers it would be
    the guid of no customer."""
    line = target("line", link("customer", "customer", "nr", key=True), {"reference": "line_no", "key": True})
    order = target("order", KEY, children("lines", "line", "customer"))
    error = refused(system(customer=[CUSTOMER], order=[order], line=[line]))
    assert error.path == "*:mappings.order[0].fields[1].parentIdentifier"


def test_children_do_not_hold_their_parents() -> None:
    """As the parent is part of a child's key, their keys lead back to themselves too."""
    a = target("a", ID, link("b", "b", "id", "a", key=True), children("bs", "b", "a"))
    b = target("b", ID, link("a", "a", "id", "b", key=True), children("as", "a", "b"))
    assert refused(system(a=[a], b=[b])).found == ["a", "b", "a"]
    own = target("own", ID, link("above", "own", "id", "above", key=True), children("owns", "own", "above"))
    assert refused(system(own=[own])).found == ["own", "own"]


def test_a_key_is_not_called_true() -> None:
    for key in ("true", "False"):
        error = refused(system(a=[target("a", {"reference": "id", "key": key})]))
        assert (error.path, error.found) == ("*:mappings.a[0].fields[0].key", key)


def test_children_hold_their_parents_by_no_other_field_either() -> None:
    above = link("z", "z", "id", key=True)
    x, y = target("x", ID, above, children("ys", "y", "z")), target("y", ID, above, children("xs", "x", "z"))
    error = refused(system(x=[x], y=[y], z=[target("z", ID)]))
    assert error.path in ("*:mappings.x[0].fields", "*:mappings.x[0].fields[2].parentIdentifier")


# Readers and filters -------------------------------------------------------------------------------------


def test_a_hub_needs_the_readers_that_its_schema_names(spark: SparkSession, tmp_path: Path) -> None:
    shop = schema(one(KEY, messageReader="edifact"))
    with pytest.raises(InvalidArgument) as caught:
        Hub(spark, shop, tmp_path, readers={"other": lambda data, context: []})
    error = caught.value
    assert error.argument == "readers['edifact']"
    assert error.needed == f"given for {FIRST}.messageReader"
    assert error.found == ["csv", "file", "json", "other"]


def test_a_hub_needs_the_filters_that_its_schema_names(spark: SparkSession, tmp_path: Path) -> None:
    shop = schema(one(KEY, messageFilters=["trim", {"name": "drop"}]))
    with pytest.raises(InvalidArgument) as caught:
        Hub(spark, shop, tmp_path, filters={"trim": lambda record, context: record})
    error = caught.value
    assert error.argument == "filters['drop']"
    assert error.needed == f"given for {FIRST}.messageFilters"
    assert error.found == ["trim"]


def test_readers_and_filters_of_child_entities_are_needed_too(spark: SparkSession, tmp_path: Path) -> None:
    line = {**LINE, "messageFilters": ["drop"]}
    shop = schema(system(order=[target("order", KEY, LINES)], line=[line]))
    with pytest.raises(InvalidArgument, match=r"filters\['drop'\] to be given for \*:mappings\.line\[0\]"):
        Hub(spark, shop, tmp_path)


# Folders -------------------------------------------------------------------------------------------------


def write(folder: Path, name: str, document: Any) -> None:
    (folder / name).write_text(json.dumps(document), encoding="utf-8")


def test_a_folder_holds_a_document_per_file(tmp_path: Path) -> None:
    write(tmp_path, "default.json", one(KEY))
    write(tmp_path, "erp.json", system("erp", goods=[target("product", KEY, NAME)]))
    (tmp_path / "README.md").write_text("no document")
    found = read_schema(tmp_path)
    assert isinstance(found, Schema)
    assert list(found.systems) == ["*", "erp"]
    assert list(read_schema(str(tmp_path)).targets["product"].fields) == ["number", "name"]


@pytest.mark.parametrize("content", [b"{", b"", b'{"reference": "caf\xe9"}', b'{"a": 1} {}'])
def test_a_file_that_is_no_json_is_named(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, "default.json", one(KEY))
    (tmp_path / "erp.json").write_bytes(content)
    with pytest.raises(InvalidSchema, match=r"^erp\.json must be JSON text in UTF-8; it is ['\"]") as caught:
        read_schema(tmp_path)
    assert caught.value.path == "erp.json"


def test_a_file_that_has_a_name_twice_is_named(tmp_path: Path) -> None:
    """Of a source entity that is written twice, the first mappings would not hold."""
    product = json.dumps([target("product", KEY)])
    text = f'{{"reference": "erp", "mappings": {{"goods": {product}, "goods": {product}}}}}'
    (tmp_path / "erp.json").write_text(text)
    with pytest.raises(InvalidSchema, match=r"^erp\.json must be JSON that .*the name 'goods' comes twice"):
        read_schema(tmp_path)


def test_a_file_that_is_nested_without_end_is_named(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(InvalidSchema, match=r"^deep\.json must be"):
        read_schema(tmp_path)


def test_a_file_without_an_object_is_named(tmp_path: Path) -> None:
    """Of many files the error says which: `$` is the root of each."""
    write(tmp_path, "default.json", one(KEY))
    write(tmp_path, "erp.json", [system("erp")])
    with pytest.raises(InvalidSchema, match=r"erp\.json"):
        read_schema(tmp_path)


def test_a_folder_without_documents_is_no_schema(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"needs folder to be a folder with files \*\.json"):
        read_schema(tmp_path)
    with pytest.raises(InvalidArgument, match="folder"):
        read_schema(tmp_path / "not there")
