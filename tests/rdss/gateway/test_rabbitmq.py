"""Which failures of a RabbitMQ broker may pass: as pika says them of a real one."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika import exceptions

from cdckit.rdss.gateway import ChannelUnreachable, NoChannel, RabbitChannel

REFUSED = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."
NO_STREAM = "NOT_IMPLEMENTED - basic.get not supported by stream queues queue 's' in vhost '/'"


def closed(code: int, text: str) -> str:
    return repr(exceptions.ConnectionClosedByBroker(code, text))


@pytest.mark.parametrize(("options", "seconds"), [("", 30), ("?blocked_connection_timeout=5", 5)])
def test_a_broker_that_takes_nothing_more_is_waited_for_only_a_while(
    monkeypatch: pytest.MonkeyPatch, options: str, seconds: int
) -> None:
    """It does so while an alarm of its memory or its disk is on; pika would wait for ever."""

    def block(parameters: pika.URLParameters) -> None:
        assert parameters.blocked_connection_timeout == seconds
        raise exceptions.ConnectionBlockedTimeout("Blocked connection timeout expired.")

    monkeypatch.setattr(pika, "BlockingConnection", block)
    with pytest.raises(ChannelUnreachable, match="an alarm of its memory or its disk is on"):
        RabbitChannel("s", f"amqp://guest:guest@broker/{options}").send(b"{}", key="")


@pytest.mark.parametrize(
    ("error", "kind", "because"),
    [
        (exceptions.ProbableAuthenticationError(closed(403, REFUSED)), NoChannel, f"refused ({REFUSED})"),
        (
            exceptions.ProbableAccessDeniedError(closed(530, "NOT_ALLOWED - vhost nowhere not found")),
            NoChannel,
            "not allowed (NOT_ALLOWED - vhost nowhere not found)",
        ),
        (exceptions.ConnectionClosedByBroker(540, NO_STREAM), NoChannel, f"not implemented ({NO_STREAM})"),
        (exceptions.ChannelClosedByBroker(404, "no exchange"), NoChannel, "not found (no exchange)"),
        # A broker that dies while one logs in looks like a wrong password.
        (exceptions.ProbableAuthenticationError("StreamLostError: ('Gone',)"), ChannelUnreachable, "Gone"),
        (
            exceptions.ProbableAccessDeniedError(
                closed(530, "NOT_ALLOWED - connection limit (1) is reached")
            ),
            ChannelUnreachable,
            "limit (1) is reached",
        ),
        (exceptions.ConnectionClosedByBroker(320, "CONNECTION_FORCED"), ChannelUnreachable, "FORCED"),
        (exceptions.ChannelClosedByBroker(541, "INTERNAL_ERROR"), ChannelUnreachable, "INTERNAL_ERROR"),
        (OSError("no route to host"), ChannelUnreachable, "no route to host"),
    ],
)
def test_what_waiting_does_not_mend_is_final(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], because: str
) -> None:
    def refuse(parameters: Any) -> None:
        raise error

    monkeypatch.setattr(pika, "BlockingConnection", refuse)
    with pytest.raises(kind) as raised:
        RabbitChannel("s", "amqp://guest:wrong@broker").receive(1)
    assert because in str(raised.value)
    assert "guest:wrong" not in str(raised.value)
