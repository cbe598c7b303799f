"""The rules of a service on states that are dictionaries, without a JVM: any batches give what one gives."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from cdckit.streams.catalogue import ENTITY
from cdckit.streams.documents import ANSWERED_AT
from cdckit.streams.service_rules import (
    Answer,
    CompleteResponse,
    EntityPatch,
    ForgetEntity,
    ForgetResponses,
    LearnedType,
    ServiceRules,
    read_state,
)
from support.service_memory import ServiceInMemory
from support.stream_programs import Record, drawn_log
from tools.tiers import seeds


@seeds(1, 2, 3, soak=50)
def test_any_batches_give_what_one_gives(seed: int) -> None:
    chance, log = random.Random(seed), drawn_log(seed, 150)
    whole = ServiceInMemory()
    whole.receive(log)
    expected = whole.became()
    assert all(expected.values())
    # The requests of an entity come in their order; what is read of one type by several entities does, too.
    for batches in (4, len(log)):
        cuts = [0, *sorted(chance.sample(range(1, len(log)), batches - 1)), len(log)]
        service = ServiceInMemory()
        for start, stop in pairwise(cuts):
            service.receive(log[start:stop])
        assert service.became() == expected


def test_an_entity_is_forgotten_in_what_waits_too() -> None:
    """Its request waits as before, and is complete once the other part is there."""
    header = {"db": "d", "clientid": "c", "user": "u", "begun": 1, "request": 1, "parts": 2}
    ada = {"collection": "People", "zone": "z", "entity": "ada", "part": 1}
    ops = [{"op": "add", "path": "secret", "value": "secret of ada"}]
    record = (None, json.dumps({**header, **ada, "ops": ops}).encode(), "entity-patches", 0, 0, None, 0, None)
    service = ServiceInMemory()
    service.receive([record])
    assert [said.waits_for for said in service.outcomes.values()] == [
        "1 of 2 parts, the first of them part 2"
    ]
    key = ("d", "People", "z", "ada")
    forgotten = ForgetEntity(dict(zip(ENTITY, key, strict=True)))
    service.fold([forgotten, ForgetResponses(("c", 1), key)], ServiceRules(None, 1000, 100))
    # Its scope is left by name alone, which files that are written anew do not have.
    kept = {scope: state for scope, state in service.states.items() if state.state is not None}
    assert "ada" not in repr(kept)
    bob = {**ada, "entity": "bob", "part": 2}
    service.receive([(None, json.dumps({**header, **bob, "ops": ops}).encode(), *record[2:])])
    [complete] = [row.columns for row in service.rows if isinstance(row, CompleteResponse)]
    hers, his = map(json.loads, complete["responses"])
    assert (hers["part"], hers["status"], hers.get("entity")) == (1, 3, None)
    assert (his["part"], his["status"], his["entity"]) == (2, 1, "bob")
    entities = [read_state(scope, state.state)[:4] for (_, scope), state in kept.items() if "[" in scope]
    assert ("d", "People", "z", "ada") not in entities


def test_what_is_learnt_counts_all_entities_and_parts_that_contradict_each_other_are_kept() -> None:
    def patch(entity: str, value: Any, **more: Any) -> Record:
        where = {"db": "d", "collection": "Mugs", "zone": "z", "entity": entity, "learning": True}
        header = {"clientid": "c", "user": "u", "begun": 1, "request": 1, "part": 1, "parts": 1, **more}
        text = json.dumps({**where, **header, "ops": [{"op": "add", "path": "cl", "value": value}]})
        return (None, text.encode(), "entity-patches", 0, 0, None, 0, None)

    service = ServiceInMemory()
    service.receive([patch("m1", 25)])
    service.receive([patch("m2", "large", request=2, parts=2)])
    learned = [row.columns for row in service.rows if isinstance(row, LearnedType)]
    types = [json.loads(row["entity_type"])["Mugs"]["fields"]["cl"]["type"] for row in learned]
    assert list(zip(types, (row["entities"] for row in learned), strict=True)) == [
        ("INTEGER", 1),
        ("STRING", 2),
    ]
    service.receive([patch("m3", 1, request=2, part=2, parts=3)])
    service.receive([patch("m4", 1, request=2, part=2, parts=2)])
    assert [said.code for said in service.outcomes.values()] == ["CONTRADICTING"] * 3


def sent(entity: str | None, value: Any = 1, *, client: str = "c", offset: int | None = None) -> Record:
    """A patch of a batch of its own; one without an *entity* names none."""
    patch = {"collection": "Mugs", "zone": "z", "entity": entity}
    patch = {name: text for name, text in patch.items() if text is not None}
    ops = [{"op": "add", "path": "cl", "value": value}]
    header = {"db": "d", "clientid": client, "user": "u", "begun": 1, "request": 1}
    text = json.dumps({**header, "patches": [{**patch, "ops": ops}]})
    return (None, text.encode(), "entity-batches", 0, offset, None, 0, None)


def test_a_patch_without_an_entity_that_comes_again_is_a_repeat_in_any_batch() -> None:
    for batches in ([[sent(None), sent(None)]], [[sent(None)], [sent(None)]]):
        service = ServiceInMemory()
        for batch in batches:
            service.receive(batch)
        answers = [row.columns for row in service.rows if isinstance(row, Answer)]
        assert [(row["status"], row["is_repeat"]) for row in answers] == [(3, False), (None, True)]


def test_clients_without_a_name_come_first() -> None:
    """Of patches that came at one place the client decides, and one is an empty text."""
    service = ServiceInMemory()
    service.receive([sent("m1", 1, client="c"), sent("m1", 2, client="")])
    [document] = [
        read_state(key[1], state.state)[4] for key, state in service.states.items() if key[0] == "entities"
    ]
    assert document == '{"cl":1}'


def written(offset: int, second: int, *ops: Any, partition: int = 0, schema: bool = False) -> Record:
    """A patch of one mug, or of the schema of mugs, at a second of its producer's clock."""
    stream = "schema-patches" if schema else "entity-patches"
    where = {} if schema else {"collection": "Mugs", "zone": "z", "entity": "m1"}
    header = {"db": "d", "clientid": f"c{partition}", "user": "u", "begun": 1, "request": offset}
    text = json.dumps({**header, **where, "part": 1, "parts": 1, "ops": ops})
    return (None, text.encode(), stream, partition, offset, datetime.fromtimestamp(second, UTC), 0, None)


