"""Sending, receiving and asking: what is sent when, what is refused how, and that nothing vanishes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cdckit.errors import InvalidArgument
from cdckit.rdss import Rules
from cdckit.rdss.findings import RdssFault
from cdckit.rdss.gateway import (
    AuditEntry,
    ChannelUnreachable,
    Delivery,
    KnownMessage,
    Machine,
    MemoryChannel,
    Message,
    MessageContext,
    NoResponse,
    NotRefused,
    Outcome,
    Rejection,
    SendFailed,
    SqliteRepository,
    Status,
    UnfitMessage,
    judging,
)
from cdckit.rdss.message_splitting import split
from support.rdss_exchange import (
    NOON,
    OBJECT,
    OTHERS,
    exchange,
    expired,
    gateway,
    kept,
    message,
    part,
    put,
    uuid,
)


class Failing(MemoryChannel):
    """A queue that cannot be reached for the next *fails* calls that send."""

    def __init__(self, name: str, fails: int) -> None:
        super().__init__(name)
        self.fails = fails

    def send(self, value: bytes, *, key: str) -> None:
        if self.fails:
            self.fails -= 1
            raise ChannelUnreachable(self.name, "the cable is cut")
        super().send(value, key=key)


def errors(channel: Any) -> list[tuple[str, str]]:
    """Of what an error queue has: the code, and the beginning of the description."""
    headers = [each["messageHeader"] for each in kept(channel)]
    return [(each["errorCode"], each["errorDescription"]) for each in headers]


def test_a_message_is_sent_with_its_history_and_is_sent_only_then() -> None:
    channels = exchange()
    with SqliteRepository(":memory:") as repository:
        sender = gateway(repository, channels, machine=Machine("g", "gateway.example"))
        sender.send(message(1))
        assert repository.status(uuid(1)) is Status.SENT
    [sent] = kept(channels.output)
    assert sent["messageHeader"]["messageId"] == uuid(1)
    assert sent["messageHeader"]["messageHistory"] == [
        {"machineId": "g", "machineAddress": "gateway.example", "timestamp": "2024-02-01T12:00:00.000Z"}
    ]


def test_a_queue_that_fails_twice_is_tried_three_times_with_growing_delays() -> None:
    channels, slept = exchange(output=Failing("output", 2)), list[float]()
    with SqliteRepository(":memory:") as repository:
        gateway(repository, channels, sleep=slept.append).send(message(1))
    assert slept == [0.2, 0.4]
    assert len(kept(channels.output)) == 1


def test_what_was_not_acknowledged_stays_to_be_sent_and_goes_first_the_next_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Three tries are allowed here; the log says the code that the specification asks for."""
    channels = exchange(output=Failing("output", 3))
    with SqliteRepository(":memory:") as repository:
        sender = gateway(repository, channels)
        with pytest.raises(SendFailed, match=r"GENERR005: the message .* was not sent to 'output'"):
            sender.send(message(1))
        assert repository.status(uuid(1)) is Status.TO_SEND
        assert "GENERR005" in caplog.text
        sender.send(message(2))
        assert [each["messageHeader"]["messageId"] for each in kept(channels.output)] == [uuid(1), uuid(2)]


def test_messages_about_one_object_have_one_key_so_that_they_stay_in_order() -> None:
    """Parts too; what is sent by a handler as well."""

    class Recording(MemoryChannel):
        def send(self, value: bytes, *, key: str) -> None:
            keys.append(key)

    keys, channels = list[str](), exchange(output=Recording("output"))
    with SqliteRepository(":memory:") as repository:
        sender = gateway(repository, channels, rules=Rules(max_bytes=1200))
        sender.send(OTHERS.message("MetadataUpdate", OBJECT, now=NOON))
        put(channels, message(1))
        sender.receive()
        sender.process(lambda turn: turn.send(OTHERS.message("MetadataDelete", {"objectUUID": uuid(5)})))
        sender.send(message(2))
    *same, other = keys
    assert len(same) > 2
    assert {*same} == {uuid(5)}
    assert other == uuid(10**6 + 2)


