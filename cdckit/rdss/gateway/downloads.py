"""Files that messages refer to: fetched over HTTPS, resumed, checked, and never from a local address."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from numbers import Real
from pathlib import Path
from typing import NoReturn

import httpx

from cdckit.errors import InvalidArgument
from cdckit.rdss.gateway.errors import (
    BACKOFF,
    Backoff,
    DownloadFailed,
    RefusedFile,
    WrongChecksum,
    retry_after,
)

Address = IPv4Address | IPv6Address
_NAT64 = IPv6Network("64:ff9b::/96")
_HOST = re.compile(r"[\w.:-]+", flags=re.ASCII)


def is_public(address: Address) -> bool:
    """
    Tell whether an address is one of the Internet: not of this machine, a local network, or a group.

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
    """List the addresses that a name, or an address in whatever form, leads to."""
    resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in resolved))


class CheckedTransport(httpx.BaseTransport):
    """
    A transport of `httpx` that takes https alone, and connects only to addresses that were checked.

    It resolves a name once for each request, so a name that leads elsewhere the second time changes
    nothing.  A name of which one address is forbidden is refused whole.
    """

    def __init__(
        self,
        certificates: ssl.SSLContext,
        allow: Callable[[Address], bool],
        resolve: Callable[[str, int], list[str]],
    ) -> None:
        self._allow, self._resolve = allow, resolve
        # A connection serves one request: two hosts may have one address, and each shows its certificate.
        once = httpx.Limits(max_keepalive_connections=0)
        self._inner = httpx.HTTPTransport(verify=certificates, trust_env=False, limits=once)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request to the first address of its host that answers; raises `RefusedFile`."""
        url, host = request.url, request.url.raw_host.decode()
        if url.scheme != "https" or not _HOST.fullmatch(host) or url.userinfo:
            raise RefusedFile(str(url), "it is no https address of a host, without a user")
        try:
            addresses = self._resolve(host, url.port or 443)
        except OSError as error:
            raise httpx.ConnectError(f"{host} is not known: {error}") from error
        for address in addresses:
            if not self._allow(ip_address(address)):
                raise RefusedFile(str(url), f"{host!r} leads to {address}, which is no public address")
        failure: httpx.TransportError = httpx.ConnectError(f"{host} has no address")
        # By it the certificate is checked: its host is not the address that is connected to.
        extensions = {**request.extensions, "sni_hostname": host}
        for address in addresses:
            place = url.copy_with(host=address)
            direct = httpx.Request(request.method, place, headers=request.headers, extensions=extensions)
            try:
                return _without_detour(self._inner.handle_request(direct))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise failure

    def close(self) -> None:
        self._inner.close()


def _without_detour(answer: httpx.Response) -> httpx.Response:
    """Leave out what a redirection brings: `httpx` would read all of it into memory, whatever its size."""
    if not answer.has_redirect_location:
        return answer
    answer.close()
    return httpx.Response(answer.status_code, headers={"Location": answer.headers["Location"]})


KINDS = ("md5", "sha256")
"""The types of checksums that a file of a message may have."""

_SIZE = "size"
"""Beside the checksums that a file needs, the bytes that it has."""


def file_checksums(path: Path) -> dict[str, str]:
    """Compute the checksums of a file: by type, the hexadecimal digits."""
    # What is found out is whether a file is damaged; nobody is kept from making another of the same md5.
    digests = {kind: hashlib.new(kind, usedforsecurity=False) for kind in KINDS}
    with path.open("rb") as file:
        while content := file.read(1 << 20):
            for digest in digests.values():
                digest.update(content)
    return {kind: digest.hexdigest() for kind, digest in digests.items()}


def needed_checksums(checksums: Mapping[str, str] | Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    """
    List types and values, given by type or as a `fileChecksum` of a message has them: also two of one type.

    >>> needed_checksums([{"checksumUUID": "…", "checksumType": "md5", "checksumValue": "9001"}])
    [('md5', '9001')]
    """
    if isinstance(checksums, Mapping):
        needed = list(checksums.items())
    else:
        needed = [(checksum["checksumType"], checksum["checksumValue"]) for checksum in checksums]
    if unknown := sorted({kind for kind, _ in needed} - set(KINDS)):
        raise InvalidArgument("download", "checksums", f"of {' or '.join(KINDS)}", unknown)
    return needed


@dataclass(frozen=True)
class DownloadedFile:
    """
    A file that is there, whole, with its checksums by type.

    >>> DownloadedFile(Path("prices.csv"), 3, {"md5": "900150983cd24fb0d6963f7d28e17f72"}).size
    3
    """

    path: Path
    size: int
    checksums: Mapping[str, str]


class PartialFile:
    """
    The part of a file that came so far, `<target>.part`, and beside it which address and version it is of.

    It is there after the process has ended, and is gone on with by the next one that asks the same address.
    *furthest* is the most bytes that were there in this process; *is_unsure* says that nothing but a checksum
    tells whether it is one file, and whole: its pieces have no version, or an answer had no length.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     part = PartialFile("https://files.example/a", Path(folder, "file"), max_bytes=10)
    ...     part.begin('"v1"'), part.add(b"half")
    ...     again = PartialFile("https://files.example/a", Path(folder, "file"), max_bytes=10)
    ...     again.size, again.version
    (None, None)
    (4, '"v1"')
    """

    def __init__(self, url: str, target: Path, max_bytes: int) -> None:
        self._url, self._target, self._max_bytes = url, target, max_bytes
        self._part, self._note = (target.with_name(target.name + end) for end in (".part", ".part.version"))
        # Addresses may hold secrets, such as signatures: none is written to the disk.
        self._address = hashlib.sha256(url.encode()).hexdigest()
        self.size, self.version, self.is_unsure = 0, "", False
        address, _, version = (self._note.read_text() if self._note.exists() else "").partition("\n")
        if address == self._address and self._part.exists():
            self.size, self.version = self._part.stat().st_size, version
        self.furthest = self.size

    def begin(self, version: str) -> None:
        """Begin anew, with the version that now comes: its ETag or the time of its last change, if any."""
        self.discard()
        self.version = version
        self._note.write_text(f"{self._address}\n{version}")
        self._part.touch()

    def expect(self, more: int) -> None:
        """Raise `RefusedFile` unless so many bytes more are allowed, and there is room on the disk."""
        if self.size + more > self._max_bytes:
            self.refuse(f"it has {self.size + more} bytes or more, and {self._max_bytes} are allowed")
        free = shutil.disk_usage(self._part.parent).free
        if more > free:
            self.refuse(f"it needs {more} bytes more, and the disk has {free}")

    def add(self, content: bytes) -> None:
        """Add bytes at the end; raises `RefusedFile` if it grows too large by them."""
        if self.size + len(content) > self._max_bytes:
            self.refuse(f"it has more than the {self._max_bytes} bytes that are allowed")
        with self._part.open("ab") as file:
            file.write(content)
        self.size += len(content)
        self.furthest = max(self.furthest, self.size)

    def finish(self, needed: Iterable[tuple[str, str]]) -> DownloadedFile:
        """Put it in its place, on the disk, at once; raises `WrongChecksum` if it is another file."""
        checksums = file_checksums(self._part)
        computed = {**checksums, _SIZE: str(self.size)}
        for kind, value in needed:
            if computed[kind] != value.lower():
                self.discard()
                raise WrongChecksum(kind, value, computed[kind])
        _sync(self._part)
        os.replace(self._part, self._target)
        self._note.unlink(missing_ok=True)
        # Its name is of the folder: without this a power cut may leave a message processed and no file.
        _sync_folder(self._target.parent)
        return DownloadedFile(self._target, self.size, checksums)

    def discard(self) -> None:
        """Forget what came so far."""
        self._part.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)
        self.version, self.size, self.is_unsure = "", 0, False

    def refuse(self, because: str) -> NoReturn:
        """Forget what came so far, and raise `RefusedFile`."""
        self.discard()
        raise RefusedFile(self._url, because)


def _sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, where its file system knows how."""
    try:
        _sync(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise


def _sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


_MOST_REDIRECTS = 5
_MAY_PASS = {408, 425, 429, 500, 502, 503, 504}
"""Answers after which the same request may do."""

_PROGRESS = 1 << 20
"""After so many bytes of one connection retries are counted anew: large files need many connections."""

_SLOWEST = 1024
"""Bytes in a second below which a server only keeps us waiting."""

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


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
    """Let a download within it try once: who calls it tries again, and has one budget of time for that."""
    before = _TRIED_ONCE.set(True)
    try:
        yield
    finally:
        _TRIED_ONCE.reset(before)


def download(
    url: str,
    target: str | Path,
    *,
    max_bytes: int,
    checksums: Mapping[str, str] | Iterable[Mapping[str, str]] = (),
    size: int | None = None,
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
    Range, as long as its ETag or the time of its last change says that the file is the same.  Where the
    server gives neither, the checksums have to say so: if they are wrong, the file is fetched anew.  Without
    either it is fetched anew at once.  An answer that has no length ends where its connection does, which may
    have broken off: *size* or *checksums* say whether the file is whole; without both it is refused.

    The handler of a gateway calls it as anybody does.  There a failure that may pass is not tried again by
    *backoff*: the gateway hands the message over again by its own, and other messages meanwhile.

    Args:
        url: An https address.
        target: The file; what came so far lies beside it in `<target>.part`.  One call at a time.
        max_bytes: The most that the file may have, and so the most of the disk that is used.
        checksums: By kind, `md5` or `sha256`; or the `fileChecksum` of a message.  The file must have all
            of them, so it has none of two that differ.
        size: The bytes that the file must have, such as the `fileSize` of a message.
        certificates: A context with other authorities than those that everybody trusts; it must verify.
        backoff: When to try again; counted anew after each MiB that had not come before.
        timeout: Seconds without a byte, or with less than 1 KiB/s, after which a connection counts as broken.
        allow: Which addresses may be connected to; a test allows loopback.
        resolve: The addresses of a name.
        sleep: Waits so many seconds.

    Raises:
        WrongChecksum: It is another file, by its checksums or its size; it is not kept.
        RefusedFile: No https; an address, by itself or by redirection, that is not allowed; too many
            redirections; a certificate that is not of this host or not trusted; too large; of no length.
        DownloadFailed: It is not there (404, 410), or the server refuses it, which is final; or the
            connection broke again and again.
        InvalidArgument: *size* is no whole number, or a checksum is of another kind.

    Source:
        RDSS, "File Download Behaviour".

    >>> download("https://127.0.0.1/etc/passwd", "file", max_bytes=1)
    Traceback (most recent call last):
    ...
    cdckit.rdss.gateway.errors.RefusedFile: https://127.0.0.1/etc/passwd is refused: '127.0.0.1' leads ...
    """
    needed, once = needed_checksums(checksums), _TRIED_ONCE.get()
    if size is not None:
        # Of a message a whole number may come as 12.0.
        if not isinstance(size, Real) or isinstance(size, bool) or size < 0 or size % 1:
            raise InvalidArgument("download", "size", "a whole number of bytes, or None", size)
        needed.append((_SIZE, str(int(size))))
    context = certificates or ssl.create_default_context()
    if context.verify_mode is not ssl.CERT_REQUIRED or not context.check_hostname:
        raise InvalidArgument(
            "download", "certificates", "a context that verifies hosts", context.verify_mode
        )
    part = PartialFile(url, Path(target), max_bytes)
    with httpx.Client(
        transport=CheckedTransport(context, allow, resolve),
        timeout=timeout,
        follow_redirects=True,
        max_redirects=_MOST_REDIRECTS,
    ) as client:
        attempt = partial(_fetch_file, client, url, part, needed, timeout)
        try:
            return _retry_download(attempt, replace(backoff, retries=0) if once else backoff, sleep)
        except _TransientFailure as error:
            because = str(error) if once else f"{error}, also in {backoff.retries} retries"
            raise DownloadFailed(url, because, to_retry=once, after=error.after) from error


def _retry_download(
    attempt: Callable[[], DownloadedFile], backoff: Backoff, sleep: Callable[[float], None]
) -> DownloadedFile:
    while True:
        try:
            return backoff.retry(attempt, on=_TransientFailure, sleep=sleep)
        except _FailureAfterProgress:
            sleep(backoff.first)


def _fetch_file(
    client: httpx.Client, url: str, part: PartialFile, needed: Sequence[tuple[str, str]], timeout: float
) -> DownloadedFile:
    """Ask once for what is missing of a file, and put it in its place."""
    headers = {"Accept-Encoding": "identity"}
    if part.size and part.version:
        headers |= {"Range": f"bytes={part.size}-", "If-Range": part.version}
    elif part.size and any(kind in KINDS for kind, _ in needed):
        headers["Range"], part.is_unsure = f"bytes={part.size}-", True
    _fetch_missing(client, url, headers, part, needed, timeout)
    is_unsure = part.is_unsure
    try:
        return part.finish(needed)
    except WrongChecksum as error:
        if not is_unsure:
            raise
        raise _TransientFailure("what came is not whole, or not of one file") from error


def _fetch_missing(
    client: httpx.Client,
    url: str,
    headers: dict[str, str],
    part: PartialFile,
    needed: Sequence[tuple[str, str]],
    timeout: float,
) -> None:
    furthest = part.furthest
    try:
        with client.stream("GET", url, headers=headers) as answer:
            if _is_whole(answer, part):
                return
            size = _place(answer, part)
            if size is None:
                if not needed:
                    part.refuse("the answer has no length: give the size or a checksum of the file")
                part.is_unsure, size = True, int(dict(needed).get(_SIZE, 0))
            _read(answer, part, timeout)
            if part.size < size:
                raise httpx.ReadError("the answer brought less than the rest")
    except httpx.TooManyRedirects as error:
        raise RefusedFile(url, f"it redirects more than {_MOST_REDIRECTS} times") from error
    except (httpx.TransportError, httpx.InvalidURL) as error:
        if (because := _reason_to_refuse(error)) is not None:
            place = error.request.url if isinstance(error, httpx.TransportError) else url
            raise RefusedFile(str(place), because) from error
        if part.furthest - furthest >= _PROGRESS:
            raise _FailureAfterProgress from error
        raise _TransientFailure(str(error) or type(error).__name__) from error


def _is_whole(answer: httpx.Response, part: PartialFile) -> bool:
    """Tell whether all of a file was there already; raises what its answer means where it brings nothing."""
    status, encoding = answer.status_code, answer.headers.get("content-encoding", "identity")
    if status == 416 and part.size:
        if answer.headers.get("content-range") == f"bytes */{part.size}":
            return True
        part.discard()
        raise _TransientFailure("the file has changed")
    if status in _MAY_PASS:
        raise _TransientFailure(f"the answer was {status}", retry_after(answer.headers.get("retry-after")))
    if status not in (200, 206):
        raise DownloadFailed(str(answer.url), f"the answer was {status}")
    if encoding != "identity":
        raise RefusedFile(str(answer.url), f"it comes as {encoding}, which was not asked for")
    return False


def _place(answer: httpx.Response, part: PartialFile) -> int | None:
    """Go on with what is there, or begin anew; the least bytes of the whole file, None if nothing tells."""
    size, version = None, _version(answer.headers)
    length = answer.headers.get("content-length", "")
    if answer.status_code == 200:
        part.begin(version)
        # An answer in chunks has an end of its own.
        if length.isdecimal() or "transfer-encoding" in answer.headers:
            size = int(length or 0)
    else:
        content_range = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
        if content_range is None or int(content_range[1]) != part.size:
            part.discard()
            raise _TransientFailure("the answer was another part than the one asked for")
        # A server may know ranges, and not the condition under which one was asked for.
        if version and part.version and version != part.version:
            part.discard()
            raise _TransientFailure("the file has changed")
        size = int(content_range[3]) if content_range[3] != "*" else None
    part.expect(int(length) if length.isdecimal() else 0)
    return size


def _read(answer: httpx.Response, part: PartialFile, timeout: float) -> None:
    since, size = time.monotonic(), part.size
    for content in answer.iter_raw():
        part.add(content)
        seconds = time.monotonic() - since
        if seconds > timeout:
            if part.size - size < _SLOWEST * seconds:
                raise httpx.ReadTimeout(f"less than {_SLOWEST} bytes came in a second")
            since, size = time.monotonic(), part.size


def _version(headers: httpx.Headers) -> str:
    """Tell this file from a later one at the same address; a weak ETag does not."""
    etag = str(headers.get("etag", ""))
    return etag if etag and not etag.startswith("W/") else str(headers.get("last-modified", ""))


def _reason_to_refuse(error: BaseException | None) -> str | None:
    """Say what is wrong with a certificate or an address, if that is behind *error*."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return str(error.verify_message).rstrip(".")
        if isinstance(error, httpx.InvalidURL):
            return "it is no https address of a host, without a user"
        error = error.__cause__ or error.__context__
    return None
