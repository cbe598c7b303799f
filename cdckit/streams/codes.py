"""What can be wrong with a message of the streams, and the statuses of responses."""

from __future__ import annotations

from enum import IntEnum

from cdckit.parts.faults import Fault


class StreamFault(Fault):
    """
    The catalogue of faults: the `error_code` of rejects, and whether what comes later can heal it.

    A patch that can be read and not applied is no reject: it gets a response that says why (`Status`).

    >>> StreamFault.MISSING_PART.heals, StreamFault.NOT_JSON.heals
    (True, False)
    """

    NO_VALUE = "NO_VALUE", "The record has no value."
    NOT_JSON = "NOT_JSON", "The value is not one JSON object."
    MISSING_FIELD = "MISSING_FIELD", "A field that the stream needs is not there."
    WRONG_TYPE = "WRONG_TYPE", "A field is not of its type."
    WRONG_PART = "WRONG_PART", "The number of the part is not within that of the parts."
    MISSING_PART = "MISSING_PART", "Parts of the response did not come in time.", True
    CONTRADICTING = "CONTRADICTING", "The parts of the response contradict each other."
    OTHER_STREAM = "OTHER_STREAM", "The record is of no stream that is taken."
    NO_DOCUMENT = "NO_DOCUMENT", "The update does not say what the entity is after it."
    UNFIT_VALUE = "UNFIT_VALUE", "A value does not fit the type that its field is to have."


class Status(IntEnum):
    """
    What became of a patch: the `status` of a response.

    Source:
        Debezium streams, "entity-updates".

    >>> Status.NO_ENTITY == 2
    True
    """

    DONE = 1
    NO_ENTITY = 2
    """The entity, or schema, does not exist, and the patch does not create it."""
    NOT_APPLIED = 3
    """The patch could not be applied; nothing of it was."""
