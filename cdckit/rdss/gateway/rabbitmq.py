"""A queue of RabbitMQ as a channel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from cdckit.parts.arguments import require_package
from cdckit.rdss.gateway.channel import Delivery
from cdckit.rdss.gateway.errors import ChannelUnreachable, NoChannel

_MISSING = 404
_FINAL = {403: "access refused", _MISSING: "not found", 405: "locked", 406: "precondition failed"}
"""Replies after which trying again does not help."""


class RabbitChannel:
    """
    The queue *name* of the broker at *url*; one that is not there is declared, durable.

    A queue that is there is used as it is, whatever its arguments: a quorum queue, a time to live, a
    dead-letter exchange.  So what becomes of its messages when the broker ends is for its owner to say.

    Args:
        name: The queue, and the routing key of what is sent.
        url: Where the broker is, as `pika.URLParameters` takes it.
        exchange: What is sent to, by its name: it must be there.  Without it the queue itself.

    A message is sent once the broker has confirmed it, which it does when the message is on its disk.
    Connects with the first call, and again after the connection was lost; what was delivered by the
    connection before comes again.  It belongs to one thread.

    Raises:
        MissingExtra: `pika` is not installed.

    >>> RabbitChannel("input", "amqp://guest:guest@127.0.0.1:1/?connection_attempts=1").receive(1)
    Traceback (most recent call last):
    ...
    cdckit.rdss.gateway.errors.ChannelUnreachable: The channel 'input' cannot be reached: ...
    """

    def __init__(self, name: str, url: str, *, exchange: str = "") -> None:
        require_package("pika", extra="gateway", part="RabbitChannel")
        self.name, self._url, self._exchange = name, url, exchange
        self._connection: Any = None
        self._channel: Any = None

    def send(self, value: bytes, *, key: str) -> None:
        """Publish persistently and wait for the confirmation; all are in one order, whatever their *key*."""
        import pika

        kept = pika.BasicProperties(delivery_mode=2, content_type="application/json")
        with self._translate_errors() as channel:
            channel.basic_publish(self._exchange, self.name, value, kept, mandatory=True)

    def receive(self, limit: int) -> list[Delivery]:
        """The oldest deliveries that no other receiver has."""
        found: list[Delivery] = []
        with self._translate_errors() as channel:
            while len(found) < limit:
                method, _, body = channel.basic_get(self.name)
                if method is None:
                    break
                found.append(Delivery(body, (channel, method.delivery_tag)))
        return found

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Tell the broker; what another connection has delivered is left out, since it comes again."""
        with self._translate_errors() as channel:
            for each in deliveries:
                delivered_by, tag = each.mark
                if delivered_by is channel:
                    channel.basic_ack(tag)
            # What was written stays in a buffer until the connection is asked for something.
            self._connection.process_data_events(0)

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with suppress(Exception):  # it may be lost already, in more ways than pika has a class for
                connection.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[Any]:
        from pika.exceptions import AMQPError, ChannelClosedByBroker, UnroutableError

        try:
            yield self._open()
        except ChannelClosedByBroker as error:
            self.close()
            if error.reply_code in _FINAL:
                raise NoChannel(self.name, f"{_FINAL[error.reply_code]} ({error.reply_text})") from error
            raise ChannelUnreachable(self.name, error.reply_text) from error
        except UnroutableError as error:
            # Somebody has removed the queue: the next call declares it again.
            self.close()
            raise ChannelUnreachable(self.name, "the queue is gone") from error
        except (AMQPError, OSError) as error:
            self.close()
            raise ChannelUnreachable(self.name, repr(error)) from error

    def _open(self) -> Any:
        import pika

        if self._channel is None or not self._channel.is_open:
            self.close()
            self._connection = pika.BlockingConnection(pika.URLParameters(self._url))
            self._channel = self._declare_queue()
            if self._exchange:
                self._channel.exchange_declare(self._exchange, passive=True)
            self._channel.confirm_delivery()
        return self._channel

    def _declare_queue(self) -> Any:
        """A channel of the connection, with the queue there: RabbitMQ takes no second declaration of it."""
        from pika.exceptions import ChannelClosedByBroker

        channel = self._connection.channel()
        try:
            channel.queue_declare(self.name, passive=True)
        except ChannelClosedByBroker as error:
            if error.reply_code != _MISSING:
                raise
            channel = self._connection.channel()
            channel.queue_declare(self.name, durable=True)
        return channel
