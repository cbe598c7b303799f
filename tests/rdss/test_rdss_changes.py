"""`changes`: messages about objects as changes of one kind of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from cdckit import merge, rdss, rejects
from cdckit.errors import InvalidArgument, MissingColumns
from cdckit.model.records import RECORD_SCHEMA
from cdckit.model.rejected_records import drop_rejects
from cdckit.rdss.object_bodies import NESTED
from cdckit.rdss.objects import ObjectType
from cdckit.rdss.validators import schemas
from support.rdss_messages import as_bytes, message

ONE, TWO = "00000384-0000-4000-8000-000000000000", "00000999-0000-4000-8000-000000000000"


def told(name: str, number: int, at: str, body: dict[str, Any] | None = None, **header: Any) -> bytes:
    """A message of the cases, published at *at*; what *body* has as None is taken out of it."""
    made = message(name)
    made["messageHeader"] |= {"messageId": f"{number:08}-0000-4000-8000-000000000000", **header}
    made["messageHeader"]["messageTimings"] = {"publishedTimestamp": f"2024-03-01T{at}:00Z"}
    values = {**made["messageBody"], **(body or {})}
    made["messageBody"] = {key: value for key, value in values.items() if value is not None}
    return as_bytes(made)


POINT = {"geospatialCoverage": [{"geolocationPoint": {"longitude": 7, "latitude": 51.5}}]}
VALUES = [
    told("create", 1, "09:00", {"coverage": POINT}, returnAddress="queue/7").replace(b"51.5", b"51.50"),
    told("create", 2, "10:00", {"objectTitle": "Tides 2", "objectFile": None, "language": None}),
    told("delete", 3, "11:00", generator="library"),
    told("article", 4, "12:00", {"objectUUID": TWO}),
    told("read", 5, "12:00"),
    told("response", 6, "12:00", {"objectTitle": "not a change"}),
    told("preservation", 7, "12:00"),
    b"?",
    told("create", 8, "09:00", {"objectUUID": None}),
    told("create", 9, "12:30", {"objectTitle": "Public now"}),
    told("update", 10, "13:00", {"objectResourceType": "software", "objectTitle": "A program"}),
]


@pytest.fixture(scope="module")
def decoded(spark: SparkSession) -> DataFrame:
    rows = [
        (None, value, "rdss", 0, offset, datetime(2024, 3, 2), 0, None) for offset, value in enumerate(VALUES)
    ]
    found = rdss.decode(spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1))
    return spark.createDataFrame(found.collect(), found.schema)


def collected(decoded: DataFrame, kind: str) -> list[Row]:
    made = drop_rejects(rdss.changes(decoded, kind))
    return sorted(made.collect(), key=lambda row: row["arrival"]["offset"])


@pytest.fixture(scope="module")
def datasets(decoded: DataFrame) -> list[Row]:
    return collected(decoded, "Dataset")


def test_messages_in_error_are_rejects_of_every_kind(decoded: DataFrame) -> None:
    """Which of them one would have been about nobody can tell."""
    for kind in ("Dataset", "Article"):
        refused = rejects(rdss.changes(decoded, kind)).orderBy("offset").collect()
        assert [(row["offset"], bytes(row["value"])) for row in refused] == [(n, VALUES[n]) for n in (7, 8)]


def test_creates_and_updates_of_the_kind_are_upserts_and_all_else_is_a_delete(datasets: list[Row]) -> None:
    found = [(row["arrival"]["offset"], row["operation"], row["data"]["objectUUID"]) for row in datasets]
    assert found == [
        (0, "upsert", ONE),
        (1, "upsert", ONE),
        (2, "delete", ONE),
        (3, "delete", TWO),
        (9, "upsert", ONE),
        (10, "delete", ONE),
    ]


def test_a_change_says_what_the_header_says(datasets: list[Row]) -> None:
    names = ("message_id", "source", "sequence", "priority", "return_address", "tenant_jisc_id")
    assert [tuple(row[name] for name in names) for row in (datasets[0], datasets[2])] == [
        ("00000001-0000-4000-8000-000000000000", "repository", "", 0, "queue/7", 7),
        ("00000003-0000-4000-8000-000000000000", "library", "", 0, None, 7),
    ]
    assert [row["effective_timestamp"].hour for row in datasets] == [9, 10, 11, 12, 12, 13]
    arrival = {
        "timestamp": datetime(2024, 3, 2),
        "topic": "rdss",
        "partition": 0,
        "offset": 2,
        "record_number": 1,
    }
    assert datasets[2]["arrival"].asDict() == arrival


def test_an_object_is_whole_and_what_it_has_no_more_is_null(datasets: list[Row]) -> None:
    first, second = datasets[0], datasets[1]
    assert first["data"]["language"] == ["en"]
    assert (second["data"]["objectTitle"], second["data"]["language"], second["data"]["objectFile"]) == (
        "Tides 2",
        None,
        None,
    )
    assert all(second["carried"])
    assert [name for name, sent in datasets[2]["carried"].asDict().items() if sent] == ["objectUUID"]


def test_what_is_nested_is_json_in_one_form_with_every_digit(datasets: list[Row]) -> None:
    data = datasets[0]["data"]
    assert (
        data["coverage"] == '{"geospatialCoverage":[{"geolocationPoint":{"latitude":51.50,"longitude":7}}]}'
    )
    assert data["objectDate"] == '[{"dateType":"published","dateValue":"2024-02-29T00:00:00Z"}]'


def test_research_objects_are_all_objects_with_the_fields_of_every_kind(decoded: DataFrame) -> None:
    found = collected(decoded, "ResearchObject")
    titles = [row["data"]["objectTitle"] for row in found]
    assert titles == ["Tides", "Tides 2", None, "On tides", "Public now", "A program"]
    article = found[3]["data"]
    assert (article["publicationVersion"], article["version"]) == (
        message("article")["messageBody"]["publicationVersion"],
        None,
    )


def test_a_history_of_the_kind_is_what_its_messages_tell(decoded: DataFrame) -> None:
    history = merge(rdss.changes(decoded, "Dataset"), entity="dataset", keys=["objectUUID"])
    found = history.orderBy("valid_from_timestamp").collect()
    assert [(row["objectUUID"], row["objectTitle"], row["deleted_indicator"]) for row in found] == [
        (ONE, "Tides", False),
        (ONE, "Tides 2", False),
        (ONE, None, True),
        (ONE, "Public now", False),
        (ONE, None, True),
    ]


@pytest.mark.parametrize("kind", ObjectType)
def test_the_fields_of_a_kind_are_those_of_its_schema(kind: ObjectType) -> None:
    defs = schemas()["cdckit:/rdss/objects.json"]["$defs"]
    inner = {"Dataset": ["dataset"], "Article": ["article"], "ThesisDissertation": ["thesis"]}
    named = inner.get(kind, ["dataset", "article", "thesis", "other"])
    fields = {name: each for one in named for name, each in defs[one]["properties"].items()}
    fields |= defs["common"]["properties"]
    assert set(kind.fields.fieldNames()) == set(fields)
    lists = {name for name, each in fields.items() if each.get("$ref", "").endswith("/texts")}
    assert {each.name for each in kind.fields if each.dataType.simpleString() == "array<string>"} == lists
    scalars = {"text", "uuid", "resourceType", "objectValue", "publicationVersion", "processingCharge"}
    nested = {name for name, each in fields.items() if each.get("$ref", "").rpartition("/")[2] not in scalars}
    assert nested - lists == NESTED & set(fields)


def test_an_unknown_kind_is_refused(decoded: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match="one of ResearchObject, Dataset, Article, ThesisDissertation"):
        rdss.changes(decoded, "dataset")


def test_rows_that_are_not_decoded_are_refused(decoded: DataFrame) -> None:
    with pytest.raises(MissingColumns, match="body"):
        rdss.changes(decoded.drop("body"))
