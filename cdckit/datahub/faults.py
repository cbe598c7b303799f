"""What can be wrong with a message of the data hub, or with a record in it."""

from __future__ import annotations

from cdckit.parts.faults import Fault
from cdckit.parts.schemas import text_literal


class HubFault(Fault):
    """
    Why a message or a record was not applied: the `error_code` of logs and rejects.

    >>> HubFault.KEY_MISSING.describe("number")
    'The record needs values in the fields of a key: number'
    >>> [str(fault) for fault in HubFault if fault.heals]
    ['KEY_AMBIGUOUS', 'LINK_AMBIGUOUS', 'LINK_MISSING']
    """

    MESSAGE_INVALID = "MESSAGE_INVALID", "The record holds no message."
    SYSTEM_NOT_FOUND = "SYSTEM_NOT_FOUND", "The schema has no such source system."
    ENTITY_NOT_FOUND = "ENTITY_NOT_FOUND", "The source system has no such source entity."
    DATA_INVALID = "DATA_INVALID", "The reader cannot read the data of the message."
    RECORD_INVALID = "RECORD_INVALID", "A record must be an object."
    FILTER_FAILED = "FILTER_FAILED", "A filter of the mapping failed on the record."
    VALUE_INVALID = "VALUE_INVALID", "A value does not convert to the type of its field."
    CHILDREN_INVALID = "CHILDREN_INVALID", "Children must be an array of objects."
    KEY_MISSING = "KEY_MISSING", "The record needs values in the fields of a key."
    KEY_AMBIGUOUS = "KEY_AMBIGUOUS", "The keys of the record lead to several entities.", True
    LINK_AMBIGUOUS = "LINK_AMBIGUOUS", "The key of a link leads to several entities.", True
    LINK_MISSING = "LINK_MISSING", "The record waits for what is not there.", True

    def describe(self, finding: str = "") -> str:
        """The sentence, with what was found in this message or record."""
        return f"{self.sentence.removesuffix('.')}: {finding}" if finding else self.sentence

    def described(self, finding: str) -> str:
        """The same with what an expression of SQL says, as one."""
        return f"concat({text_literal(self.sentence.removesuffix('.') + ': ')}, {finding})"

    def error(self, finding: str) -> str:
        """The code, and the sentence with what an expression says: the error of a message."""
        return f"concat({text_literal(f'{self}: ')}, {self.described(finding)})"
