"""A Kinesis stream in memory: the four calls that a reader and a sender make, and what goes wrong there."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError, ParamValidationError


class Stream:
    """
    Shards of records, numbered over all of them; lists are paged by one shard, as if there were thousands.

    *expired* are iterators that are too old; *throttled* is how many calls are refused from now on.
    """

    def __init__(self, *shards: str) -> None:
        self.records: dict[str, list[tuple[str, bytes]]] = {name: [] for name in shards}
        self.parents: dict[str, list[str]] = {name: [] for name in shards}
        self.closed: set[str] = set()
        self.expired: set[str] = set()
        self.throttled = self.refused = 0
        self._number = 0
        self.exceptions = Exceptions()

    def add(self, shard: str, *values: bytes) -> None:
        for value in values:
            self._number += 1
            self.records[shard].append((f"{self._number:05}", value))

    def reshard(self, parents: list[str], children: list[str]) -> None:
        self.closed |= set(parents)
        for child in children:
            # Kinesis does not promise that a parent is listed before its children.
            self.records = {child: [], **self.records}
            self.parents[child] = parents

    def list_shards(self, StreamName: str = "", NextToken: str = "0") -> dict[str, Any]:  # noqa: N803
        names, place = list(self.records), int(NextToken)
        words = ("ParentShardId", "AdjacentParentShardId")
        names_of_parents = zip(words, self.parents[names[place]], strict=False)
        numbers = {"StartingSequenceNumber": "0"}
        if names[place] in self.closed:
            numbers["EndingSequenceNumber"] = f"{self._number:05}"
        shard = {"ShardId": names[place], "SequenceNumberRange": numbers, **dict(names_of_parents)}
        answer: dict[str, Any] = {"Shards": [shard]}
        if place + 1 < len(names):
            answer["NextToken"] = str(place + 1)
        return answer

    def get_shard_iterator(self, **told: str) -> dict[str, str]:
        after = told.get("StartingSequenceNumber", "")
        place = sum(number <= after for number, _ in self.records[told["ShardId"]])
        return {"ShardIterator": f"{told['ShardId']} {place}"}

    def get_records(self, ShardIterator: str, Limit: int) -> dict[str, Any]:  # noqa: N803
        if Limit > 10_000:
            raise ParamValidationError(report=f"Limit: {Limit} is more than 10000")
        if ShardIterator in self.expired:
            raise self.exceptions.ExpiredIteratorException({}, "GetRecords")
        if self.throttled:
            self.throttled -= 1
            raise self.exceptions.ProvisionedThroughputExceededException({}, "GetRecords")
        shard, place = ShardIterator.split()
        found = self.records[shard][int(place) : int(place) + Limit]
        after = int(place) + len(found)
        left = len(self.records[shard]) - after
        answer: dict[str, Any] = {
            "Records": [{"SequenceNumber": number, "Data": value} for number, value in found],
            "MillisBehindLatest": left * 1000,
        }
        if left or shard not in self.closed:
            answer["NextShardIterator"] = f"{shard} {after}"
        return answer

    def put_record(self, StreamName: str, Data: bytes, PartitionKey: str) -> dict[str, str]:  # noqa: N803
        if self.refused:
            self.refused -= 1
            raise error("ProvisionedThroughputExceededException", 400)
        self.add(next(name for name in self.records if name not in self.closed), Data)
        return {}


class Exceptions:
    class ExpiredIteratorException(ClientError):
        pass

    class ProvisionedThroughputExceededException(ClientError):
        pass


def error(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutRecord")
