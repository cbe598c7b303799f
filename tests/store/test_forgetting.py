"""A store that forgets its past: nothing of it is in any file, and the newest state is as it was."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from cdckit.errors import InvalidArgument
from cdckit.store import ConflictingCommit, ForeignChange, Store, commits, delta_log, erasure
from cdckit.store.erasure import forget_past, forget_versions
from cdckit.store.locations import Location
from support.dying import Died, dies_at
from support.optimize import begin_optimize
from support.remains import find_remains

SUBJECT = {"ada": ["ada lovelace", 9_182_736_455]}


def people(*names: str) -> pa.Table:
    numbers = {"ada lovelace": 9_182_736_455, "bob": 7_000_000_001, "carl": 7_000_000_002}
    return pa.table({"name": list(names), "number": pa.array([numbers[each] for each in names], pa.int64())})


def names_in(store: Store, table: str) -> list[str]:
    return sorted(store.snapshot().arrow(table).column("name").to_pylist())


def tell_bounds_of_removed_files(log_folder: Path) -> None:
    """As Spark's OPTIMIZE and DELETE do, in the newest entry, where deltalake does not."""
    *earlier, newest = sorted(log_folder.glob("*.json"))
    added = [json.loads(line).get("add") for path in earlier for line in path.read_text().splitlines()]
    bounds = {file["path"]: file["stats"] for file in added if file}
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    for removed in (action["remove"] for action in actions if "remove" in action):
        removed["stats"] = bounds[removed["path"]]
    newest.write_text("\n".join(map(json.dumps, actions)))


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables that hold nothing of Ada any more, while their past does, in all places where it can be."""
    place = tmp_path_factory.mktemp("past") / "store"
    store = Store(None, place)
    for number in range(4):
        with store.begin() as tx:
            tx.append("log", people("ada lovelace", "bob"))
            tx.append("dropped", people("ada lovelace"))
            tx.commit(batch=str(number))
    DeltaTable(str(place / "log")).create_checkpoint()
    DeltaTable(str(place / "log")).optimize.compact()
    tell_bounds_of_removed_files(place / "log" / "_delta_log")
    (place / "log" / "_delta_log" / "_sidecars").mkdir()
    (place / "log" / "_delta_log" / "_sidecars" / f"{UUID(int=2)}.json").write_text("ada lovelace")
    with store.begin() as tx:
        tx.append("other", people("bob"))
        tx.append("mixed", people("ada lovelace"))
        tx.commit()
    with store.begin() as tx:
        tx.swap("mixed", tx.files("mixed"), people("carl"))
        tx.commit()
    with store.begin() as died:
        died.append("log", people("ada lovelace"))
        died.append("unborn", people("ada lovelace"))
    (place / "log" / "_delta_log" / "_commit_1.json.tmp").write_text("ada lovelace")
    with store.begin() as tx:
        tx.drop("dropped")
        tx.swap("log", tx.files("log"), people("bob", "bob"))
        tx.commit()
    return place


@pytest.fixture
def with_past(past: Path, store: Store, place: Path) -> Store:
    """Such tables, of which a test may do as it likes."""
    shutil.copytree(past, place)
    return store


def test_nothing_is_left_of_it_and_the_newest_state_is_as_it_was(with_past: Store, place: Path) -> None:
    before = find_remains(place, SUBJECT)
    assert {path.split("/")[0] for path in before} == {"commits", "log", "dropped", "mixed", "unborn"}
    found = forget_past(with_past.snapshot().location)
    assert find_remains(place, SUBJECT) == {}
    assert found.commit == with_past.snapshot().version == 8
    with_past.check(deep=True)
    assert (names_in(with_past, "log"), names_in(with_past, "other")) == (["bob", "bob"], ["bob"])
    heads = DeltaTable(str(place / "log")).to_pyarrow_table().column("name").to_pylist()
    assert heads == ["bob", "bob"]
    with pytest.raises(InvalidArgument, match=r"to be 8 or later, because of an erasure; it is 3\."):
        with_past.snapshot(3)
    assert (with_past.batch("3"), with_past.batch("4")) == (0, None)
    for number in range(4, 24):
        with with_past.begin() as tx:
            tx.append("log", people("carl"))
            tx.commit(batch=str(number))
    with_past.vacuum()
    with_past.check(deep=True)
    assert names_in(with_past, "log") == ["bob"] * 2 + ["carl"] * 20
    assert forget_past(with_past.snapshot().location).commit == 29


def test_other_readers_read_what_is_left(with_past: Store, place: Path) -> None:
    polars = pytest.importorskip("polars", reason="polars comes with the extra soak")
    forget_past(with_past.snapshot().location)
    assert polars.scan_delta(str(place / "log")).collect()["name"].to_list() == ["bob", "bob"]


STEPS = [
    (commits, "_write"),
    (commits.Commits, "add"),
    (erasure, "forget_versions"),
    (delta_log.DeltaTable, "create_checkpoint"),
    (erasure.Location, "delete"),
]


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize(("where", "what"), STEPS, ids=lambda each: getattr(each, "__name__", each))
def test_it_is_stopped_and_done_again(
    with_past: Store, place: Path, monkeypatch: pytest.MonkeyPatch, where: object, what: str, after: int
) -> None:
    dies_at(monkeypatch, where, what, after)
    try:
        forget_past(with_past.snapshot().location)
    except Died:
        monkeypatch.undo()
        with_past.check(deep=True)
        assert names_in(with_past, "log") == ["bob", "bob"]
    monkeypatch.undo()
    forget_past(with_past.snapshot().location)
    assert find_remains(place, SUBJECT) == {}
    with_past.check(deep=True)
    assert names_in(with_past, "mixed") == ["carl"]


def test_a_writer_on_its_way_begins_again(with_past: Store, place: Path) -> None:
    running = with_past.begin()
    running.append("log", people("carl"))
    forget_past(with_past.snapshot().location)
    with pytest.raises(ConflictingCommit, match="may have been deleted"):
        running.commit()
    with with_past.begin() as tx:
        tx.append("log", people("carl"))
        tx.commit()
    assert names_in(with_past, "log") == ["bob", "bob", "carl"]
    assert find_remains(place, SUBJECT) == {}


def test_a_commit_that_lands_while_it_looks_stays(
    with_past: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = commits.Commits.add, list[int]()

    def overtaken(self: commits.Commits, commit: commits.Commit, *, anew: bool = False) -> bool:
        if anew and not calls:
            calls.append(1)
            with with_past.begin() as tx:
                tx.append("log", people("carl"))
                tx.commit()
        return real(self, commit, anew=anew)

    monkeypatch.setattr(commits.Commits, "add", overtaken)
    forget_past(with_past.snapshot().location)
    assert names_in(with_past, "log") == ["bob", "bob", "carl"]
    with_past.check(deep=True)
    assert find_remains(place, SUBJECT) == {}


def test_what_others_changed_is_for_somebody_to_decide(with_past: Store, place: Path) -> None:
    DeltaTable(str(place / "log")).delete("name = 'bob'")
    with pytest.raises(ForeignChange, match="'log': DELETE by delta-rs"):
        forget_past(with_past.snapshot().location)
    with_past.adopt("log")
    forget_past(with_past.snapshot().location)
    assert names_in(with_past, "log") == []


def test_what_others_wrote_together_afterwards_is_read(with_past: Store, place: Path) -> None:
    for number in (1, 2):
        with with_past.begin() as tx:
            tx.append("log", people("carl"))
            tx.commit(batch=f"more {number}")
    location = with_past.snapshot().location
    forget_past(location)
    DeltaTable(str(place / "log")).optimize.compact()
    forget_past(location)
    with_past.check(deep=True)
    assert names_in(with_past, "log") == ["bob", "bob", "carl", "carl"]


def test_an_optimize_that_it_overtakes_fails(with_past: Store, place: Path) -> None:
    """Its file goes: if it landed, the table would be damaged."""
    land = begin_optimize(place / "log")
    forget_past(with_past.snapshot().location)
    with pytest.raises(CommitFailedError, match="Metadata changed"):
        land()
    with_past.check(deep=True)
    assert names_in(with_past, "log") == ["bob", "bob"]
    DeltaTable(str(place / "log")).optimize.compact()
    with with_past.begin() as tx:
        tx.append("log", people("carl"))
        tx.commit()
    assert names_in(with_past, "log") == ["bob", "bob", "carl"]


def test_an_optimize_that_lands_while_it_looks_stays(
    with_past: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land, real = begin_optimize(place / "log"), delta_log.overtake_others

    def overtaken(location: Location, folder: str) -> None:
        land()
        real(location, folder)

    monkeypatch.setattr(delta_log, "overtake_others", overtaken)
    forget_past(with_past.snapshot().location)
    with_past.check(deep=True)
    assert names_in(with_past, "log") == ["bob", "bob"]


def test_a_version_stands_for_all_before_it(with_past: Store, place: Path) -> None:
    location = with_past.snapshot().location
    version = DeltaTable(str(place / "log")).version()
    # What deltalake has staged for the next version, and what others may put there for it.
    later = [f"{version + 1:020}{end}" for end in (".json#1", f".checkpoint.{UUID(int=1)}.json")]
    for name in later:
        (place / "log" / "_delta_log" / name).write_text("{}")
    assert forget_versions(location, "log", version) > 5
    assert forget_versions(location, "log", version) == 0
    for name in later:
        (place / "log" / "_delta_log" / name).unlink()
    assert DeltaTable(str(place / "log"), version=version).to_pyarrow_table().num_rows == 2


def test_an_empty_store_has_no_past(store: Store) -> None:
    assert forget_past(store.snapshot().location) == (0, 0, 0)
