"""`dispatch`: which callbacks come, in which order, and what becomes of what they answer."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdckit import InvalidArgument, databus
from cdckit.databus.dispatching import dispatch
from cdckit.databus.streaming import Window, split

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
        return split(batches, SOURCES)


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
    outcome = run("a5 .5 b6 .6", scribe, retries=databus.Retries(most=2))
    assert [word for word in scribe.said if word.startswith("rollback")] == ["rollback 6"] * 2
    assert scribe.said[-2].startswith("error on_data_event answered nothing")
    assert scribe.said[-1] == "stop"
    assert (outcome.state, outcome.checkpoint.window_scn) == ("closed", 5)


def test_a_window_that_is_done_begins_a_new_count_of_retries() -> None:
    scribe = Scribe({"a5": [None], "b6": [None]})
    assert run("a5 .5 b6 .6", scribe, retries=databus.Retries(most=1)).state == "finished"


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
    assert (kept.window_scn, kept.prev_scn, kept.window_offset, kept.passed) == (6, 5, 2, 5)


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


def test_a_listener_that_hangs_is_an_error_after_its_time() -> None:
    over = threading.Event()

    class Hanging(Scribe):
        def on_data_event(self, event: databus.Event) -> Any:
            if not self.said.count("b6"):
                self.said.append("b6")
                over.wait(120)
            return super().on_data_event(event)

    scribe = Hanging()
    try:
        outcome = dispatch(Windows("b6 .6"), scribe, time_budget=0.2, wait=lambda _: None)
    finally:
        over.set()
    assert "rollback 6" in scribe.said
    assert outcome.state == "finished"


def test_retries_grow() -> None:
    waited: list[float] = []
    scribe = Scribe({"a5": [None] * 3})
    dispatch(Windows("a5 .5"), scribe, retries=databus.Retries(delay=1.0), wait=waited.append)
    assert [round(each, 3) for each in waited] == [1.0, 1.1, 1.21]


@pytest.mark.parametrize("consumers", [[], [[]], "x", [1]])
def test_without_consumers_there_is_nothing_to_do(consumers: Any) -> None:
    with pytest.raises(InvalidArgument, match="one Consumer or more"):
        dispatch(Windows("a5 .5"), consumers)
