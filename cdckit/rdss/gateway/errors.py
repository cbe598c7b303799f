"""What can go wrong in a gateway, as exceptions that carry the facts."""

from __future__ import annotations

from cdckit.errors import CdcError


class RepositoryInUse(CdcError, RuntimeError):
    """Another process, or another object of this one, has the repository open."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)

    def __str__(self) -> str:
        return (
            f"{self.path} is open elsewhere: two gateways on one repository would process each message "
            "twice. Close the other one, or give this one a file of its own."
        )


class NoRepository(CdcError, RuntimeError):
    """A file that is there, and is no repository of a gateway, or one of another version."""

    def __init__(self, path: str, found: str) -> None:
        self.path, self.found = path, found
        super().__init__(path, found)

    def __str__(self) -> str:
        return f"{self.path} is no repository of a gateway that can be read: {self.found}. Name another file."
