"""`dispatch`: which callbacks come, in which order, and what becomes of what they answer."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdckit import databus
from cdckit.databus.dispatcher import dispatch
from cdckit.databus.event_stream import Window, split_windows
from cdckit.errors import InvalidArgument
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
            window = {"topic": "t", "partition": 0, "physical_partition": 1, "window": number}
            window["window_state"] = "complete" if word[0] == "." else "rolled back"
            window["window_end_scn"] = scn if word[0] == "." else None
            window["window_start_scn"] = min((event["scn"] for event in begun), default=None)
            self.rows += [row | window for row in begun]
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
        ("event_timestamp", pa.timestamp("us", "UTC")),
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
    callbacks: list[str] = []
    for word in text.split():
        if callbacks and callbacks[-1] in ("checkpoint", "rollback"):
            callbacks[-1] += f" {word}"
        else:
            callbacks.append(word)
    return callbacks


def test_callbacks_come_as_the_grammar_has_them_and_an_empty_window_calls_nobody() -> None:
    scribe = Scribe()
    outcome = run(BOTH, scribe)
    assert scribe.said == words(f"{FIRST} {SECOND} stop")
    assert (outcome.state, outcome.windows, outcome.checkpoint) == ("finished", 2, 6)


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
    assert (outcome.state, outcome.checkpoint) == ("closed", 5)


def test_a_window_that_is_done_begins_a_new_count_of_retries() -> None:
    scribe = Scribe({"a5": [None], "b6": [None]})
    assert run("a5 .5 b6 .6", scribe, backoff=databus.Backoff(retries=1)).state == "finished"


@pytest.mark.parametrize("first", [5, 0])
def test_windows_that_come_again_in_each_round_are_no_progress(first: int) -> None:
    """Without a checkpoint behind it, the window before the one that fails is done again each time."""
    skip = {f"checkpoint {first}": [databus.Result.SKIP_CHECKPOINT] * 50}
    scribe = Scribe({**skip, "b6": [None] * 50})
    outcome = run(f"a{first} .{first} b6 .6", scribe, backoff=databus.Backoff(retries=2))
    assert (outcome.state, scribe.said.count("b6"), outcome.windows) == ("closed", 3, 3)


def test_a_checkpoint_is_not_offered_within_a_window() -> None:
    """A consumer that saves what it has at a checkpoint would save half a window."""
    done = words("begin [5 (a a5 a) 5] checkpoint 5 [6 (a a6 a) 6] [7 (b b7")
    text = "a5 .5 a6 .6 b7 .7"
    scribe = Scribe({"b7": [ValueError("no")]})
    assert run(text, scribe, checkpoint_every=60.0).checkpoint == 7
    again = words("[7 (b b7 b) 7] checkpoint 7 stop")
    assert scribe.said == [*done, "rollback 7", "checkpoint 6", *again]
    for answer, last in ((False, ["stop"]), (databus.Result.ERROR_FATAL, ["error", "stop"])):
        scribe = Scribe({"b7": [answer]})
        outcome = run(text, scribe, checkpoint_every=60.0)
        assert outcome.checkpoint == 5
        assert [name.split()[0] for name in scribe.said[len(done) :]] == last


def test_a_fatal_error_is_not_tried_again() -> None:
    scribe = Scribe({"6]": [databus.Result.ERROR_FATAL]})
    outcome = run("a5 .5 b6 .6", scribe)
    assert outcome.state == "closed"
    assert not [word for word in scribe.said if word.startswith("rollback")]


def test_false_ends_the_loop_and_what_the_last_callbacks_do_changes_nothing() -> None:
    scribe = Scribe({"b6": [False], "stop": [ValueError("no")]})
    outcome = run("a5 .5 b6 .6", scribe)
    assert scribe.said[-2:] == ["b6", "stop"]
    assert (outcome.state, outcome.checkpoint) == ("stopped", 5)


def test_a_consumption_that_does_not_start_is_stopped() -> None:
    scribe = Scribe({"begin": [databus.Result.ERROR]})
    outcome = run("a5 .5", scribe)
    assert (outcome.state, str(outcome.error)) == ("stopped", "on_start_consumption answered ERROR.")
    assert scribe.said == ["begin", "stop"]


def test_why_a_consumption_does_not_start_is_returned_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    cause = ValueError("No such table.")
    assert run("a5 .5", Scribe({"begin": [cause]})).error is cause
    assert [record.getMessage() for record in caplog.records] == [
        "The consumption does not start: No such table."
    ]


class Checkpoint:
    """In memory."""

    scn = -1

    def load(self) -> int:
        return self.scn

    def store(self, scn: int) -> None:
        self.scn = scn


@pytest.mark.parametrize("answer", [databus.Result.SKIP_CHECKPOINT, databus.Result.ERROR])
def test_a_checkpoint_that_is_not_wanted_is_not_stored(answer: Any) -> None:
    checkpoint = Checkpoint()
    run("a5 .5 b6 .6", Scribe({"checkpoint 6": [answer]}), checkpoints=checkpoint)
    assert checkpoint.load() == 5


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


def test_killed_at_every_callback_it_goes_on_behind_the_last_checkpoint() -> None:
    text = "a1 b1 .1 a2 a2 .2 b3 .3"
    whole = Scribe()
    run(text, whole)
    for left in range(len(whole.said)):
        checkpoint = Checkpoint()
        killed = Mortal(left)
        with pytest.raises(Killed):
            run(text, killed, checkpoints=checkpoint)
        assert killed.said == whole.said[: left + 1]
        behind = [at for at, name in enumerate(whole.said[:left]) if name.startswith("checkpoint")]
        resumed = Scribe()
        run(text, resumed, checkpoints=checkpoint)
        assert resumed.said == ["begin", *whole.said[behind[-1] + 1 if behind else 1 :]]


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
        assert sum(scribe.said.count("a5") for scribe in group) == 9
        assert all(scribe.said.count("a5") >= 9 // len(group) - 1 for scribe in group)
    steps = ["[5", "(a", "a5", "a)", "(b", "b5", "b)", "5]", "checkpoint 5", "stop"]
    order = [steps.index(name) for _, name in log if name in steps]
    assert order == sorted(order)
    assert len([name for _, name in log if name == "(a"]) == 6


def test_members_of_a_group_take_turns_from_window_to_window() -> None:
    group = [Scribe() for _ in range(3)]
    dispatch(Windows("a1 .1 a2 a2 .2 a3 .3 a4 .4 a5 .5"), [group])
    taken = [[name for name in scribe.said if name[0] == "a" and name != "a)"] for scribe in group]
    assert taken == [["a1", "a3"], ["a2", "a4"], ["a2", "a5"]]


def test_what_ends_a_program_in_a_member_of_a_group_ends_the_dispatch() -> None:
    """`sys.exit()` in a thread of its own would else be heard by nobody, and the dispatch wait for ever."""
    others = [Scribe(), Scribe()]
    errors: list[BaseException] = []

    def work(consumers: Any) -> None:
        try:
            dispatch(Windows("a5 a5 a5 .5", size=3), consumers)
        except BaseException as error:
            errors.append(error)

    for given in ([[Scribe({"a5": [SystemExit(3)]}), *others]], [Scribe({"a5": [SystemExit(3)]})]):
        thread = threading.Thread(target=work, args=(given,), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    assert [(type(error), error.args) for error in errors] == [(SystemExit, (3,))] * 2


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
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.getMessage() for record in warnings] == [
        f"An error in the window that starts at SCN 6: it comes again in 0.1 s, retry {number} of any number."
        for number in (1, 2)
    ]
    causes = [str(record.exc_info[1]) for record in warnings if record.exc_info]
    assert causes == ["The disk is full.", "on_end_data_event_sequence answered ERROR."]


def test_retries_grow() -> None:
    waited: list[float] = []
    scribe = Scribe({"a5": [None] * 3})
    dispatch(Windows("a5 .5"), scribe, backoff=databus.Backoff(first=1.0), wait=waited.append)
    assert [round(delay, 3) for delay in waited] == [1.0, 1.1, 1.21]


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
            self.seen.append(f"{event.source.name}{event.scn}.{event.key}")
        return answer


@seeds(*range(6), soak=400)
def test_failing_and_killed_at_random_callbacks_every_event_comes_at_least_once(seed: int) -> None:
    draw = random.Random(seed)
    text = "a1 b1 b1 .1 a2 a2 a2 .2 b3 .3 a4 a4 b4 b4 .4 b5 a5 a5 .5"
    checkpoint, every = Checkpoint(), draw.choice([0.0, 60.0])
    seen: list[str] = []
    for life in range(100):
        scribe = Drawn(draw, draw.randint(2, 20) if life < 8 else 10**6, seen)
        try:
            outcome = run(text, scribe, checkpoints=checkpoint, checkpoint_every=every)
        except Killed:
            continue
        if outcome.state == "finished":
            break
    # The key of an event is its place in the text.
    expected = {f"{word}.{place}" for place, word in enumerate(text.split()) if word[0] != "."}
    assert set(seen) == expected
    assert checkpoint.load() == 5


@pytest.mark.parametrize("consumers", [[], [[]], "x", [1]])
def test_without_consumers_there_is_nothing_to_do(consumers: Any) -> None:
    with pytest.raises(InvalidArgument, match="one Consumer or more"):
        dispatch(Windows("a5 .5"), consumers)