def test_what_a_receiver_would_refuse_is_not_sent() -> None:
    channels = exchange()
    with SqliteRepository(":memory:") as repository:
        sender = gateway(repository, channels)
        with pytest.raises(UnfitMessage, match="GENERR001"):
            sender.send(Message(message(1).header, {"objectUUID": uuid(1), "colour": "red"}))
        with pytest.raises(UnfitMessage, match="GENERR003"):
            sender.send(expired(2))
        for title in (NOON, float("nan"), "\ud83d"):
            with pytest.raises(UnfitMessage, match="GENERR007"):
                sender.send(Message(message(3, "MetadataCreate").header, {**OBJECT, "objectTitle": title}))
        large = OTHERS.message("MetadataCreate", OBJECT, return_address="a" * 1_000_000, now=NOON)
        with pytest.raises(InvalidArgument, match="leaves room for a body"):
            sender.send(large)
        assert repository.unsent_messages(9, "output") == []
    assert kept(channels.output) == []


def test_a_message_of_which_one_part_cannot_be_judged_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = judging.validate

    def fails(value: bytes, **named: Any) -> Any:
        if b'"position": 2' in value:
            raise MemoryError
        return judge(value, **named)

    monkeypatch.setattr(judging, "validate", fails)
    with SqliteRepository(":memory:") as repository:
        sender = gateway(repository, exchange(), rules=Rules(max_bytes=2000))
        large = {**OBJECT, "objectTitle": "x" * 2000}
        with pytest.raises(UnfitMessage, match=r"GENERR009.*MemoryError"):
            sender.send(OTHERS.message("MetadataCreate", large, now=NOON))
        assert repository.unsent_messages(9, "output") == []


def test_a_whole_message_has_a_limit_for_who_sends_it_and_for_who_takes_it() -> None:
    """Also where its parts, and it as well, are far below that of one: its header alone has 400 bytes."""
    rules, text = Rules(max_whole_bytes=400), json.dumps({"objectUUID": uuid(5)})
    channels = exchange()
    with SqliteRepository(":memory:") as repository:
        limited = gateway(repository, channels, rules=rules)
        put(channels, part(1, 1, 2, text[:9]), part(2, 2, 2, text[9:]))
        assert limited.receive() == [Outcome.WAITING, Outcome.ERROR]
        assert [code for code, _ in errors(channels.error)] == ["GENERR006", "GENERR006"]
        large = OTHERS.message("MetadataCreate", {**OBJECT, "objectTitle": "x" * 3000}, now=NOON)
        narrow = gateway(repository, channels, rules=Rules(max_bytes=2000, max_whole_bytes=3000))
        with pytest.raises(UnfitMessage, match="GENERR006"):
            narrow.send(large)
        gateway(repository, channels, rules=Rules(max_bytes=2000)).send(large)
    assert len(kept(channels.output)) > 1


def test_every_entry_of_the_log_that_tells_of_an_error_has_a_code(caplog: pytest.LogCaptureFixture) -> None:
    """An acknowledgement that fails, a handler that fails for now and for good, an address of nobody."""

    class Deaf(MemoryChannel):
        def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
            raise ChannelUnreachable(self.name, "gone")

    failures = iter([ConnectionError("the shelf is locked"), KeyError("shelf"), None])
    channels = exchange(input=Deaf("input"))

    def handler(turn: MessageContext) -> None:
        if error := next(failures):
            raise error
        turn.reply(OBJECT)

    with caplog.at_level("DEBUG", "cdckit.rdss.gateway"), SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        put(channels, b"{", message(1), message(2, "MetadataRead", return_address="the moon"))
        receiver.receive()
        assert receiver.process(handler) == 2
        assert repository.counts()[Outcome.PROCESSED] == 1
    entries = [record.getMessage() for record in caplog.records if record.name == "cdckit.rdss.gateway"]
    codes = [re.match(r"(GENERR\d{3}) ", entry) for entry in entries]
    assert [code and code[1] for code in codes] == [
        *("GENERR007", "GENERR006", "GENERR006", "GENERR009", "GENERR009", "GENERR004"),
    ]
    assert "the returnAddress 'the moon' is none" in entries[-1]


