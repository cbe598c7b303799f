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


class ChannelUnreachable(CdcError, ConnectionError):
    """A queue did not answer, or could not for now; the same call may do later."""

    def __init__(self, channel: str, because: str) -> None:
        self.channel, self.because = channel, because
        super().__init__(channel, because)

    def __str__(self) -> str:
        return f"The channel {self.channel!r} cannot be reached: {self.because}."


class NoChannel(CdcError, LookupError):
    """A queue that does not exist, or that refuses this client; trying again does not help."""

    def __init__(self, channel: str, because: str) -> None:
        self.channel, self.because = channel, because
        super().__init__(channel, because)

    def __str__(self) -> str:
        return f"The channel {self.channel!r} cannot be used: {self.because}. See its address and its rights."
