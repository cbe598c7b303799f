"""
The RDSS door: messages of the Research Data Shared Service, version 4 of its message API.

    verdict = rdss.validate(value, now=...)                any bytes: valid, or an error code and a path
    rdss.decorated(message, code, description)             what an error queue takes

A message that cannot be used has one of the catalogue's codes (`RdssFault`), which says the queue it goes to.
"""

from cdckit.rdss.codes import Queue, RdssFault
from cdckit.rdss.decorating import decorated, decorated_value
from cdckit.rdss.rules import RULES, Rules
from cdckit.rdss.validation import Verdict, validate

__all__ = [
    "RULES",
    "Queue",
    "RdssFault",
    "Rules",
    "Verdict",
    "decorated",
    "decorated_value",
    "validate",
]