def test_every_message_has_one_outcome_in_the_order_of_the_checks() -> None:
    """Parse, header, version, body, expiry, duplicate, handler."""
    channels = exchange()
    other_version = Message({**message(3).header, "version": "5.0.0"}, message(3).body)
    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        receiver.send(message(9))
        put(channels, b"\xff{", b"{}", other_version, Message(message(4).header, {"objectUUID": "?"}))
        put(channels, expired(5), message(6), message(6), message(7), message(8), message(9))

        def handler(turn: MessageContext) -> None:
            if turn.message.message_id == uuid(7):
                raise KeyError("shelf")
            if turn.message.message_id == uuid(8):
                raise Rejection(RdssFault.DELETE_OF_UNKNOWN, "It is not on the shelf.")

        outcomes = receiver.receive()
        assert [outcome.value for outcome in outcomes] == [
            *("invalid", "invalid", "invalid", "invalid", "invalid"),
            *("waiting", "duplicate", "waiting", "waiting", "duplicate"),
        ]
        assert receiver.process(handler) == 3
        assert {outcome.value: number for outcome, number in repository.counts().items()} == {
            "waiting": 0,
            "processed": 1,
            "invalid": 6,
            "error": 1,
            "duplicate": 2,
        }
    codes = [code for code, _ in errors(channels.invalid)]
    assert codes == ["GENERR007", "GENERR004", "GENERR004", "GENERR010", "GENERR003", "APPERRMET002"]
    [(code, description)] = errors(channels.error)
    assert code == "GENERR009"
    assert description.endswith("KeyError: 'shelf'")
    assert len(channels.input) == 0  # type: ignore[arg-type]


def test_what_follows_from_a_message_appears_with_its_outcome_or_not_at_all() -> None:
    """A response goes to the returnAddress that is known; a row that cannot be written undoes all of it."""
    channels = exchange(returns={"desk": MemoryChannel("desk")})
    with SqliteRepository(":memory:") as repository:
        repository.rows("CREATE TABLE shelf (object TEXT UNIQUE)")
        receiver = gateway(repository, channels)
        put(channels, message(1, "MetadataRead", return_address="desk"))
        put(channels, message(2, "MetadataRead", return_address="somewhere else"), message(3))

        def handler(turn: MessageContext) -> None:
            turn.send(
                receiver.producer.message("MetadataDelete", turn.message.body, message_id=uuid(70), now=NOON)
            )
            turn.write(
                "INSERT INTO shelf VALUES (?)", "first" if turn.message.message_id == uuid(1) else "same"
            )

        receiver.receive()
        receiver.process(handler)
        rows = repository.rows("SELECT object FROM shelf")
        assert sorted(row[0] for row in rows) == ["first", "same"]
        assert repository.counts()[Outcome.PROCESSED] == 2
    assert [code for code, _ in errors(channels.error)] == ["GENERR006"]


def test_a_response_goes_where_the_request_says() -> None:
    desk = MemoryChannel("desk")
    channels = exchange(returns={"desk": desk})
    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        put(channels, message(1, "MetadataRead", return_address="desk"), message(2, "MetadataRead"))
        receiver.receive()

        def handler(turn: MessageContext) -> None:
            turn.reply(OBJECT)

        receiver.process(handler)
        assert repository.counts()[Outcome.PROCESSED] == 2
    for channel, asked in ((desk, uuid(1)), (channels.output, uuid(2))):
        [response] = kept(channel)
        assert response["messageHeader"]["messageClass"] == "Document"
        assert response["messageHeader"]["correlationId"] == asked


