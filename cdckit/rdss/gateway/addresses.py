"""Connections to public addresses only: what a name leads to is checked, and exactly that is connected to."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import httpcore

from cdckit.errors import CdcError

Address = IPv4Address | IPv6Address
_NAT64 = IPv6Network("64:ff9b::/96")


class ForbiddenAddress(CdcError, ValueError):
    """A name leads to an address that is not to be connected to."""

    def __init__(self, host: str, address: str) -> None:
        self.host, self.address = host, address
        super().__init__(host, address)

    def __str__(self) -> str:
        return f"{self.host!r} leads to {self.address}, which is no public address."


def is_public(address: Address) -> bool:
    """
    Whether an address is one of the Internet: not of this machine, a local network, or a group.

    An IPv4 address that is written into one of IPv6 is looked at as what it is.

    >>> [is_public(ip_address(text)) for text in ("93.184.216.34", "10.1.2.3", "169.254.169.254", "::1")]
    [True, False, False, False]
    >>> [is_public(ip_address(text)) for text in ("2606:2800:220:1::1", "::ffff:127.0.0.1", "64:ff9b::a00:1")]
    [True, False, False]
    """
    if isinstance(address, IPv6Address):
        inside = address.ipv4_mapped or address.sixtofour
        if inside is None and address in _NAT64:
            inside = IPv4Address(int(address) & 0xFFFFFFFF)
        if inside is not None:
            return is_public(inside)
        if address.teredo is not None:
            return False
    return address.is_global and not address.is_multicast


def resolved(host: str, port: int) -> list[str]:
    """The addresses that a name, or an address in whatever form, leads to."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class CheckedBackend(httpcore.NetworkBackend):
    """
    Connects for httpcore: resolves a name once, checks each address, and connects to one that was checked.

    So a name that answers otherwise the second time changes nothing.  A name of which one address is
    forbidden is refused whole.

    >>> backend = CheckedBackend(allow=is_public, resolve=lambda host, port: ["10.0.0.1"])
    >>> backend.connect_tcp("files.example", 443)
    Traceback (most recent call last):
    ...
    cdckit.rdss.gateway.addresses.ForbiddenAddress: 'files.example' leads to 10.0.0.1, which is no public ...
    """

    def __init__(self, allow: Callable[[Address], bool], resolve: Callable[[str, int], list[str]]) -> None:
        self._allow, self._resolve, self._inner = allow, resolve, httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            addresses = self._resolve(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} is not known: {error}") from error
        for each in addresses:
            if not self._allow(ip_address(each)):
                raise ForbiddenAddress(host, each)
        failed: Exception = httpcore.ConnectError(f"{host} has no address")
        for each in addresses:
            try:
                return self._inner.connect_tcp(each, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed
