"""
Sends, or receives, the traffic of a soak with a gateway, until all is done; it is killed and begun again.

    gateway_program.py send|receive <folder>

The folder has `settings.json` for each side's channels; `traffic.txt`, what is to be sent; and `all-sent`, an
empty file, once there is nothing to come.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    from support import without_spark

    without_spark.install()

from cdckit.rdss.gateway import Backoff, Gateway, Producer, SqliteRepository, Status, open_channels
from cdckit.rdss.gateway.channels import Message
from support.rdss_exchange import NOON
from support.rdss_traffic import DONE, handler

PATIENT = Backoff(retries=60, longest=1)
"""A broker that was killed takes a while to come back."""


def send(gateway: Gateway, messages: list[str]) -> None:
    """
    What a receiver accepts by the gateway; what it refuses, and what comes twice, past it.

    A line of *messages* is the messageId, or nothing for what goes past the gateway, a blank and the message.
    """
    repository = gateway.repository
    done = int(repository.position("program", "sent") or 0)
    gateway.resume()
    for place, line in enumerate(messages):
        message_id, _, text = line.partition(" ")
        if not message_id and place >= done:
            call = partial(gateway.channels.output.send, text.encode(), key="")
            PATIENT.retry(call, on=ConnectionError, sleep=time.sleep)
            repository.keep_positions("program", {"sent": str(place + 1)})
        elif message_id and repository.status(message_id) is not Status.SENT:
            whole = json.loads(text)
            gateway.send(Message(whole["messageHeader"], whole["messageBody"]))
            print(f"sent {place}", flush=True)


def receive(gateway: Gateway, all_sent: Path) -> None:
    """Take and handle, until nothing comes any more."""
    gateway.resume()
    quiet = 0
    while quiet < 5:
        complete = all_sent.exists()
        taken = len(gateway.receive(200))
        handled = gateway.process(handler)
        print(f"taken {taken} handled {handled}", flush=True)
        if taken or handled or not complete:
            quiet = 0
        else:
            quiet += 1
            time.sleep(0.3)


def main(what: str, folder: Path) -> None:
    settings = json.loads((folder / "settings.json").read_text())[what]
    with SqliteRepository(folder / f"{what}.db") as repository:
        repository.rows(DONE)
        channels = open_channels(settings, repository)
        producer = Producer("repository", 7)
        gateway = Gateway(repository, channels, producer, backoff=PATIENT, clock=lambda: NOON)
        if what == "send":
            send(gateway, (folder / "traffic.txt").read_text().splitlines())
        else:
            receive(gateway, folder / "all-sent")
        channels.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