def test_a_response_to_a_queue_that_is_there_no_more_goes_to_the_output(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was noted when the queue had this name: it goes where that to an address of nobody goes."""

    def handler(turn: MessageContext) -> None:
        turn.reply(OBJECT)

    before, after = exchange(returns={"desk": Failing("desk", 3)}), exchange()
    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, before)
        put(before, message(1, "MetadataRead", return_address="desk"))
        receiver.receive()
        with pytest.raises(SendFailed, match="'desk'"):
            receiver.process(handler)
        gateway(repository, after).resume()
    [response] = kept(after.output)
    assert response["messageHeader"]["correlationId"] == uuid(1)
    assert "GENERR004 there is no queue 'return desk' any more" in caplog.text


def test_a_request_returns_its_response_and_leaves_the_rest_for_the_handler() -> None:
    channels = exchange()
    question = message(1, "MetadataRead")
    answers = [
        message(2, "MetadataDelete"),
        Message(
            {**message(3, "MetadataRead").header, "correlationId": uuid(1), "messageClass": "Document"},
            OBJECT,
        ),
    ]
    with SqliteRepository(":memory:") as repository:

        def sleep(seconds: float) -> None:
            put(channels, answers.pop(0))

        asking = gateway(repository, channels, sleep=sleep, interval=0.25)
        response = asking.request(question)
        assert (response.message_id, response.body["objectTitle"]) == (uuid(3), OBJECT["objectTitle"])
        handled = list[str]()
        asking.process(lambda turn: handled.append(turn.message.message_id))
        assert handled == [uuid(2)]


def test_a_request_that_is_repeated_after_a_crash_has_the_same_response_until_it_is_forgotten() -> None:
    """The first process ends after `request` has noted the response, and before it used it."""
    channels = exchange()
    answer = {**message(3, "MetadataRead").header, "correlationId": uuid(1), "messageClass": "Document"}
    with SqliteRepository(":memory:") as repository:
        put(channels, Message(answer, OBJECT))
        question = message(1, "MetadataRead")
        first = gateway(repository, channels).request(question)
        restarted = gateway(repository, channels)
        assert restarted.request(question, timeout=0) == first
        assert restarted.process(lambda turn: None) == 0
        assert len(kept(channels.output)) == 1
        # Messages are noted by the clock of the machine, and the gateway of these tests lives in 2024.
        assert restarted.forget(timedelta(days=-36500)) == 2
        with pytest.raises(NoResponse):
            restarted.request(question, timeout=0)


@pytest.mark.parametrize("max_bytes", [1_000_000, 1200])
def test_a_response_that_came_in_time_is_the_response_after_it_has_expired(max_bytes: int) -> None:
    """Also one in parts; one that nobody asked for before it expired is refused."""
    channels, now = exchange(), [NOON]
    rules = Rules(max_bytes=max_bytes)
    with SqliteRepository(":memory:") as repository:
        asking = gateway(repository, channels, rules=rules, clock=lambda: now[0])
        questions = [message(number, "MetadataRead") for number in (1, 2)]
        for question in questions:
            answer = OTHERS.message(
                "MetadataRead", OBJECT, answers=question, expires=NOON + timedelta(minutes=1), now=NOON
            )
            put(channels, *split(answer.to_bytes(), rules=rules))
        first = asking.request(questions[0])
        now[0] += timedelta(minutes=2)
        assert asking.request(questions[0], timeout=0) == first
        with pytest.raises(NoResponse):
            asking.request(questions[1], timeout=0)
        assert {code for code, _ in errors(channels.invalid)} == {"GENERR003"}


def test_a_request_without_a_response_ends_and_a_late_response_is_handled() -> None:
    channels = exchange()
    with SqliteRepository(":memory:") as repository:
        asking = gateway(repository, channels)
        with pytest.raises(NoResponse, match=r"No response to .* within 0.01 s"):
            asking.request(message(1, "MetadataRead"), timeout=0.01)
        assert repository.status(uuid(1)) is Status.SENT


def test_parts_are_put_together_and_only_then_looked_into() -> None:
    whole = json.dumps({"objectUUID": uuid(5)})
    channels = exchange()
    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        bodies = list[Any]()
        put(channels, part(3, 3, 3, whole[20:]), part(1, 1, 3, whole[:9]), part(2, 2, 3, whole[9:20]))
        receiver.receive(2)
        assert receiver.process(lambda turn: bodies.append(turn.message.body)) == 0
        receiver.receive(2)
        assert receiver.process(lambda turn: bodies.append(turn.message.body)) == 1
        assert bodies == [{"objectUUID": uuid(5)}]
        assert repository.counts()[Outcome.PROCESSED] == 3


def test_a_message_that_is_too_large_goes_in_parts_and_arrives_whole() -> None:
    """Sent by one gateway, taken by another: two parts, one message for the handler, and one response."""
    there, back = MemoryChannel("there"), MemoryChannel("back")
    large = {
        **OBJECT,
        "objectDescription": [{"descriptionValue": "é" * 600_000, "descriptionType": "abstract"}],
    }
    handled = list[Message]()

    def handler(turn: MessageContext) -> None:
        handled.append(turn.message)

    with SqliteRepository(":memory:") as here, SqliteRepository(":memory:") as elsewhere:
        sender = gateway(here, exchange(input=back, output=there))
        receiver = gateway(elsewhere, exchange(input=there, output=back))
        sent = OTHERS.message("MetadataCreate", large, message_id=uuid(1), now=NOON)
        sender.send(sent)
        assert len(there) == 2
        assert receiver.receive() == [Outcome.WAITING, Outcome.WAITING]
        assert receiver.process(handler) == 1
        assert handled == [sent]

        question = message(2, "MetadataRead")
        answering = gateway(here, exchange(input=back, output=there), sleep=lambda _: works())

        def works() -> None:
            receiver.receive()
            receiver.process(lambda turn: turn.reply(large) and None)

        assert answering.request(question).body == large


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"objectUUID": ', "GENERR007"),
        (f'{{"objectUUID": "{uuid(5)}", "objectUUID": "{uuid(5)}"}}', "GENERR007"),
        ('{"objectUUID": "not one"}', "GENERR010"),
    ],
)
def test_parts_that_make_no_valid_body_are_refused_each(text: str, code: str) -> None:
    """By the rules of a message that comes alone, in which no name may come twice either."""
    channels = exchange()
    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        put(channels, part(1, 1, 2, text[:8]), part(2, 2, 2, text[8:]))
        receiver.receive()
        receiver.process(lambda turn: pytest.fail("it was handled"))
        assert repository.counts()[Outcome.INVALID] == 2
    assert [each for each, _ in errors(channels.invalid)] == [code, code]


def test_a_sequence_that_stays_incomplete_is_given_up_with_what_was_there() -> None:
    channels = exchange()
    with SqliteRepository(":memory:", clock=lambda: NOON - timedelta(days=2)) as repository:
        receiver = gateway(repository, channels)
        put(channels, part(1, 1, 3, "{"), part(3, 3, 3, "}"))
        receiver.receive()
        assert receiver.give_up(timedelta(days=3)) == 0
        assert receiver.give_up(timedelta(days=1)) == 2
        assert repository.counts()[Outcome.INVALID] == 2
    described = errors(channels.invalid)
    assert [code for code, _ in described] == ["GENERR001", "GENERR001"]
    assert described[0][1].endswith("of 3 parts stays incomplete: part 1, 3 came.")


@pytest.mark.parametrize("kept_id", [True, False])
def test_parts_are_told_apart_by_their_place_and_not_by_their_ids(kept_id: bool) -> None:
    """As the snippet of the specification makes them, all parts have one messageId; or each its own."""
    text = json.dumps({"objectUUID": uuid(5)})
    channels, bodies = exchange(), list[Any]()
    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        pieces = [
            part(1 if kept_id else n, n, 3, text[9 * n - 9 : 9 * n if n < 3 else None]) for n in (1, 2, 3)
        ]
        other, again = part(1, 2, 3, "other"), part(8, 2, 3, text[9:18])
        put(channels, pieces[1], other, again, other, pieces[0], pieces[2], again)
        assert [outcome.value for outcome in receiver.receive()] == [
            *("waiting", "invalid", "duplicate", "duplicate", "waiting", "waiting", "duplicate"),
        ]
        assert receiver.process(lambda turn: bodies.append((turn.message.message_id, turn.message.body))) == 1
        assert bodies == [(uuid(1), {"objectUUID": uuid(5)})]
        assert repository.counts()[Outcome.PROCESSED] == 3
        put(channels, *pieces, message(1))
        assert set(receiver.receive()) == {Outcome.DUPLICATE}
    assert [code for code, _ in errors(channels.invalid)] == ["GENERR004"]


def test_of_a_sequence_and_a_message_of_one_id_the_one_that_is_whole_first_counts() -> None:
    text = json.dumps({"objectUUID": uuid(5)})
    channels, handled = exchange(), list[str]()
    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        put(channels, part(1, 1, 2, text[:9]), message(1), part(1, 2, 2, text[9:]))
        assert receiver.receive() == [Outcome.WAITING, Outcome.WAITING, Outcome.DUPLICATE]
        receiver.process(lambda turn: handled.append(turn.message.body["objectUUID"]))
        assert handled == [message(1).body["objectUUID"]]
        assert repository.counts()[Outcome.DUPLICATE] == 2


def test_a_sequence_that_was_a_duplicate_of_what_failed_then_is_handled_when_it_comes_again() -> None:
    text = json.dumps({"objectUUID": uuid(5)})
    parts = [part(1, 1, 2, text[:9]), part(2, 2, 2, text[9:])]
    channels, handled = exchange(), list[Any]()

    def fails(turn: MessageContext) -> None:
        raise KeyError("shelf")

    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        put(channels, message(1), *parts, *parts)
        assert receiver.receive() == [Outcome.WAITING, Outcome.WAITING, *[Outcome.DUPLICATE] * 3]
        receiver.process(fails)
        put(channels, *parts, *parts)
        assert receiver.receive() == [Outcome.WAITING, Outcome.WAITING, *[Outcome.DUPLICATE] * 2]
        receiver.process(lambda turn: handled.append(turn.message.body))
        assert handled == [{"objectUUID": uuid(5)}]
        counted = {Outcome.PROCESSED: 2, Outcome.ERROR: 1, Outcome.DUPLICATE: 6}
        assert {outcome: number for outcome, number in repository.counts().items() if number} == counted


@pytest.mark.parametrize("decorated", [False, True])
def test_what_failed_has_not_been_processed_and_is_handled_when_it_comes_again(decorated: bool) -> None:
    """As it was, or as the error queue has it; a sequence with all its parts; by replay, too."""
    text = json.dumps({"objectUUID": uuid(5)})
    values = [message(7).to_bytes(), part(1, 1, 2, text[:9]), part(2, 2, 2, text[9:])]
    channels, handled = exchange(), list[str]()

    def fails(turn: MessageContext) -> None:
        raise KeyError("shelf")

    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        for each in range(2):
            put(channels, *values)
            assert set(receiver.receive()) == {Outcome.WAITING}
            assert receiver.process(fails) == 2
            routed = [each.value for each in channels.error.receive(9)]
            assert len(routed) == 3, each
        put(channels, *(routed if decorated else values))
        receiver.receive()
        receiver.process(fails)
        assert repository.counts()[Outcome.ERROR] == 9
        # By the id of its second part.
        assert receiver.replay(uuid(2)).count(Outcome.WAITING) == 2
        assert receiver.replay(uuid(7)).count(Outcome.WAITING) == 1
        receiver.process(lambda turn: handled.append(turn.message.message_id))
        assert handled == [uuid(1), uuid(7)]
        assert set(receiver.replay(uuid(7))) == {Outcome.DUPLICATE}
        put(channels, *values)
        assert set(receiver.receive()) == {Outcome.DUPLICATE}
        with pytest.raises(NotRefused, match="needs a message that was refused"):
            receiver.replay(uuid(70))


def test_each_failure_of_a_message_goes_to_the_queue_of_its_own_code() -> None:
    """A mistake of the handler after an object that it does not know, and the other way round."""
    channels, unknown, mistake = exchange(), Rejection(RdssFault.DELETE_OF_UNKNOWN), KeyError("shelf")
    failures = {uuid(1): [unknown, mistake], uuid(2): [mistake, unknown]}

    def fails(turn: MessageContext) -> None:
        raise failures[turn.message.message_id].pop(0)

    routed = list[dict[str, list[str]]]()
    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        put(channels, message(1), message(2))
        receiver.receive()
        for _ in range(2):
            receiver.process(fails)
            queues = {queue.name: errors(queue) for queue in (channels.invalid, channels.error)}
            routed.append({name: [code for code, _ in listed] for name, listed in queues.items()})
            assert [receiver.replay(uuid(each)) for each in (1, 2)] == [[Outcome.WAITING]] * 2
        assert repository.counts()[Outcome.INVALID] == repository.counts()[Outcome.ERROR] == 2
    assert routed == [{"invalid": ["APPERRMET002"], "error": ["GENERR009"]}] * 2


def test_a_replay_takes_what_failed_before_what_contradicted_it() -> None:
    text = json.dumps({"objectUUID": uuid(5)})
    parts = [part(1, 1, 2, text[:9]), part(1, 2, 2, text[9:])]
    channels, handled = exchange(), list[Any]()

    def fails(turn: MessageContext) -> None:
        raise KeyError("shelf")

    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        put(channels, parts[0], part(1, 1, 2, "other"), parts[1])
        assert receiver.receive() == [Outcome.WAITING, Outcome.INVALID, Outcome.WAITING]
        receiver.process(fails)
        assert receiver.replay(uuid(1)) == [Outcome.WAITING, Outcome.WAITING, Outcome.DUPLICATE]
        receiver.process(lambda turn: handled.append(turn.message.body))
    assert handled == [{"objectUUID": uuid(5)}]


def test_what_may_pass_is_tried_again_before_anything_else_and_not_for_ever() -> None:
    channels, slept, calls = exchange(), list[float](), list[str]()
    down = iter([True, True, False, True, True, True])

    def handler(turn: MessageContext) -> None:
        calls.append(turn.message.message_id)
        if next(down):
            raise ConnectionError("the shelf is locked")

    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels, sleep=slept.append)
        put(channels, message(1), message(2))
        receiver.receive()
        assert receiver.process(handler) == 2
        assert calls == [uuid(1)] * 3 + [uuid(2)] * 3
        assert slept == [0.2, 0.4, 0.2, 0.4]
        assert (repository.counts()[Outcome.PROCESSED], repository.counts()[Outcome.ERROR]) == (1, 1)
    [(code, description)] = errors(channels.error)
    assert (code, description.endswith("ConnectionError: the shelf is locked")) == ("GENERR006", True)


def test_a_message_that_ends_each_process_is_not_handed_over_for_ever(tmp_path: Path) -> None:
    channels, calls = exchange(), list[str]()

    def dies(turn: MessageContext) -> None:
        calls.append(turn.message.message_id)
        raise KeyboardInterrupt

    put(channels, message(1))
    for _ in range(3):
        with SqliteRepository(tmp_path / "kept.db") as repository:
            receiver = gateway(repository, channels)
            receiver.receive()
            with pytest.raises(KeyboardInterrupt):
                receiver.process(dies)
    with SqliteRepository(tmp_path / "kept.db") as repository:
        gateway(repository, channels).process(dies)
        assert repository.counts()[Outcome.ERROR] == 1
    assert len(calls) == 3
    [(code, description)] = errors(channels.error)
    assert "It was handed over 3 times" in description
    assert code == "GENERR009"


def test_a_message_that_expires_while_it_waits_is_not_handled() -> None:
    channels, times = exchange(), [NOON]
    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels, clock=lambda: times[0])
        put(channels, message(1, expires=NOON + timedelta(minutes=1)), message(2))
        assert receiver.receive() == [Outcome.WAITING, Outcome.WAITING]
        times[0] += timedelta(minutes=2)
        handled = list[str]()
        receiver.process(lambda turn: handled.append(turn.message.message_id))
        assert handled == [uuid(2)]
    [(code, description)] = errors(channels.invalid)
    assert code == "GENERR003"
    assert "At $.messageHeader.messageTimings.expirationTimestamp: " in description


def test_a_sequence_that_expires_while_it_waits_is_refused_with_all_its_parts() -> None:
    channels, times, text = exchange(), [NOON], json.dumps({"objectUUID": uuid(5)})
    header = message(1, expires=NOON + timedelta(minutes=1)).header
    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels, clock=lambda: times[0])
        for position, body in ((1, text[:9]), (2, text[9:])):
            sequence = {"sequence": uuid(999), "position": position, "total": 2}
            put(channels, Message({**header, "messageSequence": sequence}, body))
        assert receiver.receive() == [Outcome.WAITING, Outcome.WAITING]
        times[0] += timedelta(minutes=2)
        receiver.process(lambda turn: pytest.fail("it was handled"))
    assert [code for code, _ in errors(channels.invalid)] == ["GENERR003", "GENERR003"]


def test_a_reply_to_what_takes_none_is_refused_where_it_is_said() -> None:
    channels, said = exchange(), list[str]()

    def handler(turn: MessageContext) -> None:
        with pytest.raises(InvalidArgument) as refused:
            turn.reply(OBJECT)
        said.append(str(refused.value))

    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        answer = Message({**message(3, "MetadataRead").header, "messageClass": "Document"}, OBJECT)
        put(channels, message(1), Message({**answer.header, "correlationId": uuid(9)}, OBJECT))
        receiver.receive()
        receiver.process(handler)
        assert repository.counts()[Outcome.PROCESSED] == 2
    assert "MetadataDelete that is a Command" in said[0]
    assert "MetadataRead that is a Document" in said[1]


def test_what_was_given_up_waits_again_when_another_part_comes() -> None:
    text = json.dumps({"objectUUID": uuid(5)})
    channels, handled = exchange(), list[Any]()
    with SqliteRepository(":memory:", clock=lambda: NOON - timedelta(days=2)) as repository:
        receiver = gateway(repository, channels)
        put(channels, part(1, 1, 2, text[:9]))
        receiver.receive()
        assert receiver.give_up(timedelta(days=1)) == 1
        put(channels, part(2, 2, 2, text[9:]))
        receiver.receive()
        receiver.process(lambda turn: handled.append(turn.message.body))
        assert handled == [{"objectUUID": uuid(5)}]
        assert repository.counts()[Outcome.PROCESSED] == 2


def test_a_message_that_was_received_is_not_sent_again_under_its_id() -> None:
    channels = exchange()
    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        put(channels, message(1), message(2))
        receiver.receive()
        with pytest.raises(KnownMessage, match="needs an id of its own"):
            receiver.send(message(1))
        receiver.process(lambda turn: turn.send(turn.message))
        assert repository.counts()[Outcome.ERROR] == 2
    assert kept(channels.output) == []


def test_an_interrupted_handler_is_called_again_with_the_same_message() -> None:
    channels, calls = exchange(), list[str]()

    def handler(turn: MessageContext) -> None:
        calls.append(turn.message.message_id)
        if len(calls) == 1:
            raise KeyboardInterrupt

    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        put(channels, message(1))
        receiver.receive()
        with pytest.raises(KeyboardInterrupt):
            receiver.process(handler)
        assert repository.counts()[Outcome.WAITING] == 1
        receiver.process(handler)
    assert calls == [uuid(1), uuid(1)]


def test_a_refused_message_whose_queue_cannot_be_reached_is_routed_later() -> None:
    channels = exchange(invalid=Failing("invalid", 3))
    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        put(channels, b"{", message(1))
        with pytest.raises(SendFailed, match="'invalid'"):
            receiver.receive()
        assert repository.counts()[Outcome.WAITING] == 1
        receiver.resume()
        assert len(kept(channels.invalid)) == 1


def test_a_message_on_which_the_validation_itself_fails_stops_no_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(value: bytes, **_: object) -> Any:
        raise MemoryError if value == b"large" else AssertionError

    channels = exchange()
    monkeypatch.setattr(judging, "validate", fails)
    with SqliteRepository(":memory:") as repository:
        put(channels, b"odd", b"large")
        assert gateway(repository, channels).receive() == [Outcome.ERROR, Outcome.ERROR]
    codes = [code for code, _ in errors(channels.error)]
    assert codes == ["GENERR009", "GENERR009"]


def test_deliveries_that_could_not_be_acknowledged_come_again_and_are_known() -> None:
    class Deaf(MemoryChannel):
        def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
            raise ChannelUnreachable(self.name, "gone")

    channels = exchange(input=Deaf("input"))
    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels)
        put(channels, message(1))
        assert receiver.receive() == [Outcome.WAITING]
        channels.input.close()
        assert receiver.receive() == [Outcome.DUPLICATE]


def test_deliveries_that_could_not_be_noted_come_again() -> None:
    """The audit's disk is full: no acknowledgement follows, and none may stay in the connection."""
    full = iter([True, False])

    def audit(entries: Sequence[AuditEntry]) -> None:
        if next(full):
            raise OSError("no space left on device")

    channels = exchange()
    with SqliteRepository(":memory:") as repository:
        receiver = gateway(repository, channels, audit=audit)
        put(channels, message(1))
        with pytest.raises(OSError, match="no space"):
            receiver.receive()
        assert receiver.receive() == [Outcome.DUPLICATE]
