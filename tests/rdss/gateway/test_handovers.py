"""The order in which messages are handed over, when some of them are postponed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from cdckit.rdss.gateway import Message
from cdckit.rdss.gateway.handovers import WaitingLine, concerned_objects
from cdckit.rdss.gateway.repository import StoredMessage
from support.rdss_exchange import NOON


def incoming(number: int) -> StoredMessage:
    return StoredMessage(f"m{number}", "Command", "MetadataDelete", f"s{number}", 1, 1, None, b"")


def test_servers_that_are_all_down_postpone_a_hundred_messages_and_leave_the_rest() -> None:
    """Each is about an object of its own, and is handed over a second time when all others wait."""
    waiting, now = [incoming(number) for number in range(102)], [NOON]
    names = [each.message_id for each in waiting]

    def next_waiting(after: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        return waiting[waiting.index(after[0]) + 1 :][:1] if after else waiting[:1]

    def sleep(seconds: float) -> None:
        now[0] += timedelta(seconds=seconds)

    def open_message(parts: Sequence[StoredMessage]) -> Message:
        return Message({}, {"objectUUID": parts[0].message_id})

    line, order = WaitingLine(next_waiting, open_message, 60, lambda: now[0], sleep), list[str]()
    while handover := line.next(begin=True):
        order.append(handover.parts[0].message_id)
        if order.count(order[-1]) == 1:
            line.postpone(handover, 1 + len(order) / 1000, None)
        else:
            waiting.remove(handover.parts[0])
    assert order[:101] == [*names[:100], "m0"]
    assert sorted(order) == sorted([*names, *names])


def test_a_message_is_about_its_object_and_those_that_it_names_as_related() -> None:
    related = {"relationType": "isNewVersionOf", "identifier": {"identifierValue": " URN:UUID:5680E8E0 "}}
    assert concerned_objects(Message({}, {"objectRelatedIdentifier": [related]})) == {"5680e8e0"}
    assert concerned_objects(Message({}, "part of a body")) == concerned_objects(None) == frozenset()