def documents(service: ServiceInMemory, fold: str) -> list[str]:
    return [read_state(key[1], state.state)[-5] for key, state in service.states.items() if key[0] == fold]


@pytest.mark.parametrize("cuts", [[2], [1, 1]])
def test_a_partition_is_an_append_only_log_whatever_its_producers_clocks_say(cuts: list[int]) -> None:
    """In one batch, in two, and made anew: the patch that stands behind another one comes after it."""
    cl = "Mugs/fields/cl"
    log = [
        [written(10, 5, {"op": "inc", "path": "n", "value": 1}, {"op": "add", "path": "a", "value": 1})],
        [written(11, 3, {"op": "replace", "path": "n", "value": 5})],
    ]
    log[0].append(written(10, 5, {"op": "add", "path": cl, "value": {"type": "LONG"}}, schema=True))
    log[1].append(written(11, 3, {"op": "add", "path": cl, "value": {"type": "STRING"}}, schema=True))
    service = ServiceInMemory()
    for many in cuts:
        service.receive([record for records in log[:many] for record in records])
        log = log[many:]
    for _ in range(2):
        assert documents(service, "entities") == ['{"n":5,"a":1}']
        assert documents(service, "schemas") == ['{"Mugs":{"fields":{"cl":{"type":"STRING"}}}}']
        *_, learned = (row.columns["entity_type"] for row in service.rows if isinstance(row, LearnedType))
        assert json.loads(learned)["Mugs"]["fields"]["cl"]["type"] == "STRING"
        service.rebuild()


@pytest.mark.parametrize("cuts", [[4], [1, 3], [1, 1, 1, 1]])
def test_between_partitions_the_latest_time_so_far_decides(cuts: list[int]) -> None:
    """Such as requests of one entity in entity-batches, which are partitioned by request."""
    seconds = [(0, 1, 1), (1, 1, 2), (0, 2, 3), (0, 3, 1)]
    log = [
        written(offset, second, {"op": "add", "path": "n/-", "value": number}, partition=partition)
        for number, (partition, offset, second) in enumerate(seconds)
    ]
    service = ServiceInMemory()
    for many in cuts:
        service.receive(reversed(log[:many]))
        log = log[many:]
    for _ in range(2):
        assert documents(service, "entities") == ['{"n":[0,1,2,3]}']
        service.rebuild()


def test_what_comes_after_an_entity_is_forgotten_is_of_a_new_one() -> None:
    service, rules = ServiceInMemory(), ServiceRules(None, 1000, 100)
    service.receive([sent("m1")])
    key = {"db": "d", "collection": "Mugs", "zone": "z", "entity": "m1"}
    patch = EntityPatch((9, 9), {**key, "client_id": "c", "request": 2, "part": 1, "parts": 1, "ops": "[]"})
    nothing = dict.fromkeys(
        ("errors", "learning", "include_before", "include_after", "user", "begun", "timestamp")
    )
    patch.columns.update({**nothing, ANSWERED_AT: 5})
    service.fold([ForgetEntity(key), patch], rules)
    [*_, answer] = [row.columns for row in service.rows if isinstance(row, Answer)]
    assert (answer["status"], answer["revision_after"]) == (2, 0)
