"""
The RDSS door: messages of the Research Data Shared Service, version 4 of its message API.

    decoded = rdss.decode(records)                         every record: header, body and verdict
    refused = rdss.queued(decoded)                         what the error queues take, decorated
    parts = rdss.split(value)                              a message over the limit, as several within it
    verdict = rdss.validate(value, now=...)                the same for the bytes of one message

A message that cannot be used has one of the catalogue's codes (`RdssFault`), which says the queue it goes to.
"""

from cdckit.rdss.codes import Queue, RdssFault
from cdckit.rdss.decoding import decode
from cdckit.rdss.decorating import decorated, decorated_value
from cdckit.rdss.queues import queued
from cdckit.rdss.rules import RULES, Rules
from cdckit.rdss.splitting import joined, split
from cdckit.rdss.validation import Verdict, validate

__all__ = [
    "RULES",
    "Queue",
    "RdssFault",
    "Rules",
    "Verdict",
    "decode",
    "decorated",
    "decorated_value",
    "joined",
    "queued",
    "split",
    "validate",
]
