"""What the tests of the gateway share: an exchange in memory, messages in it, and a clock that stands."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from cdckit.rdss.gateway import Backoff, Channels, Gateway, MemoryChannel, Message, Producer, SqliteRepository

NOON = datetime(2024, 2, 1, 12, tzinfo=UTC)
OTHERS = Producer("another application", 2)
SLEEPS = Backoff(retries=2)


def uuid(number: int) -> str:
    """A UUID of version 4 that is easily told from others."""
    return str(UUID(int=number, version=4))


def message(number: int, kind: str = "MetadataDelete", **told: Any) -> Message:
    """A message of another application about an object of the same number."""
    return OTHERS.message(
        kind, {"objectUUID": uuid(10**6 + number)}, message_id=uuid(number), now=NOON, **told
    )


def expired(number: int) -> Message:
    return message(number, expires=NOON - timedelta(seconds=1))


def part(number: int, position: int, total: int, body: str) -> bytes:
    """A part of a sequence, whose body is a piece of the text of the whole body."""
    made = message(number)
    sequence = {"sequence": uuid(999_999), "position": position, "total": total}
    return Message({**made.header, "messageSequence": sequence}, body).to_bytes()


def exchange(**others: Any) -> Channels:
    """Four queues in memory, or others in their place."""
    queues = {name: MemoryChannel(name) for name in ("input", "output", "invalid", "error")}
    return Channels(**{**queues, **others})


def gateway(repository: SqliteRepository, channels: Channels, **told: Any) -> Gateway:
    """A gateway at noon that does not wait; *told* is what else it is told."""
    return Gateway(
        repository,
        channels,
        Producer("repository", 7),
        **{"clock": lambda: NOON, "sleep": lambda seconds: None, "backoff": SLEEPS, **told},
    )


def put(channels: Channels, *messages: Message | bytes) -> None:
    """Have others send these."""
    for each in messages:
        channels.input.send(each.to_bytes() if isinstance(each, Message) else each, key="")


def kept(channel: Any) -> list[dict[str, Any]]:
    """The messages that a queue has."""
    return [json.loads(each.value) for each in channel.receive(10**6)]


OBJECT: dict[str, Any] = {
    "objectUUID": uuid(5),
    "objectTitle": "Prices of cheese",
    "objectPersonRole": [
        {
            "person": {
                "personUUID": uuid(6),
                "personIdentifier": [{"personIdentifierValue": "0000-0001", "personIdentifierType": "ORCID"}],
                "personGivenNames": "Ada",
                "personFamilyNames": "Cheddar",
            },
            "role": "author",
        }
    ],
    "objectOrganisationRole": [
        {
            "organisation": {"organisationJiscId": 1, "organisationName": "A dairy"},
            "role": "hostingInstitution",
        }
    ],
    "objectDescription": [{"descriptionValue": "A list.", "descriptionType": "abstract"}],
    "objectRights": {
        "licence": [{"licenceIdentifier": "https://example.com/cc0"}],
        "access": [{"accessType": "open"}],
    },
    "objectDate": [{"dateValue": "2024-01-01T00:00:00Z", "dateType": "accepted"}],
    "objectIdentifier": [{"identifierValue": "10.1000/1", "identifierType": "DOI"}],
    "objectResourceType": "other",
}
"""An object without files, a metadata-only record, with what one must have."""
