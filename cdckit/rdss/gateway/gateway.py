"""The message gateway: an application's synchronous way to send, receive and ask."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from cdckit.errors import InvalidArgument
from cdckit.rdss.decoding import decorate_bytes
from cdckit.rdss.exchange_rows import Outcome
from cdckit.rdss.findings import RdssFault
from cdckit.rdss.gateway.channels import Channel, Delivery, Machine, Message, Producer
from cdckit.rdss.gateway.downloads import DownloadFailed, downloads_tried_once
from cdckit.rdss.gateway.errors import (
    BACKOFF,
    Backoff,
    ChannelUnreachable,
    FailedStatement,
    KnownMessage,
    NoResponse,
    NotRefused,
    Rejection,
    SendFailed,
    UnfitMessage,
)
from cdckit.rdss.gateway.handovers import Handover, WaitingLine
from cdckit.rdss.gateway.queues import Channels
from cdckit.rdss.gateway.repository import (
    AuditEntry,
    IncomingMessage,
    OutgoingMessage,
    RefusedMessage,
    Statement,
)
from cdckit.rdss.gateway.sqlite import SqliteRepository
from cdckit.rdss.reading import RULES, Rules, split, whole_header
from cdckit.rdss.sequence_rules import content_digest, sequence_terms
from cdckit.rdss.validation import Verdict, body_finding, validate
from cdckit.rdss.validators import BODIES, expiry_finding


class MessageContext:
    """
    One message in the hands of a handler.

    What the handler sends and writes here takes effect in the same commit that notes the message as
    processed: all of it once, or, if the handler fails or the process dies, nothing, and the handler is
    called again.  What it does elsewhere may happen twice then: use the messageId to recognise that.

    >>> read = {"messageId": "m1", "messageType": "MetadataRead", "messageClass": "Command"}
    >>> turn = MessageContext(Message(read, {}), Producer("a", 1), None)
    >>> turn.reply({"objectTitle": "Cheese"}).correlation_id
    'm1'
    >>> turn.write("INSERT INTO titles VALUES (?)", "Cheese")
    >>> len(turn.replies), turn.statements[0].parameters
    (1, ('Cheese',))
    """

    def __init__(self, message: Message, producer: Producer, now: Callable[[], datetime] | None) -> None:
        self.message = message
        self.replies: list[Message] = []
        self.sends: list[Message] = []
        self.statements: list[Statement] = []
        self._producer, self._now = producer, now

    def reply(self, body: Any) -> Message:
        """
        Respond: a Document of the same type with the correlationId, sent to the returnAddress if any.

        Raises:
            InvalidArgument: The message takes no response: only a request to read an object does.

        Source:
            RDSS, "Messages".
        """
        kind = (self.message.message_type, self.message.message_class)
        if (self.message.message_type, "Document") not in BODIES or kind[1] != "Command":
            needed = "a MetadataRead that is a Command, which alone has a response"
            raise InvalidArgument("reply", "message", needed, " that is a ".join(kind))
        now = None if self._now is None else self._now()
        response = self._producer.message(self.message.message_type, body, answers=self.message, now=now)
        self.replies.append(response)
        return response

    def send(self, message: Message) -> None:
        """Send another message, which answers nothing."""
        self.sends.append(message)

    def write(self, sql: str, *parameters: object) -> None:
        """Write a row to a table of the application's own in the repository's file."""
        self.statements.append(Statement(sql, parameters))


logger = logging.getLogger("cdckit.rdss.gateway")
_AT_ONCE = 100
"""How many messages are read of the repository at once."""

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Outbox:
    """
    What a gateway sends by: TO_SEND becomes SENT on acknowledgement, and on nothing else.

    A message that was acknowledged just before a crash is sent again: its receivers know its messageId.
    """

    repository: SqliteRepository
    channels: Channels
    backoff: Backoff
    sleep: Callable[[float], None]
    clock: Callable[[], datetime]
    audit: Callable[[Iterable[AuditEntry]], None]

    def send_all(self, destination: str) -> None:
        """Send what is TO_SEND to one destination, the oldest first."""
        channel = self.channels.destinations()[destination]
        while waiting := self.repository.unsent_messages(_AT_ONCE, destination):
            for each in waiting:
                self._send(channel, each.value, each.key, each.message_id)
                self.audit([AuditEntry(self.clock(), "sent", channel.name, each.value)])
                self.repository.mark_sent(each.message_id)

    def route(self) -> None:
        """Send what was refused, and is not yet acknowledged, to its queue."""
        destinations = self.channels.destinations()
        while waiting := self.repository.unrouted_messages(_AT_ONCE):
            for number, each in waiting:
                channel = destinations[each.channel]
                self._send(channel, each.decorated, each.message_id or each.error_code, each.message_id)
                self.audit([AuditEntry(self.clock(), "routed", channel.name, each.decorated, each.channel)])
                self.repository.mark_routed(number)

    def retry(self, call: Callable[[], _Result]) -> _Result:
        """What *call* returns, tried again while its channel is unreachable."""
        return self.backoff.retry(call, on=ChannelUnreachable, sleep=self.sleep)

    def _send(self, channel: Channel, value: bytes, key: str, message_id: str | None) -> None:
        try:
            self.retry(partial(channel.send, value, key=key))
        except ChannelUnreachable as error:
            failed = SendFailed(channel.name, message_id, self.backoff.retries)
            logger.error("%s", failed)
            raise failed from error


def judge_message(value: bytes, now: datetime, rules: Rules = RULES) -> IncomingMessage | RefusedMessage:
    """
    A message as the repository takes it: to be processed, or refused with its code.

    Bytes on which the validation itself fails are refused as GENERR009: one message must not stop a queue.

    >>> from datetime import UTC
    >>> judge_message(b"{", datetime(2024, 2, 1, tzinfo=UTC)).error_code
    'GENERR007'
    """
    try:
        verdict = validate(value, now=now, rules=rules)
    except Exception as error:
        found = RdssFault.UNEXPECTED.describe(f"The validation failed: {type(error).__name__}.")
        return _refuse_message(value, Verdict(RdssFault.UNEXPECTED, found, "$", None, None, None), rules)
    if verdict.code is not None:
        return _refuse_message(value, verdict, rules)
    header = verdict.header
    assert header is not None  # a valid message has one
    sequence = header["messageSequence"]
    is_part = int(sequence["total"]) > 1
    return IncomingMessage(
        header["messageId"],
        header["messageClass"],
        header["messageType"],
        sequence["sequence"],
        int(sequence["position"]),
        int(sequence["total"]),
        header.get("correlationId"),
        value,
        sequence_terms(header) if is_part else "",
        content_digest(verdict.body) if is_part else "",
    )


def refusal(
    value: bytes, code: RdssFault, finding: str, now: datetime, rules: Rules = RULES
) -> RefusedMessage:
    """A message that was valid when it came, as the queue of *code* takes it."""
    verdict = validate(value, now=now, rules=rules)
    return _refuse_message(value, replace(verdict, code=code, description=code.describe(finding)), rules)


def assemble_message(
    parts: Sequence[IncomingMessage], now: datetime, rules: Rules = RULES
) -> Message | tuple[RdssFault, str]:
    """
    The message of all the parts of its sequence, by position; or what is wrong with its body.

    The header is that of the first part, as the message has it alone.  The message may have expired since it
    came.
    """
    verdicts = [validate(each.value, now=now, rules=rules) for each in parts]
    header, body = verdicts[0].header, verdicts[0].body
    assert header is not None  # it was valid when it came
    late = expiry_finding(header, now)
    if late is not None:
        return late.code, f"At {late.path}: {late.sentence}"
    if len(parts) == 1:
        return Message(header, body)
    header = whole_header(header)
    try:
        body = json.loads("".join(each.body for each in verdicts))
    except (ValueError, RecursionError) as error:
        return RdssFault.MALFORMED, f"The {len(parts)} parts together: {str(error)[:200]}."
    finding = body_finding(header, body, rules)
    return (
        Message(header, body) if finding is None else (finding.code, f"At {finding.path}: {finding.sentence}")
    )


def _refuse_message(value: bytes, verdict: Verdict, rules: Rules) -> RefusedMessage:
    code, description = verdict.code, verdict.description
    assert code is not None  # it is refused
    assert description is not None
    named = (verdict.header or {}).get("messageId")
    return RefusedMessage(
        value,
        decorate_bytes(value, verdict, rules),
        code.queue.value,
        code.value,
        description,
        named if isinstance(named, str) else None,
    )


Handler = Callable[[MessageContext], None]
"""What an application does with a message; it returns, or raises, `Rejection` for what has a code."""


class Gateway:
    """
    Sends, receives and asks; every call returns when it is done, and belongs to one thread.

    A message is noted in the *repository* before it is sent, and before it is acknowledged to the queue it
    came from: a crash at any moment loses nothing, and what was processed is not processed again.  Messages
    of the input are taken (`receive`) and then handled (`process`); what is refused is routed to the
    invalid or the error queue, decorated with its code.

    Args:
        repository: What remembers the messages; closed by whoever made it.
        channels: The queues.
        producer: In whose name responses are made.
        backoff: When to try again where a queue cannot be reached, or a handler raises one of *transient*.
        transient: What a handler raises that may pass: errors of files and of networks, and downloads.
        interval: Seconds between two looks at the input while waiting for a response.
        machine: Named in the messageHistory of what is sent, if it is given.
        audit: Told of every message, such as `AuditLog(folder).write`.
        rules: The limits that messages are validated against.
        clock: The present instant, aware.
        sleep: Waits so many seconds.

    Source:
        RDSS, "Transactional Behaviour", "Network Failure Behaviour", "Message Gateway".

    >>> from cdckit.rdss.gateway import MemoryChannel, Producer, SqliteRepository
    >>> queues = {name: MemoryChannel(name) for name in ("input", "output", "invalid", "error")}
    >>> with SqliteRepository(":memory:") as repository:
    ...     gateway = Gateway(repository, Channels(**queues), Producer("repository", 7))
    ...     question = gateway.producer.message("MetadataRead", {"objectUUID": 36 * "?"})
    ...     try:
    ...         gateway.send(question)
    ...     except UnfitMessage as error:
    ...         print(error.code)
    ...     queues["input"].send(b"{}", key="")
    ...     print(gateway.receive(), len(queues["invalid"]))
    GENERR010
    [<Outcome.INVALID: 'invalid'>] 1
    """

    def __init__(
        self,
        repository: SqliteRepository,
        channels: Channels,
        producer: Producer,
        *,
        backoff: Backoff = BACKOFF,
        transient: tuple[type[Exception], ...] = (OSError,),
        interval: float = 1.0,
        machine: Machine | None = None,
        audit: Callable[[Iterable[AuditEntry]], None] = lambda happened: None,
        rules: Rules = RULES,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.repository, self.channels, self.producer = repository, channels, producer
        self._interval, self._machine, self._rules = interval, machine, rules
        self._clock, self._sleep, self._tell = clock, sleep, audit
        self._backoff, self._transient = backoff, transient
        self._outbox = Outbox(repository, channels, backoff, sleep, clock, audit)

    def send(self, message: Message) -> None:
        """
        Return when the output has acknowledged the message, and all that was still to be sent before it.

        One that is larger than a message may be is sent in parts, as a sequence.

        Raises:
            UnfitMessage: A receiver would refuse it; nothing was sent.
            KnownMessage: Its messageId is that of a message that was received; nothing was sent.
            SendFailed: The output could not be reached; the message stays TO_SEND (see `resume`).
        """
        self.repository.mark_to_send(self._outgoing(message, "output"))
        self._outbox.send_all("output")

    def resume(self) -> None:
        """Send what is TO_SEND, and route what was refused, as after a crash; raises `SendFailed`."""
        for destination in self.channels.destinations():
            self._outbox.send_all(destination)
        self._outbox.route()

    def receive(self, limit: int = 100) -> list[Outcome]:
        """
        Take at most *limit* messages of the input and note what is to become of each; its outcome so far.

        Raises:
            ChannelUnreachable: The input could not be reached, in all retries.
            SendFailed: A refused message is noted, and its queue could not be reached.
        """
        deliveries = self._outbox.retry(partial(self.channels.input.receive, limit))
        outcomes = self._take(deliveries)
        if deliveries:
            self._acknowledge(deliveries)
        self._outbox.route()
        return outcomes

    def process(self, handler: Handler, limit: int | None = None) -> int:
        """
        Hand the messages that wait, and are whole, to *handler*, the oldest first, at most *limit*; how many.

        A handler that raises sends the message to a queue: `Rejection` says which code, any other
        exception is GENERR006.  One of *transient* may pass: the handler is called again, after the delays of
        *backoff*, before any other message is handed over.  One that is interrupted is called again with the
        same message later.  No message is handed over more often than *backoff* has tries, by whatever
        processes: one that ends them each time goes to the error queue, too.

        A `download` that fails and may pass concerns its message alone: others are handed over meanwhile, but
        none about the same object or one that it is related to.  The delays are those of *backoff*, and all
        together no longer than these, whatever the server asks for.  A file that is not there is final.

        A message whose handler failed has not been processed: when it comes again, it is handled (see
        `replay`).  One that has expired since it was received is not handled.
        """
        budget = sum(self._backoff.delays())
        line = WaitingLine(self.repository.next_waiting, self._open_message, budget, self._clock, self._sleep)
        begun = 0
        while handover := line.next(begin=limit is None or begun < limit):
            begun += handover.due is None
            self._process(handover, handler, line)
        return begun

    def replay(self, message_id: str) -> list[Outcome]:
        """
        Take a message once more that was refused, from the bytes that the repository has of it.

        Those of a sequence, by the messageId of any part of it, are all taken.  What was refused when it was
        handed over waits for `process` again, and goes to the queue of what it fails with then; what
        was refused when it came is judged by the rules as they are now, and is a duplicate if refused again.

        Returns:
            The outcome of each so far.

        Raises:
            NotRefused: Nothing is kept of such a message that was refused.
        """
        originals = self.repository.refused_bytes(message_id)
        if not originals:
            raise NotRefused(message_id)
        outcomes = self._note(originals)
        self._outbox.route()
        return outcomes

    def request(self, message: Message, *, timeout: float = 60) -> Message:
        """
        Send *message* and return the response, the message whose correlationId is its messageId.

        What else comes meanwhile waits for `process`.  The response is kept until it is forgotten: a process
        that ended before it used the response asks again with the same messageId, and has the same one.

        Raises:
            NoResponse: None came within *timeout* seconds.
        """
        self.send(message)
        until = time.monotonic() + timeout
        while True:
            self.receive()
            if parts := self.repository.response_to(message.message_id):
                response = self._open_message(parts)
                if response is not None:
                    self.repository.settle(parts, Outcome.PROCESSED, keep=True)
                    return response
            if time.monotonic() >= until:
                raise NoResponse(message.message_id, timeout)
            self._sleep(self._interval)

    def give_up(self, older_than: timedelta) -> int:
        """
        Refuse the parts of sequences to which nothing was added for so long; how many parts.

        They wait again if another part of their sequence comes all the same.
        """
        now = self._clock()
        parts = self.repository.incomplete_parts(now - older_than)
        there: dict[str, list[int]] = {}
        for each in parts:
            there.setdefault(each.sequence, []).append(each.position)
        for each in parts:
            listed = ", ".join(map(str, there[each.sequence][:20]))
            finding = (
                f"The sequence {each.sequence} of {each.total} parts stays incomplete: part {listed} came."
            )
            # Its bytes are kept: when another part comes all the same, they wait again.
            self._refuse([each], RdssFault.INVALID_BODY, finding, keep=True)
        self._outbox.route()
        return len(parts)

    def forget(self, older_than: timedelta) -> int:
        """
        Remove from the repository what is done and was noted so long ago; how many messages.

        Without it the repository grows for ever.  What is forgotten is no longer recognised when it comes
        again, so it should be older than the queues keep a message; what waits, is to be sent or is not
        yet routed stays, and so do all counts.
        """
        return self.repository.forget(self._clock() - older_than)

    def _take(self, deliveries: Sequence[Delivery]) -> list[Outcome]:
        outcomes = self._note([each.value for each in deliveries])
        now, name = self._clock(), self.channels.input.name
        received = zip(deliveries, outcomes, strict=True)
        self._tell(
            [AuditEntry(now, "received", name, each.value, outcome.value) for each, outcome in received]
        )
        return outcomes

    def _note(self, values: Sequence[bytes]) -> list[Outcome]:
        now = self._clock()
        messages = [judge_message(each, now, self._rules) for each in values]
        outcomes = self.repository.take(messages, self._contradicts, self._unfit)
        for message, outcome in zip(messages, outcomes, strict=True):
            if isinstance(message, RefusedMessage) and outcome is not Outcome.DUPLICATE:
                logger.warning("%s %s", message.error_code, message.error_description)
        return outcomes

    def _acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        try:
            self.channels.input.acknowledge(deliveries)
        except ChannelUnreachable as error:
            # They are noted: those that come again are recognised.
            logger.warning("%s", error)

    def _process(self, handover: Handover, handler: Handler, line: WaitingLine) -> None:
        parts, message, delays = handover.parts, handover.message, self._backoff.delays()
        while message is not None:
            attempt = self.repository.count_attempt(parts)
            if attempt > len(delays) + 1:
                finding = f"It was handed over {attempt - 1} times, and no handler came to an end with it."
                self._refuse(parts, RdssFault.SYSTEM_FAILED, finding)
                break
            turn = MessageContext(message, self.producer, self._clock)
            try:
                with downloads_tried_once():
                    handler(turn)
                send = self._follow_ups(turn)
            except Rejection as rejection:
                self._refuse(parts, rejection.code, rejection.finding)
            except Exception as error:
                if not isinstance(error, self._transient) or attempt > len(delays):
                    self._note_failure(parts, error)
                elif not isinstance(error, DownloadFailed):
                    logger.warning("the handler failed, and is called again: %r", error)
                    self._sleep(delays[attempt - 1])
                    message = self._open_message(parts)
                    continue
                elif error.to_retry and handover.left > 0:
                    logger.warning("the message %s is handed over again: %s", message.message_id, error)
                    line.postpone(handover, delays[attempt - 1], error.after)
                else:
                    self._note_failure(parts, error)
            else:
                self._settle(parts, turn, send)
            break
        self._outbox.route()

    def _follow_ups(self, turn: MessageContext) -> list[OutgoingMessage]:
        back = self.channels.return_to(turn.message.return_address)
        messages = [(each, back) for each in turn.replies] + [(each, "output") for each in turn.sends]
        return [part for each, destination in messages for part in self._outgoing(each, destination)]

    def _settle(
        self, parts: Sequence[IncomingMessage], turn: MessageContext, send: list[OutgoingMessage]
    ) -> None:
        try:
            self.repository.settle(parts, Outcome.PROCESSED, send=send, write=turn.statements)
        except (FailedStatement, KnownMessage) as error:
            self._note_failure(parts, error)
            return
        for destination in {each.destination for each in send}:
            self._outbox.send_all(destination)

    def _note_failure(self, parts: Sequence[IncomingMessage], error: Exception) -> None:
        logger.debug("the handler failed", exc_info=error)
        description = f"{type(error).__name__}: {str(error)[:500]}" if str(error) else type(error).__name__
        self._refuse(parts, RdssFault.SYSTEM_FAILED, description)

    def _open_message(self, parts: Sequence[IncomingMessage]) -> Message | None:
        """The message of all parts; None if it is refused, since it has expired."""
        opened = assemble_message(parts, self._clock(), self._rules)
        if isinstance(opened, Message):
            return opened
        self._refuse(parts, *opened)
        self._outbox.route()
        return None

    def _unfit(self, parts: Sequence[IncomingMessage]) -> list[RefusedMessage]:
        opened = assemble_message(parts, self._clock(), self._rules)
        return [] if isinstance(opened, Message) else self._refusals(parts, *opened)

    def _refuse(
        self, parts: Sequence[IncomingMessage], code: RdssFault, finding: str, *, keep: bool = False
    ) -> None:
        refused = self._refusals(parts, code, finding)
        self.repository.settle(parts, Outcome(code.queue.value), refused=refused, keep=keep)

    def _refusals(
        self, parts: Sequence[IncomingMessage], code: RdssFault, finding: str
    ) -> list[RefusedMessage]:
        now = self._clock()
        refused = [refusal(each.value, code, finding, now, self._rules) for each in parts]
        for each in refused:
            logger.error("%s %s", each.error_code, each.error_description)
        return refused

    def _contradicts(self, part: IncomingMessage, reason: str) -> RefusedMessage:
        return refusal(part.value, RdssFault.INVALID_HEADER, reason, self._clock(), self._rules)

    def _outgoing(self, message: Message, destination: str) -> list[OutgoingMessage]:
        now = self._clock()
        sent = message if self._machine is None else message.with_history(self._machine, now)
        value = sent.to_bytes()
        checked = judge_message(
            value, now, replace(self._rules, max_bytes=max(len(value), self._rules.max_bytes))
        )
        if isinstance(checked, RefusedMessage):
            identity = str(message.header.get("messageId"))
            raise UnfitMessage(identity, checked.error_code, checked.error_description)
        parts = [judge_message(each, now, self._rules) for each in split(value, rules=self._rules)]
        return [_outgoing_message(each, destination) for each in parts if isinstance(each, IncomingMessage)]


def _outgoing_message(message: IncomingMessage, destination: str) -> OutgoingMessage:
    return OutgoingMessage(
        message.message_id,
        message.message_class,
        message.message_type,
        message.sequence,
        message.position,
        message.value,
        destination,
    )
