"""What `tools/compat.py` runs where nothing but the wheel is installed: each part of cdckit once."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pyspark
from pyspark.sql import functions as F

from cdckit import (
    Lookup,
    as_known,
    as_of,
    as_of_join,
    bitemporal,
    current,
    datahub,
    expectations,
    known_at,
    merge,
    replicate,
    samples,
    session,
    why,
)

KEYS = ["flight_date", "carrier", "flight", "origin"]
NOON = datetime(2013, 2, 8, 17, tzinfo=UTC)


def replicate_and_the_questions() -> None:
    """One flight of the samples: its history, its two times, who said so, and a fact joined to it."""
    records = session().read.parquet(samples("replicate/{metadata,operations}.parquet"))
    told = replicate.table_changes(records, task="operations", table="FLIGHTS")
    mine = told.where("data.flight = 1873 AND data.carrier = 'WN' AND data.flight_date = DATE'2013-02-08'")
    changes = mine.cache()
    history = merge(changes, entity="flight", keys=KEYS).cache()
    row = as_of(history, NOON).collect()[0]
    assert row["status"] == "delayed", row
    believed = bitemporal(changes, entity="flight", keys=KEYS)
    then = known_at(believed, NOON).select("guid", "valid_from_timestamp", "status")
    known = as_known(changes, NOON, entity="flight", keys=KEYS).select(then.columns)
    assert then.count() > 1, then.count()
    assert sorted(map(str, then.collect())) == sorted(map(str, known.collect()))
    key = {name: row[name] for name in KEYS}
    verdicts = why(changes, key, "status", keys=KEYS, at=NOON).where("verdict = 'WON'").collect()
    assert [each["value"] for each in verdicts] == ["delayed"], verdicts
    facts = session().createDataFrame([(1873, NOON)], "flight int, at timestamp")
    field = history.schema["flight"].dataType
    facts = facts.withColumn("flight", F.col("flight").cast(field))
    joined = as_of_join(facts, Lookup(history, on="flight", into="found"), time="at")
    assert [each["found"]["status"] for each in joined.collect()] == ["delayed"]


def a_hub() -> None:
    """A hub with the samples' schema takes a message, and with one of its own makes a history."""
    assert datahub.read_schema(samples("datahub/schema")).targets
    fields = [{"reference": "code", "key": True}, {"reference": "name"}]
    mapping = {"reference": "airport", "fields": fields}
    schema = datahub.schema({"reference": "*", "mappings": {"airport": [mapping]}})
    with tempfile.TemporaryDirectory() as folder:
        hub = datahub.Hub(session(), schema, folder)
        for name in ("Idlewild", "John F. Kennedy"):
            said = {"guid": name, "entity": "airport", "data": {"code": "JFK", "name": name}}
            hub.receive(datahub.records(session(), [said], at=NOON))
            hub.process(now=NOON)
        (row,) = current(hub.history("airport")).collect()
        assert row["name"] == "John F. Kennedy", row


def main() -> None:
    """Every part; says with what."""
    for name in ("history.json", "messages.json"):
        assert json.loads(Path(expectations(name)).read_text())["expectations"]
    replicate_and_the_questions()
    a_hub()
    session().stop()
    found = (f"{name} {version(name)}" for name in ("pyarrow", "pandas", "numpy", "datafusion"))
    print(f"every part once, with PySpark {pyspark.__version__}, {', '.join(found)}")


if __name__ == "__main__":
    main()
