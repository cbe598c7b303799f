"""The messages about invented objects of four invented universities: what `tools.rdss_samples` sends."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from hashlib import md5, sha256
from typing import Any

START = datetime(2024, 3, 4, 8, tzinfo=UTC)
UNIVERSITIES = {11: "University of Aldmoor", 23: "Brackwater College", 42: "Carrow Institute", 57: "Dunholm"}
TOPICS = ("tides", "peat", "dialects", "bridges", "lichens", "gull colonies", "tin mines", "choral music")
NAMES = (("Ada", "Byrne"), ("Ímar", "O'Dowd"), ("Wen", "Zhào"), ("Sofía", "Núñez"), ("Tom", "Ashe"))
WORDS = [
    "survey",
    "sample",
    "reading",
    "station",
    "depth",
    "season",
    "record",
    "index",
    "volume",
    "average",
    "series",
    "note",
    "field",
    "shore",
]


class Exchange:
    """Makes messages; all chance is drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.draw.getrandbits(128), version=4))

    def message(
        self, kind: str, group: str, tenant: int, at: datetime, body: Any, **more: Any
    ) -> dict[str, Any]:
        """A valid message, published at *at*."""
        stop = {
            "machineId": f"adaptor-{tenant}",
            "machineAddress": f"m{tenant}.example.org",
            "timestamp": text_of(at),
        }
        header = {
            "messageId": self.uuid(),
            "messageClass": group,
            "messageType": kind,
            "returnAddress": f"tenant-{tenant}",
            "messageTimings": {
                "publishedTimestamp": text_of(at),
                "expirationTimestamp": text_of(at + timedelta(days=7)),
            },
            "messageSequence": {"sequence": self.uuid(), "position": 1, "total": 1},
            "messageHistory": [stop],
            "version": self.draw.choice(["4.0.0", "4.0.0", "4.0.1"]),
            "generator": f"repository of {UNIVERSITIES[tenant]}",
            "tenantJiscID": tenant,
            **more,
        }
        return {"messageHeader": header, "messageBody": body}

    def object(self, tenant: int, at: datetime) -> dict[str, Any]:
        """The metadata of a new object; one in six has no files."""
        given, family = self.draw.choice(NAMES)
        topic = self.draw.choice(TOPICS)
        kind = self.draw.choice(["dataset", "dataset", "article", "thesisDissertation", "software"])
        made: dict[str, Any] = {
            "objectUUID": self.uuid(),
            "objectTitle": f"{self.draw.choice(['On', 'A survey of', 'Notes on', 'More about'])} {topic}",
            "objectPersonRole": [
                {
                    "person": {
                        "personUUID": self.uuid(),
                        "personIdentifier": [
                            {"personIdentifierType": "ORCID", "personIdentifierValue": "0000-0000-0000-0000"}
                        ],
                        "personGivenNames": given,
                        "personFamilyNames": family,
                        "personMail": f"person{self.draw.randrange(90)}@{tenant}.example.org",
                    },
                    "role": "author",
                }
            ],
            "objectDescription": [{"descriptionType": "abstract", "descriptionValue": self.prose(20)}],
            "objectRights": {
                "licence": [{"licenceIdentifier": "CC-BY-4.0"}],
                "access": [{"accessType": self.draw.choice(["open", "open", "restricted"])}],
            },
            "objectDate": [
                {"dateType": "awarded" if kind[0] == "t" else "published", "dateValue": text_of(at)}
            ],
            "objectKeyword": [topic],
            "objectResourceType": kind,
            "objectValue": "normal",
            "objectIdentifier": [{"identifierType": "DOI", "identifierValue": f"10.5555/{self.uuid()[:8]}"}],
            "objectOrganisationRole": [
                {
                    "organisation": {"organisationJiscId": tenant, "organisationName": UNIVERSITIES[tenant]},
                    "role": "awardingInstitution" if kind[0] == "t" else "publisher",
                }
            ],
        }
        own: dict[str, dict[str, Any]] = {
            "article": {"language": ["en"], "publicationVersion": "AM"},
            "thesisDissertation": {
                "language": ["en"],
                "qualificationLevel": "doctoral",
                "qualificationName": "PhD",
            },
        }
        files = [] if self.draw.random() < 1 / 6 else [self.file(at) for _ in range(self.draw.randint(1, 3))]
        return {**made, **own.get(kind, {}), **({"objectFile": files} if files else {})}

    def file(self, at: datetime) -> dict[str, Any]:
        name, kind = (
            f"{self.draw.choice(WORDS)}{self.draw.randrange(100)}.csv",
            self.draw.choice(["md5", "sha256"]),
        )
        digest = {"md5": md5, "sha256": sha256}[kind](name.encode()).hexdigest()
        return {
            "fileUUID": self.uuid(),
            "fileIdentifier": name,
            "fileName": name,
            "fileSize": self.draw.randrange(1, 10**7),
            "fileChecksum": [{"checksumUUID": self.uuid(), "checksumType": kind, "checksumValue": digest}],
            "fileCompositionLevel": "0",
            "fileDateModified": [text_of(at)],
            "fileUse": "originalFile",
            "fileUploadStatus": "uploadComplete",
            "fileStorageStatus": "online",
            "fileStorageLocation": f"https://files.example.org/{name}",
            "fileStoragePlatform": {
                "storagePlatformUUID": self.uuid(),
                "storagePlatformName": "files",
                "storagePlatformType": "HTTP",
                "storagePlatformCost": "0",
            },
        }

    def prose(self, words: int) -> str:
        return " ".join(self.draw.choices(WORDS, k=words))

    def later(self, at: datetime, hours: float) -> datetime:
        return at + timedelta(seconds=round(self.draw.uniform(0.02, hours) * 3600, 3))

    def life(self) -> Iterator[tuple[datetime, dict[str, Any], str]]:
        """The messages about one object, and about the new versions of it."""
        tenant, at = self.draw.choice(list(UNIVERSITIES)), self.later(START, 60)
        made = self.object(tenant, at)

        def said(kind: str, what: str, body: Any, group: str = "Command", **more: Any) -> Any:
            return at, self.message(kind, group, tenant, at, deepcopy(body), **more), what

        yield said("MetadataCreate", "create", made)
        for _ in range(self.draw.choice([0, 0, 1, 1, 2])):
            at = self.later(at, 20)
            made["objectDescription"][0]["descriptionValue"] = self.prose(20)
            yield said("MetadataUpdate", "update", made)
        if self.draw.random() < 0.5:
            at = self.later(at, 3)
            event = {"preservationEventType": "ingestion", "preservationEventValue": "done"}
            package = {"objectUUID": made["objectUUID"], "packageUUID": self.uuid(), "packageType": "AIP"}
            package |= {"packageContainerType": "zip", "packagePreservationEvent": event}
            yield said("PreservationEvent", "preservation event", package, "Event")
        if self.draw.random() < 0.3:
            at = self.later(at, 5)
            asked = said("MetadataRead", "read", {"objectUUID": made["objectUUID"]})
            yield asked
            at = self.later(at, 0.1)
            correlation = asked[1]["messageHeader"]["messageId"]
            yield said("MetadataRead", "response", made, "Document", correlationId=correlation)
        if self.draw.random() < 0.25:
            at, old = self.later(at, 20), made["objectUUID"]
            made = {**deepcopy(made), "objectUUID": self.uuid()}
            identifier = {"identifierType": "UUID", "identifierValue": old}
            made["objectRelatedIdentifier"] = [{"identifier": identifier, "relationType": "isNewVersionOf"}]
            yield said("MetadataUpdate", "new version", made)
        if self.draw.random() < 0.2:
            at = self.later(at, 20)
            yield said("MetadataDelete", "delete", {"objectUUID": made["objectUUID"]})

    def stray(self) -> Iterator[tuple[datetime, dict[str, Any], str]]:
        """Messages about objects that nobody has created: by themselves they are valid."""
        at = self.later(START, 100)
        thing = self.object(23, at)
        asked = {"objectUUID": self.uuid()}
        yield at, self.message("MetadataUpdate", "Command", 23, at, thing), "update of an unknown object"
        yield at, self.message("MetadataDelete", "Command", 23, at, asked), "delete of an unknown object"
        yield at, self.message("MetadataRead", "Command", 23, at, asked), "read of an unknown object"


def text_of(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
