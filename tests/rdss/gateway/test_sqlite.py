"""The local data repository: what it knows, what it discards, and what a kill leaves of it."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cdckit.rdss.findings import Finding
from cdckit.rdss.gateway import NoRepository, Outcome, RepositoryInUse, SqliteRepository, Status
from cdckit.rdss.gateway.errors import FailedStatement
from cdckit.rdss.gateway.repository import RefusedMessage, SqlStatement, StoredMessage
from tools.tiers import seeds

PROGRAM = Path(__file__).with_name("killed_repository.py")


def part(
    name: str, position: int = 1, total: int = 1, *, answers: str | None = None, content: str | None = None
) -> StoredMessage:
    sequence = "s" if total > 1 else f"s-{name}"
    header = (name, "Command", "MetadataCreate", sequence, position, total, answers)
    return StoredMessage(
        *header, name.encode(), f"{total}", f"content of {position}" if content is None else content
    )


def refused(original: bytes, channel: str = "invalid") -> RefusedMessage:
    return RefusedMessage(original, b"decorated " + original, channel, "GENERR001", "Not as expected.", None)


def own(message_id: str, value: bytes = b"{}") -> StoredMessage:
    return StoredMessage(message_id, "Command", "MetadataCreate", "s", 1, 1, None, value)


def judge(parts: Sequence[StoredMessage], contradiction: Finding | None) -> list[RefusedMessage]:
    if contradiction is None:
        return []
    reason, [part] = contradiction.description, parts
    return [RefusedMessage(part.value, reason.encode(), "invalid", "GENERR004", reason, part.message_id)]


def take(repository: SqliteRepository, messages: Sequence[StoredMessage | RefusedMessage]) -> list[Outcome]:
    return repository.take(messages, judge)


def settle(repository: SqliteRepository, named: list[str], outcome: Outcome, **told: Any) -> bool:
    """The messages of these names, or the parts of the one sequence."""
    words = ["one", "two", "three"]
    messages = [part(name, words.index(name) + 1, 3) if name in words else part(name) for name in named]
    return repository.settle(messages, outcome, **told)


def names(messages: list[StoredMessage]) -> list[str]:
    return [each.message_id for each in messages]


def test_a_message_is_to_be_sent_until_it_is_acknowledged() -> None:
    with SqliteRepository(":memory:") as repository:
        first = own("a", b"{1}")
        repository.mark_to_send([first, own("b", b"{2}")])
        repository.mark_to_send([own("a", b"{other}")])
        assert repository.status("a") is Status.TO_SEND
        unsent = repository.unsent_messages(9, "output")
        assert [(each.message_id, each.value) for each in unsent] == [("a", b"{1}"), ("b", b"{2}")]
        assert repository.unsent_messages(9, "return desk") == []
        repository.mark_sent("a")
        assert repository.status("a") is Status.SENT
        assert [each.message_id for each in repository.unsent_messages(9, "output")] == ["b"]
        repository.mark_to_send([first])
        assert repository.status("a") is Status.SENT


def test_what_is_known_is_a_duplicate_whether_received_or_ones_own() -> None:
    with SqliteRepository(":memory:") as repository:
        repository.mark_to_send([own("own")])
        taken = take(repository, [part("a"), part("own"), part("a"), part("b")])
        assert taken == [Outcome.WAITING, Outcome.DUPLICATE, Outcome.DUPLICATE, Outcome.WAITING]
        assert settle(repository, ["a"], Outcome.PROCESSED)
        assert take(repository, [part("a")]) == [Outcome.DUPLICATE]
        assert repository.status("a") is Status.RECEIVED
        assert repository.status("c") is None
        assert repository.counts() == {
            Outcome.WAITING: 1,
            Outcome.PROCESSED: 1,
            Outcome.INVALID: 0,
            Outcome.ERROR: 0,
            Outcome.DUPLICATE: 3,
        }


def test_what_is_refused_is_known_by_its_bytes_and_waits_for_its_channel() -> None:
    with SqliteRepository(":memory:") as repository:
        taken = take(repository, [refused(b"{"), refused(b"{"), refused(b"[", "error")])
        assert taken == [Outcome.INVALID, Outcome.DUPLICATE, Outcome.ERROR]
        [(number, first), (_, second)] = repository.unrouted_messages(9)
        assert (first.original, first.decorated, second.channel) == (b"{", b"decorated {", "error")
        repository.mark_routed(number)
        assert [each.original for _, each in repository.unrouted_messages(9)] == [b"["]
        # A valid message with the id of a refused one is no duplicate of it: somebody has mended it.
        assert take(repository, [part("a")]) == [Outcome.WAITING]


def test_the_newest_refusal_of_a_message_names_its_queue_and_the_first_stays_counted() -> None:
    """It was invalid when it came; by rules of today it is not, and its handler fails a month later."""
    times = [datetime(2024, 2, 1, tzinfo=UTC)]
    with SqliteRepository(":memory:", clock=lambda: times[0]) as repository:
        take(repository, [refused(b"a")])
        [(number, _)] = repository.unrouted_messages(9)
        repository.mark_routed(number)
        times[0] += timedelta(days=30)
        take(repository, [part("a")])
        failure = replace(refused(b"a", "error"), error_code="GENERR006", error_description="It failed.")
        assert settle(repository, ["a"], Outcome.ERROR, refused=[failure])
        assert repository.unrouted_messages(9) == [(number, failure)]
        repository.mark_routed(number)
        counts = repository.counts()
        assert (counts[Outcome.INVALID], counts[Outcome.ERROR]) == (1, 1)
        assert repository.forget(times[0]) == 0
        assert repository.counts() == counts


def test_a_sequence_waits_until_all_its_parts_are_there() -> None:
    with SqliteRepository(":memory:") as repository:
        take(repository, [part("two", 2, 3), part("alone"), part("one", 1, 3)])
        assert names(repository.next_waiting()) == ["alone"]
        take(repository, [part("three", 3, 3)])
        assert names(whole := repository.next_waiting()) == ["one", "two", "three"]
        assert names(alone := repository.next_waiting(whole)) == ["alone"]
        assert repository.next_waiting(alone) == []
        assert settle(repository, ["one", "two", "three"], Outcome.PROCESSED)
        assert names(repository.next_waiting()) == ["alone"]


def test_what_came_first_of_a_sequence_stands() -> None:
    """The same part under another messageId is a duplicate; another content or total is refused."""
    with SqliteRepository(":memory:") as repository:
        parts = [part("one", 1, 2), part("total", 2, 3), part("other", 1, 2, content="other")]
        again = part("again", 1, 2)
        assert take(repository, [*parts, again]) == [
            Outcome.WAITING,
            Outcome.INVALID,
            Outcome.INVALID,
            Outcome.DUPLICATE,
        ]
        said = (
            "The header is missing, incomplete or wrong. "
            "At $.messageHeader.messageSequence: the part contradicts what came before it of the sequence s."
        )
        assert [each.error_description for _, each in repository.unrouted_messages(9)] == [said, said]
        assert take(repository, [parts[1]]) == [Outcome.DUPLICATE]
        assert take(repository, [part("two", 2, 2)]) == [Outcome.WAITING]
        assert names(repository.next_waiting()) == ["one", "two"]


def test_a_sequence_that_stays_incomplete_is_found_by_its_last_part() -> None:
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    times = iter([noon, noon + timedelta(hours=1), noon])
    with SqliteRepository(":memory:", clock=lambda: next(times)) as repository:
        take(repository, [part("one", 1, 3), part("two", 2, 3), part("alone")])
        assert repository.incomplete_parts(noon + timedelta(minutes=30)) == []
        assert names(repository.incomplete_parts(noon + timedelta(hours=2))) == ["one", "two"]


def test_what_is_done_is_forgotten_and_stays_counted() -> None:
    """Of each kind one message is noted at noon; what waits, is to be sent or to be routed is not done."""
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    with SqliteRepository(":memory:", clock=lambda: noon) as repository:
        repository.mark_to_send([own("told"), own("to tell")])
        repository.mark_sent("told")
        take(repository, [part("done"), part("waits"), part("done"), refused(b"{"), refused(b"[")])
        settle(repository, ["done"], Outcome.PROCESSED)
        [(number, _), _] = repository.unrouted_messages(9)
        repository.mark_routed(number)
        counts = dict(repository.counts())
        assert list(counts.values()) == [1, 1, 2, 0, 1]
        assert repository.forget(noon) == 0
        # The message that was sent, the one that was processed, and the refused one that was routed.
        assert repository.forget(noon + timedelta(seconds=1)) == 3
        assert repository.counts() == counts
        known = [repository.status(name) for name in ("told", "to tell", "done", "waits")]
        assert known == [None, Status.TO_SEND, None, Status.RECEIVED]
        assert len(repository.unrouted_messages(9)) == 1
        # What is forgotten is new again; what waits is not.
        again = take(repository, [part("done"), part("waits"), refused(b"{"), refused(b"[")])
        assert again == [Outcome.WAITING, Outcome.DUPLICATE, Outcome.INVALID, Outcome.DUPLICATE]
        assert repository.forget(noon + timedelta(seconds=1)) == 0


def test_the_parts_of_a_sequence_are_forgotten_together() -> None:
    """Half of one would be new again: the part that comes once more, and the bytes of the other are gone."""
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    times = [noon]
    with SqliteRepository(":memory:", clock=lambda: times[0]) as repository:
        take(repository, [part("one", 1, 3)])
        times[0] += timedelta(hours=1)
        take(repository, [part("two", 2, 3), part("three", 3, 3)])
        assert settle(repository, ["one", "two", "three"], Outcome.PROCESSED)
        assert repository.forget(noon + timedelta(minutes=30)) == 0
        assert take(repository, [part("one", 1, 3)]) == [Outcome.DUPLICATE]
        assert repository.forget(noon + timedelta(hours=2)) == 3
        assert repository.counts()[Outcome.PROCESSED] == 3


def test_a_message_is_settled_once_and_nothing_of_a_second_time_is_kept() -> None:
    with SqliteRepository(":memory:") as repository:
        repository.rows("CREATE TABLE done (name TEXT)")
        take(repository, [part("a"), part("b")])
        row = SqlStatement("INSERT INTO done VALUES (?)", ("a",))
        assert settle(repository, ["a"], Outcome.PROCESSED, write=[row])
        # Of two, one waits: neither is changed.
        assert not settle(repository, ["b", "a"], Outcome.PROCESSED, write=[row])
        assert names(repository.next_waiting()) == ["b"]
        assert repository.rows("SELECT count(*) FROM done") == [(1,)]
        row = SqlStatement("INSERT INTO nowhere VALUES (1)")
        with pytest.raises(FailedStatement, match="no such table"):
            settle(repository, ["b"], Outcome.PROCESSED, write=[row])
        assert names(repository.next_waiting()) == ["b"]


def test_a_transaction_that_cannot_be_rolled_back_is_logged_with_its_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stuck:
        """A connection to a disk that has gone."""

        in_transaction = True

        def execute(self, sql: str, parameters: object = ()) -> None:
            if sql != "BEGIN IMMEDIATE":
                raise sqlite3.OperationalError("disk I/O error")

    with SqliteRepository(":memory:") as repository:
        whole, repository._database = repository._database, Stuck()  # type: ignore[assignment]
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            repository.mark_sent("a")
        repository._database = whole
    assert "GENERR008 A transaction could not be rolled back. :memory:: disk I/O error." in caplog.text


def test_a_response_is_found_by_the_message_that_it_answers() -> None:
    with SqliteRepository(":memory:") as repository:
        take(repository, [part("a"), part("answer", answers="question")])
        assert names(repository.response_to("question")) == ["answer"]
        settle(repository, ["answer"], Outcome.PROCESSED)
        assert repository.response_to("question") == []


def test_a_position_is_kept_by_stream_and_shard() -> None:
    with SqliteRepository(":memory:") as repository:
        repository.keep_positions("in", {"shard-0": "10", "shard-1": "7"})
        repository.keep_positions("in", {"shard-0": "11"})
        found = [repository.position("in", "shard-0"), repository.position("in", "shard-1")]
        assert found == ["11", "7"]
        assert repository.position("out", "shard-0") is None


def test_a_file_that_is_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    text, other = tmp_path / "text", tmp_path / "other.db"
    text.write_text("no database, but long enough to be looked at" * 10)
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE somebody (s TEXT)")
    database.close()
    before = [text.read_bytes(), other.read_bytes()]
    with pytest.raises(NoRepository, match="not a database"):
        SqliteRepository(text)
    with pytest.raises(NoRepository, match="1 tables"):
        SqliteRepository(other)
    assert [text.read_bytes(), other.read_bytes()] == before


def test_a_repository_is_open_once(tmp_path: Path) -> None:
    with SqliteRepository(tmp_path / "kept.db") as repository:
        take(repository, [part("a")])
        with pytest.raises(RepositoryInUse, match="open elsewhere"):
            SqliteRepository(tmp_path / "kept.db")
    with SqliteRepository(tmp_path / "kept.db") as repository:
        assert names(repository.next_waiting()) == ["a"]


@seeds(1, soak=20)
def test_a_kill_leaves_what_was_said_and_no_half_transaction(tmp_path: Path, seed: int) -> None:
    """A real process, killed at three moments: what it printed stands, what it did stands once."""
    chance, path, said = random.Random(seed), tmp_path / "kept.db", set[str]()
    for turn in range(3):
        said |= run_and_kill(path, turn * 1_000_000, chance.uniform(0.01, 0.15))
    assert any(line.startswith("sent") for line in said)
    with SqliteRepository(path) as repository:
        counts = repository.counts()
        done = [row[0] for row in repository.rows("SELECT number FROM done")]
        unsent = {each.message_id for each in repository.unsent_messages(10**9, "output")}
        for line in said:
            word, number = line.split()
            if word == "taken":
                assert all(repository.status(f"in-{int(number) + each}") for each in range(5)), line
            elif word == "settled":
                assert int(number) in done, line
            else:
                assert repository.status(f"out-{number}") is Status.SENT, line
        assert len(done) == len(set(done)) == counts[Outcome.PROCESSED]
        assert (counts[Outcome.PROCESSED] + counts[Outcome.WAITING]) % 5 == 0
        assert counts[Outcome.DUPLICATE] == 0
        # What follows from a message is there with it, whether its end was said or not.
        assert all(repository.status(f"out-{number}") for number in done)
        assert len(unsent) <= 3


def run_and_kill(path: Path, first: int, seconds: float) -> set[str]:
    """Let it work for so long after its first line, then kill -9; the lines that it printed whole."""
    command = [sys.executable, str(PROGRAM), str(path), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = process.stdout.readline()
        assert lines, "it ended before it did anything"
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read()
    return set(lines.split("\n")[:-1])
