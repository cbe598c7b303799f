"""`dispatch`: which callbacks come, in which order, and what becomes of what they answer."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdckit import databus
from cdckit.databus import consumers
from cdckit.databus.dispatcher import dispatch
from cdckit.databus.event_stream import BootstrapStream, Window, split_windows
from cdckit.databus.relay_tables import Place
from cdckit.errors import InvalidArgument
from cdckit.store import Store
from tools.tiers import seeds

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
A, B = databus.Source(97, "a", [SCHEMA]), databus.Source(98, "b", [SCHEMA])
SOURCES = {97: A, 98: B}


class Windows:
    """Windows in short: `a5 a5 b5 .5` as a stream has them, `<5` where the window is rolled back."""

    def __init__(self, text: str, size: int = 2) -> None:
        self.rows: list[dict[str, Any]] = []
        self.size = size
        begun: list[dict[str, Any]] = []
        for number, word in enumerate(text.split()):
            scn = int(word[1:])
            if word[0] not in ".<":
                begun.append({"source_id": ord(word[0]), "scn": scn, "long_key": number, "opcode": "UPSERT"})
                continue
            told = {"topic": "t", "partition": 0, "physical_partition": 1, "window": number}
            told["window_state"] = "complete" if word[0] == "." else "rolled back"
            told["window_end_scn"] = scn if word[0] == "." else None
            told["window_start_scn"] = min((each["scn"] for each in begun), default=None)
            told["window_timestamp"] = scn * 1_000_000
            self.rows += [row | told for row in begun]
            begun = []

    def windows(self, after: int = -1) -> Iterator[Window]:
        chosen = [row for row in self.rows if (row["window_end_scn"] or row["window_start_scn"]) > after]
        batches = (
            pa.RecordBatch.from_pylist(chosen[at : at + self.size], schema=COLUMNS)
            for at in range(0, len(chosen), self.size)
        )
        return split_windows(batches, SOURCES)


COLUMNS = pa.schema(
    [
        *((name, pa.string()) for name in ("topic", "window_state", "opcode", "string_key", "schema_id")),
        *((name, pa.int64()) for name in ("partition", "physical_partition", "window", "scn", "long_key")),
        *((name, pa.int64()) for name in ("source_id", "window_start_scn", "window_end_scn")),
        *((name, pa.timestamp("us", "UTC")) for name in ("window_timestamp", "event_timestamp")),
        ("payload", pa.binary()),
    ]
)


class Scribe(databus.Consumer):
    """Writes down every callback, and answers what *answers* has for it, once each."""

    def __init__(self, answers: dict[str, list[Any]] | None = None) -> None:
        self.said: list[str] = []
        self.answers = answers or {}

    def _note(self, name: str) -> Any:
        self.said.append(name)
        answers = self.answers.get(name) or [databus.Result.SUCCESS]
        answer = answers.pop(0) if self.answers.get(name) else answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def on_start_consumption(self) -> Any:
        return self._note("begin")

    def on_stop_consumption(self) -> Any:
        return self._note("stop")

    def on_start_data_event_sequence(self, start_scn: int) -> Any:
        return self._note(f"[{start_scn}")

    def on_end_data_event_sequence(self, end_scn: int) -> Any:
        return self._note(f"{end_scn}]")

    def on_rollback(self, start_scn: int) -> Any:
        return self._note(f"rollback {start_scn}")

    def on_start_source(self, source: databus.Source) -> Any:
        return self._note(f"({source.name}")

    def on_end_source(self, source: databus.Source) -> Any:
        return self._note(f"{source.name})")

    def on_data_event(self, event: databus.Event) -> Any:
        return self._note(f"{event.source.name}{event.scn}")

    def on_checkpoint(self, scn: int) -> Any:
        return self._note(f"checkpoint {scn}")

    def on_error(self, error: Exception) -> Any:
        return self._note(f"error {error}")


def run(text: str, scribe: Scribe, **options: Any) -> databus.Outcome:
    return dispatch(Windows(text), scribe, wait=lambda _: None, **options)


FIRST = "begin [5 (a a5 a5 a) (b b5 b) 5] checkpoint 5"
SECOND = "[6 (b b6 b) 6] checkpoint 6"
BOTH = "a5 a5 b5 .5 .5 b6 .6"


def words(text: str) -> list[str]:
    found: list[str] = []
    for word in text.split():
        if found and found[-1] in ("checkpoint", "rollback"):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def test_callbacks_come_as_the_grammar_has_them_and_an_empty_window_calls_nobody() -> None:
    scribe = Scribe()
    outcome = run(BOTH, scribe)
    assert scribe.said == words(f"{FIRST} {SECOND} stop")
    assert (outcome.state, outcome.windows, outcome.checkpoint.window_scn) == ("finished", 2, 6)
    assert outcome.checkpoint.ts_nsecs == 6_000_000_000


def test_without_buffering_a_consumer_hears_of_a_rollback() -> None:
    scribe = Scribe()
    run("a5 <5 a5 .5", scribe)
    assert scribe.said == words("begin [5 (a a5 rollback 5 [5 (a a5 a) 5] checkpoint 5 stop")


@pytest.mark.parametrize("failure", [databus.Result.ERROR, ValueError("no")], ids=["answer", "exception"])
@pytest.mark.parametrize("where", ["[6", "(b", "b6", "b)", "6]"])
def test_an_error_rolls_back_to_the_last_checkpoint(where: str, failure: Any) -> None:
    scribe = Scribe({where: [failure]})
    outcome = run("a5 .5 b6 .6", scribe)
    second = words(SECOND)
    again = second[: second.index(where) + 1]
    assert scribe.said == [*words("begin [5 (a a5 a) 5] checkpoint 5"), *again, "rollback 6", *second, "stop"]
    assert (outcome.state, outcome.windows, outcome.error) == ("finished", 2, None)


def test_an_event_that_is_answered_with_nothing_is_an_error_and_so_is_its_last_retry() -> None:
    scribe = Scribe({"b6": [None, None, None]})
    outcome = run("a5 .5 b6 .6", scribe, backoff=databus.Backoff(retries=2))
    assert [word for word in scribe.said if word.startswith("rollback")] == ["rollback 6"] * 2
    assert scribe.said[-2].startswith("error on_data_event answered nothing")
    assert scribe.said[-1] == "stop"
    assert (outcome.state, outcome.checkpoint.window_scn) == ("closed", 5)


def test_a_window_that_is_done_begins_a_new_count_of_retries() -> None:
    scribe = Scribe({"a5": [None], "b6": [None]})
    assert run("a5 .5 b6 .6", scribe, backoff=databus.Backoff(retries=1)).state == "finished"


def test_a_fatal_error_is_not_tried_again() -> None:
    scribe = Scribe({"6]": [databus.Result.ERROR_FATAL]})
    outcome = run("a5 .5 b6 .6", scribe)
    assert outcome.state == "closed"
    assert not [word for word in scribe.said if word.startswith("rollback")]


def test_false_ends_the_loop_and_what_the_last_callbacks_do_changes_nothing() -> None:
    scribe = Scribe({"b6": [False], "stop": [ValueError("no")]})
    outcome = run("a5 .5 b6 .6", scribe)
    assert scribe.said[-2:] == ["b6", "stop"]
    assert (outcome.state, outcome.checkpoint.window_scn) == ("stopped", 5)


def test_a_consumption_that_does_not_start_is_stopped() -> None:
    scribe = Scribe({"begin": [databus.Result.ERROR]})
    assert run("a5 .5", scribe).state == "stopped"
    assert scribe.said == ["begin", "stop"]


@pytest.mark.parametrize("answer", [databus.Result.SKIP_CHECKPOINT, databus.Result.ERROR])
def test_a_checkpoint_that_is_not_wanted_is_not_stored(answer: Any, tmp_path: Path) -> None:
    file = databus.CheckpointFile(tmp_path / "checkpoint.json")
    run("a5 .5 b6 .6", Scribe({"checkpoint 6": [answer]}), checkpoints=file)
    assert file.load().window_scn == 5


def test_within_a_long_window_checkpoints_are_offered(tmp_path: Path) -> None:
    file = databus.CheckpointFile(tmp_path / "checkpoint.json")
    scribe = Scribe({"b6": [True, True, False]})
    run("a5 .5 b6 b6 b6 b6 .6", scribe, checkpoints=file, checkpoint_after=2)
    assert scribe.said[-6:] == ["(b", "b6", "b6", "checkpoint 6", "b6", "stop"]
    kept = file.load()
    assert (kept.window_scn, kept.prev_scn, kept.window_offset, kept.consumed_scn) == (6, 5, 2, 5)


class Killed(BaseException):
    pass


class Mortal(Scribe):
    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def _note(self, name: str) -> Any:
        answer = super()._note(name)
        if len(self.said) > self.left:
            raise Killed
        return answer


def test_killed_at_every_callback_it_goes_on_behind_the_last_checkpoint(tmp_path: Path) -> None:
    text = "a1 b1 .1 a2 a2 .2 b3 .3"
    whole = Scribe()
    run(text, whole)
    for left in range(len(whole.said)):
        file = databus.CheckpointFile(tmp_path / f"{left}.json")
        killed = Mortal(left)
        with pytest.raises(Killed):
            run(text, killed, checkpoints=file)
        assert killed.said == whole.said[: left + 1]
        behind = [at for at, name in enumerate(whole.said[:left]) if name.startswith("checkpoint")]
        resumed = Scribe()
        run(text, resumed, checkpoints=file)
        assert resumed.said == ["begin", *whole.said[behind[-1] + 1 if behind else 1 :]]


@pytest.mark.parametrize("seed", range(5))
def test_killed_at_any_callback_nothing_is_missed_and_only_the_open_window_comes_again(
    seed: int, tmp_path: Path
) -> None:
    text = " ".join(f"a{scn} a{scn} b{scn} .{scn}" for scn in range(1, 9))
    draw = random.Random(seed)
    file = databus.CheckpointFile(tmp_path / "checkpoint.json")
    lives: list[list[str]] = []
    while True:
        scribe = Scribe()
        left = draw.randint(1, 25)
        note = scribe._note

        def until_killed(name: str, note: Any = note, scribe: Scribe = scribe, left: int = left) -> Any:
            if len(scribe.said) >= left:
                raise Killed
            return note(name)

        scribe._note = until_killed  # type: ignore[method-assign]
        lives.append(scribe.said)
        try:
            run(text, scribe, checkpoints=file)
        except Killed:
            continue
        if "8]" in scribe.said or file.load().window_scn == 8:
            break
    seen: list[int] = []
    for said in lives:
        scns = [int(word[1:]) for word in said if word[0] in "ab" and word[1:].isdigit()]
        assert not seen or not scns or scns[0] in (seen[-1], seen[-1] + 1)
        seen += scns
    assert set(seen) == set(range(1, 9))
    assert len(lives) > 2


def test_each_event_goes_to_one_member_of_each_group_between_the_barriers() -> None:
    log: list[tuple[int, str]] = []
    lock = threading.Lock()

    class Noting(Scribe):
        def _note(self, name: str) -> Any:
            with lock:
                log.append((id(self), name))
            return super()._note(name)

    first, alone, second = [Noting() for _ in range(3)], Noting(), [Noting() for _ in range(2)]
    text = " ".join(["a5"] * 9 + ["b5"] * 4 + [".5"])
    outcome = dispatch(Windows(text, size=5), [first, alone, second])
    assert outcome.state == "finished"
    for group in (first, [alone], second):
        assert sum(each.said.count("a5") for each in group) == 9
        assert all(each.said.count("a5") >= 9 // len(group) - 1 for each in group)
    steps = ["[5", "(a", "a5", "a)", "(b", "b5", "b)", "5]", "checkpoint 5", "stop"]
    order = [steps.index(name) for _, name in log if name in steps]
    assert order == sorted(order)
    assert len([name for _, name in log if name == "(a"]) == 6


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that only who hangs moves on: by the machine's own any callback might take too long."""
    found = SimpleNamespace(now=0.0)
    monkeypatch.setattr(consumers, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def test_a_listener_that_hangs_is_an_error_after_its_time(clock: SimpleNamespace) -> None:
    over = threading.Event()

    class Hanging(Scribe):
        def on_data_event(self, event: databus.Event) -> Any:
            if not self.said.count("b6"):
                self.said.append("b6")
                clock.now += 1
                over.wait(120)
            return super().on_data_event(event)

    scribe = Hanging()
    try:
        outcome = dispatch(Windows("b6 .6"), scribe, time_budget=0.2, wait=lambda _: None)
    finally:
        over.set()
    assert "rollback 6" in scribe.said
    assert outcome.state == "finished"


def test_a_callback_that_outlived_its_time_delivers_nothing_of_its_window_any_more(
    clock: SimpleNamespace,
) -> None:
    """Neither between the rollback and the replay, nor after the stop: it ends, and calls nobody."""
    free, ended = threading.Event(), threading.Event()

    class Hanging(Scribe):
        hangs = True

        def on_data_event(self, event: databus.Event) -> Any:
            if self.hangs:
                self.hangs = False
                threads.append(threading.current_thread())
                clock.now += 1
                free.wait(120)
                ended.set()
                return True
            return super().on_data_event(event)

    threads: list[threading.Thread] = []

    def between(_: float) -> None:
        """The hanging callback comes back between the rollback and the replay."""
        free.set()
        ended.wait(60)
        threads[0].join(60)
        scribe.said.append("waited")

    scribe = Hanging()
    outcome = dispatch(Windows("a6 a6 a6 .6", size=3), scribe, time_budget=0.2, wait=between)
    assert outcome.state == "finished"
    assert not threads[0].is_alive()
    assert scribe.said == words("begin [6 (a rollback 6 waited [6 (a a6 a6 a6 a) 6] checkpoint 6 stop")


def test_a_callback_that_outlived_its_time_delivers_nothing_after_the_stop(clock: SimpleNamespace) -> None:
    free = threading.Event()

    class Hanging(Scribe):
        def on_data_event(self, event: databus.Event) -> Any:
            self.said.append("hangs")
            threads.append(threading.current_thread())
            clock.now += 1
            free.wait(120)
            return True

    threads: list[threading.Thread] = []
    scribe = Hanging()
    retries = databus.Backoff(retries=0)
    outcome = dispatch(Windows("a6 a6 a6 .6", size=3), scribe, time_budget=0.2, backoff=retries)
    assert (outcome.state, str(outcome.error)) == ("closed", "A callback took more than 0.2 seconds.")
    free.set()
    threads[0].join(60)
    assert not threads[0].is_alive()
    assert [word for word in scribe.said if word in ("hangs", "stop")] == ["hangs", "stop"]


def test_the_time_of_a_callback_begins_with_it_and_not_with_the_wait_for_its_thread(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a busy machine takes an `on_rollback` away from a consumer."""
    looked = threading.Semaphore(0)
    cancel, answered = consumers.CallPermit.revoke, consumers._call_back

    def look(ticket: consumers.CallPermit, after: float | None = None) -> bool:
        found = cancel(ticket, after)
        looked.release()
        return found

    def begin_late(*told: Any) -> Any:
        clock.now += 1
        while looked.acquire(blocking=False):
            pass
        # The second look began behind the wait.
        assert looked.acquire(timeout=60)
        assert looked.acquire(timeout=60)
        return answered(*told)

    monkeypatch.setattr(consumers.CallPermit, "revoke", look)
    monkeypatch.setattr(consumers, "_call_back", begin_late)
    scribe = Scribe({"a5": [ValueError("no")]})
    assert dispatch(Windows("a5 .5"), scribe, time_budget=0.02, wait=lambda _: None).state == "finished"
    assert scribe.said == words("begin [5 (a a5 rollback 5 [5 (a a5 a) 5] checkpoint 5 stop")


def test_what_ends_a_program_in_a_member_of_a_group_ends_the_dispatch() -> None:
    """`sys.exit()` in a thread of its own would else be heard by nobody, and the dispatch wait for ever."""
    others = [Scribe(), Scribe()]
    found: list[BaseException] = []

    def work(consumers: Any) -> None:
        try:
            dispatch(Windows("a5 a5 a5 .5", size=3), consumers)
        except BaseException as error:
            found.append(error)

    for given in ([[Scribe({"a5": [SystemExit(3)]}), *others]], [Scribe({"a5": [SystemExit(3)]})]):
        thread = threading.Thread(target=work, args=(given,), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    assert [(type(error), error.args) for error in found] == [(SystemExit, (3,))] * 2


@pytest.mark.parametrize(
    ("where", "answer", "state"),
    [
        ("a5", np.bool_(False), "stopped"),
        ("a5", np.bool_(True), "finished"),
        ("5]", True, "finished"),
        ("a5", "done", "closed"),
        ("a5", 250, "closed"),
        ("5]", False, "closed"),
        ("5]", "done", "closed"),
    ],
)
def test_what_is_no_answer_is_an_error_alone_and_in_a_group(where: str, answer: Any, state: str) -> None:
    for others in ([], [Scribe()]):
        scribe = Scribe({where: [answer]})
        outcome = dispatch(Windows("a5 .5", size=3), [scribe, *others], backoff=databus.Backoff(retries=0))
        assert outcome.state == state
        if state == "closed":
            assert f"must answer a Result, not {answer!r}" in str(outcome.error)


def test_each_rollback_says_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    run("a5 .5 b6 .6", Scribe({"b6": [ValueError("The disk is full.")], "6]": [databus.Result.ERROR]}))
    told = [(each.getMessage(), each.exc_info) for each in caplog.records if each.levelname == "WARNING"]
    assert [message for message, _ in told] == [
        f"An error in the window that starts at SCN 6: it comes again in 0.1 s, retry {number} of any number."
        for number in (1, 2)
    ]
    assert [str(info[1]) for _, info in told if info] == ["The disk is full.", "A callback answered ERROR."]


def test_retries_grow() -> None:
    waited: list[float] = []
    scribe = Scribe({"a5": [None] * 3})
    dispatch(Windows("a5 .5"), scribe, backoff=databus.Backoff(first=1.0), wait=waited.append)
    assert [round(each, 3) for each in waited] == [1.0, 1.1, 1.21]


class Begun(BootstrapStream):
    """A bootstrap without a relay: rows of sources at SCN 3, then windows; each snapshot is one of them."""

    def __init__(self, snapshot: dict[str, str], text: str) -> None:
        super().__init__(Store(None, "/nowhere"), databus.Subscription([A, B]), {}, Place())
        self.rows, self.text = snapshot, text

    def windows(self, after: int = -1) -> Iterator[Window]:
        return Windows(self.text).windows(after)

    def _snapshot(self, source: databus.Source, start: int) -> Iterator[Window]:
        return Windows(self.rows[source.name]).windows()

    def _last_scn(self) -> int:
        return 3


@seeds(*range(6), soak=400)
def test_a_bootstrap_with_checkpoints_within_windows_loses_nothing(seed: int, tmp_path: Path) -> None:
    """Killed, failing and unwilling to be stored at random callbacks; every event comes at least once."""
    draw = random.Random(seed)
    stream = Begun({"a": "a1 a1 a2 a3 a3 .3", "b": "b1 b2 b2 b3 .3"}, "a1 .1 a4 a4 b4 b4 .4 b5 a5 a5 .5")
    options = {"checkpoint_after": draw.randint(1, 3), "checkpoint_every": draw.choice([0.0, 60.0])}
    file = databus.CheckpointFile(tmp_path / "checkpoint.json")
    seen: list[str] = []
    lives = 0
    while True:
        scribe = Drawn(draw, draw.randint(2, 20) if lives < 8 else 10**6, seen)
        lives += 1
        try:
            if dispatch(stream, scribe, checkpoints=file, wait=lambda _: None, **options).state == "finished":
                break
        except Killed:
            continue
    # The key of an event is its place in the text; window 1 lies below the snapshot.
    everything = {f"a{n}" for n in (0, 1, 2, 3, 4)} | {f"b{n}" for n in (0, 1, 2, 3)}
    everything |= {f"{scn}.{key}" for scn, keys in ((4, (2, 3, 4, 5)), (5, (7, 8, 9))) for key in keys}
    assert {each for each in seen if not each.startswith("1.")} == everything
    last = file.load()
    assert (last.window_scn, last.window_offset) == (5, -1)


class Drawn(Scribe):
    """Notes its events; fails, refuses checkpoints and is killed at random."""

    def __init__(self, draw: random.Random, left: int, seen: list[str]) -> None:
        super().__init__()
        self.draw, self.left, self.seen = draw, left, seen

    def _note(self, name: str) -> Any:
        self.left -= 1
        if self.left < 0:
            raise Killed
        failing = self.draw.random() < 0.03 and not name.startswith("checkpoint 5")
        return databus.Result.ERROR if failing else databus.Result.SUCCESS

    def on_data_event(self, event: databus.Event) -> Any:
        answer = self._note("event")
        if answer.is_success:
            # A row of a snapshot has the SCN of its change, at most 3.
            of = event.source.name if event.scn <= 3 else f"{event.scn}."
            self.seen.append(f"{of}{event.key}")
        return answer


def test_the_bootstrap_of_an_empty_relay_is_finished_and_its_first_windows_come(tmp_path: Path) -> None:
    stream = BootstrapStream(Store(None, tmp_path), databus.Subscription([A]), {}, Place())
    assert dispatch(stream, Scribe()).state == "finished"
    begun = Begun({}, "a0 .0 a4 .4")
    begun._last_scn = lambda: -1  # type: ignore[method-assign]
    outcome = dispatch(begun, scribe := Scribe())
    assert scribe.said == words("begin [0 (a a0 a) 0] [4 (a a4 a) 4] checkpoint 4 stop")
    assert outcome.checkpoint == databus.Checkpoint.of_window(4, ts_nsecs=4_000_000_000)


def test_in_the_middle_of_a_snapshot_no_other_stream_goes_on(tmp_path: Path) -> None:
    file = databus.CheckpointFile(tmp_path / "checkpoint.json")
    stream = Begun({"a": "a1 a1 a2 .3", "b": "b1 b2 b2 .3"}, "a4 .4")
    dispatch(stream, Scribe({"b2": [False]}), checkpoints=file, checkpoint_after=1)
    kept = file.load()
    assert (kept.consumption_mode, kept.window_scn, kept.window_offset) == ("BOOTSTRAP_SNAPSHOT", 3, 1)
    assert (kept.bootstrap_start_scn, kept.bootstrap_snapshot_source_index) == (3, 1)
    with pytest.raises(InvalidArgument, match="the checkpoint is in the middle of one"):
        run("a4 .4", Scribe(), checkpoints=file)
    scribe = Scribe()
    dispatch(stream, scribe, checkpoints=file)
    assert scribe.said == words("begin [1 (b b1 b2 b2 b) 3] checkpoint 3 [4 (a a4 a) 4] checkpoint 4 stop")


@pytest.mark.parametrize("option", ["time_budget", "checkpoint_after"])
def test_no_time_and_no_events_are_refused(option: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{option} to be above 0"):
        run("a5 .5", Scribe(), **{option: 0})


@pytest.mark.parametrize("consumers", [[], [[]], "x", [1]])
def test_without_consumers_there_is_nothing_to_do(consumers: Any) -> None:
    with pytest.raises(InvalidArgument, match="one Consumer or more"):
        dispatch(Windows("a5 .5"), consumers)
