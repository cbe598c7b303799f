"""Files that messages refer to: fetched over HTTPS, resumed, checked, and never from a local address."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpcore

from cdckit.errors import CdcError, InvalidArgument
from cdckit.rdss.findings import RdssFault
from cdckit.rdss.gateway.errors import BACKOFF, Backoff, Rejection, retry_after

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


def resolve_host(host: str, port: int) -> list[str]:
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
    cdckit.rdss.gateway.downloads.ForbiddenAddress: 'files.example' leads to 10.0.0.1, which is no public ...
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


KINDS = ("md5", "sha256")
"""The types of checksums that a file of a message may have."""


class WrongChecksum(Rejection):
    """A file is not the one that its message describes; a handler that lets it pass refuses the message."""

    def __init__(self, kind: str, needed: str, found: str) -> None:
        self.kind, self.needed, self.found = kind, needed, found
        super().__init__(RdssFault.INVALID_CHECKSUM, f"The {kind} is {found}; the message says {needed}.")


class Checksums:
    """
    The checksums of what was added so far.

    >>> sums = Checksums()
    >>> sums.add(b"a"), sums.add(b"bc")
    (None, None)
    >>> sums.values()["md5"]
    '900150983cd24fb0d6963f7d28e17f72'
    >>> sums.require([("sha256", "00")])
    Traceback (most recent call last):
    ...
    cdckit.rdss.gateway.downloads.WrongChecksum: APPERRMET004: A checksum is not that of its file, ...
    """

    def __init__(self) -> None:
        # What is found out is whether a file is damaged; nobody is kept from making another of the same md5.
        self._sums = {kind: hashlib.new(kind, usedforsecurity=False) for kind in KINDS}

    def add(self, content: bytes) -> None:
        """Go on with the next bytes."""
        for each in self._sums.values():
            each.update(content)

    def add_file(self, path: Path) -> None:
        """Go on with all of a file."""
        with path.open("rb") as file:
            while content := file.read(1 << 20):
                self.add(content)

    def values(self) -> dict[str, str]:
        """By kind, the hexadecimal digits."""
        return {kind: each.hexdigest() for kind, each in self._sums.items()}

    def require(self, needed: Iterable[tuple[str, str]]) -> None:
        """Raise `WrongChecksum` unless each is as needed; upper and lower case are the same."""
        found = self.values()
        for kind, value in needed:
            if found[kind] != value.lower():
                raise WrongChecksum(kind, value, found[kind])


def needed_checksums(checksums: Mapping[str, str] | Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    """
    Kinds and values, given by kind or as a `fileChecksum` of a message has them: all, also two of one kind.

    >>> needed_checksums([{"checksumUUID": "…", "checksumType": "md5", "checksumValue": "9001"}])
    [('md5', '9001')]
    """
    if isinstance(checksums, Mapping):
        needed = list(checksums.items())
    else:
        needed = [(each["checksumType"], each["checksumValue"]) for each in checksums]
    if unknown := sorted({kind for kind, _ in needed} - set(KINDS)):
        raise InvalidArgument("download", "checksums", f"of {' or '.join(KINDS)}", unknown)
    return needed


class NoRoom(Exception):
    """The file is larger than it may be, or than the disk has room for."""


class PartialFile:
    """
    The part of a file that came so far, `<target>.part`, and beside it the version that it is of.

    It is there after the process has ended, and is gone on with by the next one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     part = PartialFile(Path(folder, "file"), max_bytes=10)
    ...     part.begin('"v1"'), part.add(b"half")
    ...     again = PartialFile(Path(folder, "file"), max_bytes=10)
    ...     again.size, again.version
    (None, None)
    (4, '"v1"')
    """

    def __init__(self, target: Path, max_bytes: int) -> None:
        self.target, self.max_bytes = target, max_bytes
        self._part, self._note = (target.with_name(target.name + end) for end in (".part", ".part.json"))
        self.sums, self.size = Checksums(), 0
        self.version: str | None = None
        with suppress(OSError, ValueError, KeyError, TypeError):
            self.version = json.loads(self._note.read_text())["version"]
        if self._part.exists():
            self.size = self._part.stat().st_size
            self.sums.add_file(self._part)

    def begin(self, version: str | None) -> None:
        """Begin anew, with the version that now comes: its ETag or the time of its last change."""
        self.discard()
        self.version = version
        self._note.write_text(json.dumps({"version": version}))
        self._part.touch()

    def expect(self, more: int) -> None:
        """Raise `NoRoom` unless so many bytes more are allowed, and there is room on the disk."""
        if self.size + more > self.max_bytes:
            raise NoRoom(f"it has {self.size + more} bytes or more, and {self.max_bytes} are allowed")
        free = shutil.disk_usage(self._part.parent).free
        if more > free:
            raise NoRoom(f"it needs {more} bytes more, and the disk has {free}")

    def add(self, content: bytes) -> None:
        """Add bytes at the end; `NoRoom` if it grows too large by them."""
        if self.size + len(content) > self.max_bytes:
            raise NoRoom(f"it has more than the {self.max_bytes} bytes that are allowed")
        with self._part.open("ab") as file:
            file.write(content)
        self.size += len(content)
        self.sums.add(content)

    def finish(self) -> None:
        """Put it in its place, on the disk, at once."""
        with self._part.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(self._part, self.target)
        self._note.unlink(missing_ok=True)

    def discard(self) -> None:
        """Forget what came so far."""
        self._part.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)
        self.sums, self.version, self.size = Checksums(), None, 0


_MOST_REDIRECTS = 5
_AGAIN = {408, 425, 429, 500, 502, 503, 504}
"""Answers after which the same request may do."""

_PROGRESS = 1 << 20
"""After so many bytes of one connection retries are counted anew: large files need many connections."""

_SLOWEST = 1024
"""Bytes in a second below which a server only keeps us waiting."""

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class RefusedFile(CdcError, ValueError):
    """A file that is not fetched, since its address or what is there must not be trusted."""

    def __init__(self, url: str, because: str) -> None:
        self.url, self.because = mask_url(url), because
        super().__init__(self.url, because)

    def __str__(self) -> str:
        return f"{self.url} is refused: {self.because}."


class DownloadFailed(CdcError, ConnectionError):
    """
    A file could not be fetched whole; what came of it is kept, and gone on with the next time.

    *to_retry* says that it was tried once alone, since a gateway hands the message over again; *after* is how
    many seconds the server asked to be left alone, if it did.
    """

    def __init__(self, url: str, because: str, *, to_retry: bool = False, after: float | None = None) -> None:
        self.url, self.because, self.to_retry, self.after = mask_url(url), because, to_retry, after
        super().__init__(self.url, because)

    def __str__(self) -> str:
        return f"{self.url} could not be fetched: {self.because}."


class _TransientFailure(Exception):
    """A try failed in a way that may pass; *after* is how many seconds the server asked for, if it did."""

    def __init__(self, because: str, after: float | None = None) -> None:
        self.after = after
        super().__init__(because)


class _FailureAfterProgress(Exception):
    """A try failed, after much of the file had come."""


_TRIED_ONCE = ContextVar("_TRIED_ONCE", default=False)


@contextmanager
def downloads_tried_once() -> Iterator[None]:
    """Within it a download tries once: who calls it tries again, and has one budget of time for that."""
    before = _TRIED_ONCE.set(True)
    try:
        yield
    finally:
        _TRIED_ONCE.reset(before)


@dataclass(frozen=True)
class DownloadedFile:
    """
    A file that is there, whole, with its checksums by kind.

    >>> DownloadedFile(Path("prices.csv"), 3, {"md5": "900150983cd24fb0d6963f7d28e17f72"}).size
    3
    """

    path: Path
    size: int
    checksums: Mapping[str, str]


def download(
    url: str,
    target: str | Path,
    *,
    max_bytes: int,
    checksums: Mapping[str, str] | Iterable[Mapping[str, str]] = (),
    certificates: ssl.SSLContext | None = None,
    backoff: Backoff = BACKOFF,
    timeout: float = 30,
    allow: Callable[[Address], bool] = is_public,
    resolve: Callable[[str, int], list[str]] = resolve_host,
    sleep: Callable[[float], None] = time.sleep,
) -> DownloadedFile:
    """
    Fetch *url* into the file *target*, which appears whole or not at all.

    A connection that breaks is resumed where it broke, also by the next call and the next process: by a
    Range, as long as its ETag or the time of its last change says that the file is the same, else anew.

    The handler of a gateway calls it as anybody does.  There a failure that may pass is not tried again by
    *backoff*: the gateway hands the message over again by its own, and other messages meanwhile.

    Args:
        url: An https address.
        target: The file; what came so far lies beside it in `<target>.part`.
        max_bytes: The most that the file may have, and so the most of the disk that is used.
        checksums: By kind, `md5` or `sha256`; or the `fileChecksum` of a message.  The file must have all
            of them, so it has none of two that differ.
        certificates: A context with other authorities than those that everybody trusts; it must verify.
        backoff: When to try again; counted anew after each MiB that came.
        timeout: Seconds without a byte, or with less than 1 KiB/s, after which a connection counts as broken.
        allow: Which addresses may be connected to; a test allows loopback.
        resolve: The addresses of a name.
        sleep: Waits so many seconds.

    Raises:
        WrongChecksum: It is another file; it is not kept.
        RefusedFile: No https; an address, by itself or by redirection, that is not allowed; too many
            redirections; a certificate that is not of this host or not trusted; too large.
        DownloadFailed: It is not there (404, 410), or the server refuses it, which is final; or the
            connection broke again and again.

    Source:
        RDSS, "File Download Behaviour".

    >>> download("https://127.0.0.1/etc/passwd", "file", max_bytes=1)
    Traceback (most recent call last):
    ...
    cdckit.rdss.gateway.downloads.RefusedFile: https://127.0.0.1/etc/passwd is refused: '127.0.0.1' leads ...
    """
    needed = needed_checksums(checksums)
    part = PartialFile(Path(target), max_bytes)
    with httpcore.ConnectionPool(
        ssl_context=_ssl_context(certificates), network_backend=CheckedBackend(allow, resolve)
    ) as pool:
        fetching, once = _Fetch(pool, url, part, timeout), _TRIED_ONCE.get()
        try:
            _retry_download(fetching.attempt, replace(backoff, retries=0) if once else backoff, sleep)
        except _TransientFailure as error:
            because = str(error) if once else f"{error}, also in {backoff.retries} retries"
            raise DownloadFailed(url, because, to_retry=once, after=error.after) from error
    try:
        part.sums.require(needed)
    except BaseException:
        part.discard()
        raise
    part.finish()
    return DownloadedFile(part.target, part.size, part.sums.values())


def _retry_download(attempt: Callable[[], None], backoff: Backoff, sleep: Callable[[float], None]) -> None:
    while True:
        try:
            return backoff.retry(attempt, on=_TransientFailure, sleep=sleep)
        except _FailureAfterProgress:
            sleep(backoff.first)


class _Fetch:
    """One download: each attempt goes on with what is there."""

    def __init__(self, pool: httpcore.ConnectionPool, url: str, part: PartialFile, timeout: float) -> None:
        self._pool, self._url, self._part, self._timeout = pool, url, part, timeout
        self._extensions = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), timeout)}

    def attempt(self) -> None:
        """Fetch what is missing, over as many redirections as are allowed."""
        before, url = self._part.size, self._url
        try:
            for _ in range(_MOST_REDIRECTS + 1):
                moved = self._request(url)
                if moved is None:
                    return
                url = urljoin(url, moved)
        except (NoRoom, ForbiddenAddress) as error:
            if isinstance(error, NoRoom):
                self._part.discard()
            raise RefusedFile(url, str(error).rstrip(".")) from error
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            if (untrusted := _certificate_fault(error)) is not None:
                raise RefusedFile(url, untrusted) from error
            if self._part.size - before >= _PROGRESS:
                raise _FailureAfterProgress from error
            raise _TransientFailure(str(error) or type(error).__name__) from error
        raise RefusedFile(self._url, f"it redirects more than {_MOST_REDIRECTS} times")

    def _request(self, url: str) -> str | None:
        """One request; the address that it redirects to, or None when the file is whole."""
        _require_https(url)
        part, headers = self._part, [("Accept-Encoding", "identity"), ("Accept", "*/*")]
        if part.size and part.version:
            headers += [("Range", f"bytes={part.size}-"), ("If-Range", part.version)]
        with self._pool.stream("GET", url, headers=headers, extensions=self._extensions) as answer:
            answer_headers = {
                name.decode().lower(): value.decode("latin-1") for name, value in answer.headers
            }
            if answer.status in (301, 302, 303, 307, 308) and "location" in answer_headers:
                return answer_headers["location"]
            if answer.status == 416 and part.size:
                if answer_headers.get("content-range") == f"bytes */{part.size}":
                    return None  # all of it was there already
                part.discard()
                raise _TransientFailure("the file has changed")
            if answer.status in _AGAIN:
                raise _TransientFailure(
                    f"the answer was {answer.status}", retry_after(answer_headers.get("retry-after"))
                )
            if answer.status not in (200, 206):
                raise DownloadFailed(url, f"the answer was {answer.status}")
            if answer_headers.get("content-encoding", "identity") != "identity":
                raise RefusedFile(
                    url, f"it comes as {answer_headers['content-encoding']}, which was not asked for"
                )
            self._place(answer.status, answer_headers)
            self._read(answer)
        return None

    def _read(self, answer: httpcore.Response) -> None:
        since, size = time.monotonic(), self._part.size
        for content in answer.iter_stream():
            self._part.add(content)
            seconds = time.monotonic() - since
            if seconds > self._timeout:
                if self._part.size - size < _SLOWEST * seconds:
                    raise _TransientFailure(f"less than {_SLOWEST} bytes came in a second")
                since, size = time.monotonic(), self._part.size

    def _place(self, status: int, headers: Mapping[str, str]) -> None:
        """Whether the answer goes on with what is there, or begins anew."""
        part = self._part
        content_range = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
        if status == 206 and (content_range is None or int(content_range[1]) != part.size):
            part.discard()
            raise _TransientFailure("the answer was another part than the one asked for")
        if status == 200:
            part.begin(_version(headers))
        length = headers.get("content-length", "")
        part.expect(int(length) if length.isdecimal() else 0)


def _version(headers: Mapping[str, str]) -> str | None:
    """What tells this file from a later one at the same address; a weak ETag does not."""
    etag = headers.get("etag", "")
    return etag if etag and not etag.startswith("W/") else headers.get("last-modified")


def _require_https(url: str) -> None:
    try:
        parts = urlsplit(url)
        fits = (
            parts.scheme == "https" and bool(parts.hostname) and not parts.username and (parts.port or 1) > 0
        )
    except ValueError:
        fits = False
    if not fits or not url.isascii() or not url.isprintable() or " " in url:
        raise RefusedFile(url, "it is no https address of a host, without a user")


def _certificate_fault(error: BaseException | None) -> str | None:
    """What is wrong with a certificate, if that is the reason of *error* or a reason of its reasons."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return str(error.verify_message).rstrip(".")
        error = error.__cause__ or error.__context__
    return None


def _ssl_context(given: ssl.SSLContext | None) -> ssl.SSLContext:
    context = given or ssl.create_default_context()
    if context.verify_mode is not ssl.CERT_REQUIRED or not context.check_hostname:
        raise InvalidArgument(
            "download", "certificates", "a context that verifies hosts", context.verify_mode
        )
    return context


def mask_url(url: str) -> str:
    """
    An address as an error says it: without what may be a secret.

    >>> mask_url("https://me:secret@files.example/a/b.csv?signature=secret")
    'https://files.example/a/b.csv'
    """
    return re.sub(r"(?<=://)[^/@]*@", "", re.split(r"[?#]", url, maxsplit=1)[0])[:300]
