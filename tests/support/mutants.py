"""
Sound histories changed in one place: what a suite that asks the log should see.

Each kind is a naive program: it gets the versions of one entity in order, what can be drawn from, and gives
the versions as a wrong program, a hand in the table or a lost file would leave them; none where the entity
has no place for it.  A log has one history, so whatever differs from it is wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from datetime import timedelta
from typing import Any, NamedTuple

from support.fold import fold, guid_of, identity
from support.histories import KINDS, Row, plain, random_changes

Versions = list[Row]
ENDS = ("valid_from_timestamp", "valid_to_timestamp")


class Entity(NamedTuple):
    """One entity of a sound history: its versions in order, its changes, and what is drawn from."""

    versions: Versions
    changes: Sequence[Row]
    fields: dict[str, str]
    keys: Sequence[str]
    chance: random.Random

    def version(self) -> Row:
        return self.chance.choice(self.versions)

    def later(self) -> int:
        """The place of a version that has one before it."""
        return self.chance.randrange(1, len(self.versions))

    def values(self) -> list[str]:
        return [name for name in self.fields if name not in self.keys]

    def set_in(self, version: Row, names: Sequence[str]) -> str:
        """One of the fields that the version has provenance of."""
        return self.chance.choice([name for name in names if version["field_provenance"][name] is not None])

    def field(self, version: Row) -> str:
        return self.set_in(version, self.values())

    def entry(self, version: Row) -> Row:
        """The provenance of a field, or of the row."""
        found: Row = version["field_provenance"][self.set_in(version, ["guid", *self.fields])]
        return found

    def message(self, *but: str | None) -> str:
        """A message about the entity, another one than these."""
        return self.chance.choice(sorted({each["message_id"] for each in self.changes} - {*but}))

    def value(self, name: str, *but: Any) -> Any:
        """A value of the type of the field, another one than these."""
        taken = [plain(each) for each in but]
        return self.chance.choice([v for v in KINDS[self.fields[name]].values if plain(v) not in taken])


Kind = Callable[[Entity], Any]
KINDS_OF_MUTANTS: dict[str, Kind] = {}


def kind(make: Kind) -> Kind:
    KINDS_OF_MUTANTS[make.__name__] = make
    return make


def mutant(name: str, entity: Entity) -> Versions | None:
    """The versions with one thing changed; none if the entity has no place for it, or nothing differs."""
    changed = entity._replace(versions=deepcopy(entity.versions))
    try:
        KINDS_OF_MUTANTS[name](changed)
    except (IndexError, ValueError):  # nothing to choose from
        return None
    return changed.versions if same(changed.versions) != same(entity.versions) else None


def same(versions: Versions) -> list[str]:
    return sorted(str(plain(each)) for each in versions)


def mutants(
    seed: int, number: int, fields: dict[str, str], keys: Sequence[str], *, entity: str
) -> tuple[list[Row], Versions, dict[str, str], set[str]]:
    """
    The changes of many worlds, and their history with one entity of each of *number* worlds mutated.

    Also the kind of mutant by the guid that it has, and the guids of sound entities.
    """
    chance = random.Random(seed)
    changes = random_changes(seed, number * 3, fields)
    sound = fold(changes, entity=entity, keys=keys, fields=list(fields))
    odd = contradictory(changes, entity, keys)
    by_guid: dict[str, tuple[Versions, list[Row]]] = {}
    for each in sound:
        by_guid.setdefault(each["guid"], ([], []))[0].append(each)
    for each in changes:
        guid = identity(each, entity, keys)
        if guid in by_guid:
            by_guid[guid][1].append(each)
    kinds: dict[str, str] = {}
    history: Versions = []
    left = [name for name in KINDS_OF_MUTANTS for _ in range(number // len(KINDS_OF_MUTANTS) + 1)]
    chance.shuffle(left)
    left = left[:number]
    for guid, (versions, told) in by_guid.items():
        if guid in odd:
            continue
        of = Entity(versions, told, fields, keys, chance)
        made = None
        for name in left if chance.random() < 0.9 else []:
            made = mutant(name, of)
            if made is not None:
                left.remove(name)
                kinds[guid] = name
                history += made
                break
        if made is None:
            history += versions
    assert not left, f"no place for {left}"
    log = [{**each, "guid": identity(each, entity, keys)} for each in changes]
    log = [each for each in log if each["guid"] not in odd]
    return log, history, kinds, by_guid.keys() - kinds.keys() - odd


def contradictory(changes: Sequence[Row], entity: str, keys: Sequence[str]) -> set[str]:
    """The entities of which one message says two things: at another instant, or in another order."""
    first: dict[Any, Row] = {}
    found = set()
    for each in changes:
        guid = identity(each, entity, keys)
        key = (guid, each["source"], each["message_id"], each["arrival"]["record_number"])
        before = first.setdefault(key, each)
        if any(plain(each[name]) != plain(before[name]) for name in each if name != "arrival"):
            found.add(guid)
    return found


# Values ---------------------------------------------------------------------------------------------------


@kind
def value_that_nobody_said(of: Entity) -> None:
    version = of.version()
    name = of.chance.choice(of.values())
    said = [each["data"][name] for each in of.changes]
    version[name] = of.value(name, version[name], *said)


@kind
def value_of_another_message(of: Entity) -> None:
    version = of.version()
    name = of.field(version)
    version[name] = of.chance.choice(of.changes)["data"][name]


@kind
def value_lost(of: Entity) -> None:
    version = of.version()
    version[of.field(version)] = None


@kind
def value_lost_from_then_on(of: Entity) -> None:
    place = of.chance.randrange(len(of.versions))
    name = of.field(of.versions[place])
    for version in of.versions[place:]:
        version[name] = None


@kind
def value_where_null_was_said(of: Entity) -> None:
    version = of.version()
    name = of.chance.choice([n for n in of.values() if version[n] is None])
    version[name] = of.value(name, None)


@kind
def values_swapped_between_versions(of: Entity) -> None:
    place = of.later()
    name = of.chance.choice(of.values())
    one, other = of.versions[place - 1], of.versions[place]
    one[name], other[name] = other[name], one[name]


@kind
def value_stays_as_it_was(of: Entity) -> None:
    place = of.later()
    name = of.chance.choice(of.values())
    of.versions[place][name] = of.versions[place - 1][name]


@kind
def value_and_provenance_stay_as_they_were(of: Entity) -> None:
    place = of.later()
    copy_field(of.versions[place - 1], of.versions[place], of.chance.choice(of.values()))


@kind
def value_known_too_early(of: Entity) -> None:
    place = of.later()
    copy_field(of.versions[place], of.versions[place - 1], of.chance.choice(of.values()))


@kind
def value_from_far_away_in_time(of: Entity) -> None:
    copy_field(of.version(), of.version(), of.chance.choice(of.values()))


@kind
def value_survives_a_delete(of: Entity) -> None:
    place = of.chance.choice([n for n in places(of, deleted=True) if n])
    for name in of.values():
        copy_field(of.versions[place - 1], of.versions[place], name)


@kind
def one_value_survives_a_delete(of: Entity) -> None:
    place = of.chance.choice([n for n in places(of, deleted=True) if n])
    copy_field(of.versions[place - 1], of.versions[place], of.chance.choice(of.values()))


@kind
def value_comes_back_by_itself(of: Entity) -> None:
    """A recreate brings back what the delete took."""
    place = of.chance.choice([n for n in places(of, deleted=True) if 0 < n < len(of.versions) - 1])
    copy_field(of.versions[place - 1], of.versions[place + 1], of.chance.choice(of.values()))


@kind
def part_of_a_value(of: Entity) -> None:
    version = of.chance.choice([each for each in of.versions if each["c"]])
    version["c"]["y"] = "b"


@kind
def value_without_provenance(of: Entity) -> None:
    version = of.version()
    name = of.chance.choice([n for n in of.values() if version["field_provenance"][n] is None])
    version[name] = of.value(name, None)


@kind
def field_that_was_never_sent(of: Entity) -> None:
    version = of.version()
    name = of.chance.choice([n for n in of.values() if version["field_provenance"][n] is None])
    version[name] = of.value(name, None)
    version["field_provenance"][name] = dict(version["field_provenance"]["guid"])


@kind
def field_never_sent_said_to_be_null(of: Entity) -> None:
    version = of.version()
    name = of.chance.choice([n for n in of.values() if version["field_provenance"][n] is None])
    version["field_provenance"][name] = dict(version["field_provenance"]["guid"])


@kind
def key_of_one_version(of: Entity) -> None:
    of.version()["k"] = "z"


@kind
def key_of_all_versions(of: Entity) -> None:
    for version in of.versions:
        version["k"] = "z"


@kind
def key_lost(of: Entity) -> None:
    of.version()["k"] = None


@kind
def key_lost_by_the_delete(of: Entity) -> None:
    version = of.versions[of.chance.choice(places(of, deleted=True))]
    version["k"] = None
    version["field_provenance"]["k"] = dict(version["field_provenance"]["guid"])


# Priorities -----------------------------------------------------------------------------------------------


@kind
def field_priority_raised(of: Entity) -> None:
    version = of.version()
    version["field_provenance"][of.field(version)]["p"] += 1


@kind
def field_priority_lowered(of: Entity) -> None:
    version = of.version()
    version["field_provenance"][of.field(version)]["p"] -= 1


@kind
def field_priority_raised_from_then_on(of: Entity) -> None:
    place = of.chance.randrange(len(of.versions))
    name = of.field(of.versions[place])
    for version in of.versions[place:]:
        version["field_provenance"][name]["p"] += 5


@kind
def field_priority_raised_everywhere(of: Entity) -> None:
    name = of.chance.choice(of.values())
    for version in of.versions:
        if version["field_provenance"][name]:
            version["field_provenance"][name]["p"] += 5


@kind
def field_priority_of_the_row(of: Entity) -> None:
    version = of.version()
    version["field_provenance"][of.field(version)]["p"] = version["field_provenance"]["guid"]["p"]


@kind
def field_priority_of_another_field(of: Entity) -> None:
    version = of.version()
    version["field_provenance"][of.field(version)]["p"] = of.entry(version)["p"]


@kind
def priority_of_a_delete(of: Entity) -> None:
    version = of.versions[of.chance.choice(places(of, deleted=True))]
    version["field_provenance"][of.field(version)]["p"] += of.chance.choice((-1, 1))


@kind
def key_priority(of: Entity) -> None:
    version = of.version()
    version["field_provenance"][of.set_in(version, of.keys)]["p"] += of.chance.choice((-1, 1))


@kind
def row_priority_raised(of: Entity) -> None:
    of.version()["field_provenance"]["guid"]["p"] += 1


@kind
def row_priority_lowered(of: Entity) -> None:
    of.version()["field_provenance"]["guid"]["p"] -= 1


@kind
def row_priority_raised_from_then_on(of: Entity) -> None:
    for version in of.versions[of.chance.randrange(len(of.versions)) :]:
        version["field_provenance"]["guid"]["p"] += 5


@kind
def row_priority_of_a_field(of: Entity) -> None:
    version = of.version()
    version["field_provenance"]["guid"]["p"] = of.entry(version)["p"]


@kind
def priority_lost(of: Entity) -> None:
    of.entry(of.version())["p"] = None


# Messages -------------------------------------------------------------------------------------------------


@kind
def field_message_of_the_entity(of: Entity) -> None:
    entry = of.entry(of.version())
    entry["m"] = of.message(entry["m"])


@kind
def field_message_of_the_instant(of: Entity) -> None:
    version = of.version()
    entry = of.entry(version)
    at = [each["message_id"] for each in of.changes if each["effective_timestamp"] == version[ENDS[0]]]
    entry["m"] = of.chance.choice(at)


@kind
def field_message_invented(of: Entity) -> None:
    of.entry(of.version())["m"] = "by hand"


@kind
def field_message_of_another_from_then_on(of: Entity) -> None:
    place = of.chance.randrange(len(of.versions))
    name = of.field(of.versions[place])
    was = dict(of.versions[place]["field_provenance"][name])
    other = of.message(was["m"])
    for version in of.versions[place:]:
        if version["field_provenance"][name] == was:
            version["field_provenance"][name]["m"] = other


@kind
def field_message_is_the_last_one(of: Entity) -> None:
    """A value that was confirmed names the message that confirmed it."""
    version = of.version()
    version["field_provenance"][of.set_in(version, [*of.fields])]["m"] = version["source_message"]


@kind
def row_message_of_the_entity(of: Entity) -> None:
    entry = of.version()["field_provenance"]["guid"]
    entry["m"] = of.message(entry["m"])


@kind
def row_entry_is_the_last_one(of: Entity) -> None:
    version = of.version()
    version["field_provenance"]["guid"]["m"] = version["source_message"]


@kind
def source_message_of_the_entity(of: Entity) -> None:
    version = of.version()
    version["source_message"] = of.message(version["source_message"])


@kind
def source_message_invented(of: Entity) -> None:
    of.version()["source_message"] = "by hand"


@kind
def source_message_of_the_version_before(of: Entity) -> None:
    place = of.later()
    of.versions[place]["source_message"] = of.versions[place - 1]["source_message"]


@kind
def entries_of_two_fields_swapped(of: Entity) -> None:
    version = of.version()
    one, other = of.chance.sample(["guid", *of.fields], 2)
    entries = version["field_provenance"]
    entries[one], entries[other] = entries[other], entries[one]


@kind
def entry_lost(of: Entity) -> None:
    version = of.version()
    version["field_provenance"][of.set_in(version, [*of.fields])] = None


@kind
def entry_stays_as_it_was(of: Entity) -> None:
    place = of.later()
    name = of.chance.choice(["guid", *of.fields])
    of.versions[place]["field_provenance"][name] = of.versions[place - 1]["field_provenance"][name]


# Versions -------------------------------------------------------------------------------------------------


@kind
def version_lost(of: Entity) -> None:
    place = of.later()
    of.versions[place - 1][ENDS[1]] = of.versions[place][ENDS[1]]
    del of.versions[place]


@kind
def first_version_lost(of: Entity) -> None:
    del of.versions[0]


@kind
def first_version_begins_with_the_second(of: Entity) -> None:
    of.versions[1][ENDS[0]] = of.versions[0][ENDS[0]]
    del of.versions[0]


@kind
def versions_lost_from_then_on(of: Entity) -> None:
    place = of.later()
    of.versions[place - 1][ENDS[1]] = None
    del of.versions[place:]


@kind
def version_twice(of: Entity) -> None:
    of.versions.append(deepcopy(of.version()))


@kind
def version_cut_in_two(of: Entity) -> None:
    version = of.version()
    cut(of, version, version[ENDS[0]] + timedelta(hours=1))


@kind
def version_cut_where_a_message_changed_nothing(of: Entity) -> None:
    known = {version[ENDS[0]] for version in of.versions}
    at = of.chance.choice(
        [
            each["effective_timestamp"]
            for each in of.changes
            if each["effective_timestamp"] not in known and each["effective_timestamp"] > min(known)
        ]
    )
    cut(of, [version for version in of.versions if version[ENDS[0]] < at][-1], at)


@kind
def version_begins_later(of: Entity) -> None:
    place = of.chance.randrange(len(of.versions))
    of.versions[place][ENDS[0]] += timedelta(seconds=1)
    if place:
        of.versions[place - 1][ENDS[1]] = of.versions[place][ENDS[0]]


@kind
def version_begins_with_another_message(of: Entity) -> None:
    """At an instant that the log has, and at which this was not so."""
    version = of.chance.choice(of.versions)
    version[ENDS[0]] = of.chance.choice(of.changes)["effective_timestamp"]


@kind
def last_version_closed(of: Entity) -> None:
    of.versions[-1][ENDS[1]] = of.versions[-1][ENDS[0]] + timedelta(days=9)


@kind
def states_of_two_versions_swapped(of: Entity) -> None:
    one, other = of.chance.sample(of.versions, 2)
    for name in one:
        if name not in ENDS:
            one[name], other[name] = other[name], one[name]


@kind
def deleted_said_to_be_alive(of: Entity) -> None:
    of.versions[of.chance.choice(places(of, deleted=True))]["deleted_indicator"] = False


@kind
def alive_said_to_be_deleted(of: Entity) -> None:
    of.versions[of.chance.choice(places(of, deleted=False))]["deleted_indicator"] = True


@kind
def deleted_as_a_delete_would(of: Entity) -> None:
    """A last version that looks as a delete by its message would have left it."""
    version = of.versions[of.chance.choice(places(of, deleted=False))]
    version["deleted_indicator"] = True
    for name in of.values():
        version[name] = None
        if version["field_provenance"][name]:
            version["field_provenance"][name] = dict(version["field_provenance"]["guid"])


@kind
def recreate_passed_over(of: Entity) -> None:
    place = of.chance.choice([n for n in places(of, deleted=True) if n < len(of.versions) - 1])
    of.versions[place][ENDS[1]] = None
    del of.versions[place + 1 :]


@kind
def delete_passed_over(of: Entity) -> None:
    place = of.chance.choice([n for n in places(of, deleted=True) if n])
    of.versions[place - 1][ENDS[1]] = None
    del of.versions[place:]


@kind
def entity_lost(of: Entity) -> None:
    of.versions.clear()


@kind
def version_of_another_entity(of: Entity) -> None:
    of.version()["guid"] = guid_of("another", {"number": of.chance.random()})


def places(of: Entity, *, deleted: bool) -> list[int]:
    return [n for n, version in enumerate(of.versions) if version["deleted_indicator"] == deleted]


def copy_field(one: Row, other: Row, name: str) -> None:
    other[name] = one[name]
    other["field_provenance"][name] = deepcopy(one["field_provenance"][name])


def cut(of: Entity, version: Row, at: Any) -> None:
    rest = deepcopy(version)
    version[ENDS[1]] = rest[ENDS[0]] = at
    of.versions.insert(of.versions.index(version) + 1, rest)
