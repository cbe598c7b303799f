"""Files over HTTPS: resumed, checked, bounded, and never from where they must not come from."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from stat import S_ISDIR
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from file_server import FileServer, dripping, endless, piece, respond, status, unmeasured, whole

from cdckit.errors import InvalidArgument
from cdckit.rdss.gateway import (
    BACKOFF,
    Backoff,
    DownloadFailed,
    MessageContext,
    RefusedFile,
    SqliteRepository,
    WrongChecksum,
    download,
    downloads,
)
from cdckit.rdss.gateway.downloads import Address, is_public, resolve_host
from support.rdss_exchange import NOON, OTHERS, exchange, gateway, kept, put, uuid

CONTENT = bytes(range(256)) * 40
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server(authority: trustme.CA) -> Iterator[FileServer]:
    with FileServer(authority) as running:
        yield running


@pytest.fixture(scope="module")
def trust(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
def fetch(trust: ssl.SSLContext, server: FileServer, tmp_path: Path) -> Callable[..., Any]:
    """`download` as a test calls it: loopback is allowed, the authority is trusted, nothing waits."""
    server.asked.clear()

    def call(url: str, **told: Any) -> Any:
        usual = {
            "max_bytes": 100_000,
            "certificates": trust,
            "backoff": Backoff(retries=3),
            "timeout": 60,
            "allow": is_loopback,
            "resolve": lambda host, port: ["127.0.0.1"],
            "sleep": lambda seconds: None,
        }
        return download(url, tmp_path / "file", **{**usual, **told})

    return call


def is_loopback(address: Address) -> bool:
    return address.is_loopback


def url_digest(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()


def left(tmp_path: Path) -> set[str]:
    return {path.name for path in tmp_path.iterdir()}


def test_a_file_is_there_whole_with_its_checksums(
    fetch: Callable[..., Any], server: FileServer, tmp_path: Path
) -> None:
    server.answers["/a"] = [whole(CONTENT)]
    checksum = {"checksumUUID": "…", "checksumType": "md5", "checksumValue": MD5.upper()}
    done = fetch(server.url("/a"), checksums=[checksum])
    assert (done.path.read_bytes(), done.size, done.checksums) == (
        CONTENT,
        10240,
        {"md5": MD5, "sha256": SHA256},
    )
    assert left(tmp_path) == {"file"}


def test_a_file_and_its_name_are_on_the_disk_before_it_is_said_to_be_there(
    fetch: Callable[..., Any], server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[tuple[bool, set[str]]]()

    def fsync(opened: int) -> None:
        synced.append((S_ISDIR(os.fstat(opened).st_mode), left(tmp_path)))

    monkeypatch.setattr(os, "fsync", fsync)
    server.answers["/o"] = [whole(CONTENT)]
    fetch(server.url("/o"))
    assert synced == [(False, {"file.part", "file.part.version"}), (True, {"file"})]


def test_a_folder_that_its_file_system_cannot_sync_costs_no_file(
    fetch: Callable[..., Any], server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on some network mounts; what a disk says of itself is an error, also of a folder."""

    def refuse(code: int) -> Callable[[int], None]:
        def fsync(opened: int) -> None:
            if S_ISDIR(os.fstat(opened).st_mode):
                raise OSError(code, "no sync")

        return fsync

    server.answers["/f"] = [whole(CONTENT), whole(CONTENT)]
    monkeypatch.setattr(os, "fsync", refuse(errno.EINVAL))
    assert fetch(server.url("/f")).path.read_bytes() == CONTENT
    assert left(tmp_path) == {"file"}
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    with pytest.raises(OSError, match="no sync"):
        fetch(server.url("/f"))


def test_a_connection_that_breaks_is_resumed_where_it_broke(
    fetch: Callable[..., Any], server: FileServer
) -> None:
    slept = list[float]()
    server.answers["/b"] = [
        whole(CONTENT, breaks_after=4000),
        status(503),
        whole(CONTENT, breaks_after=1),
        whole(CONTENT),
    ]
    done = fetch(server.url("/b"), checksums={"sha256": SHA256}, sleep=slept.append)
    assert done.path.read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, "bytes=4000-", "bytes=4000-", "bytes=4001-"]
    assert slept == [0.2, 0.4, 0.8]


def test_a_server_without_versions_is_resumed_if_a_checksum_can_tell_whether_it_is_one_file(
    fetch: Callable[..., Any], server: FileServer
) -> None:
    server.answers["/v"] = [whole(CONTENT, etag="", breaks_after=4000), whole(CONTENT, etag="")]
    assert fetch(server.url("/v"), checksums={"sha256": SHA256}).path.read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, "bytes=4000-"]


def test_a_server_without_versions_is_not_resumed_without_a_checksum(
    fetch: Callable[..., Any], server: FileServer
) -> None:
    server.answers["/w"] = [whole(b"other" * 1000, etag="", breaks_after=4000), whole(CONTENT, etag="")]
    assert fetch(server.url("/w")).path.read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, None]


def test_pieces_of_two_files_are_fetched_anew_and_a_wrong_file_is_refused_once_it_is_one(
    fetch: Callable[..., Any], server: FileServer, tmp_path: Path
) -> None:
    other = whole(b"other" * 3000, etag="", breaks_after=4000)
    server.answers["/x"] = [other, whole(CONTENT, etag="")]
    assert fetch(server.url("/x"), checksums={"sha256": SHA256}).path.read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, "bytes=4000-", None]
    server.answers["/x"] = [other, whole(CONTENT, etag="")]
    with pytest.raises(WrongChecksum, match=f"sha256 is {SHA256}; the message says 00"):
        fetch(server.url("/x"), checksums={"sha256": "00"})
    assert left(tmp_path) == {"file"}
    server.answers["/x"] = [other]
    with pytest.raises(DownloadFailed, match="also in 3 retries"):
        fetch(server.url("/x"), checksums={"sha256": "00"})


def test_the_next_process_goes_on_with_what_came(
    fetch: Callable[..., Any], server: FileServer, tmp_path: Path
) -> None:
    server.answers["/c"] = [whole(CONTENT, breaks_after=5000), status(500)]
    with pytest.raises(DownloadFailed, match="the answer was 500, also in 3 retries"):
        fetch(server.url("/c"))
    assert left(tmp_path) == {"file.part", "file.part.version"}
    server.answers["/c"], server.asked = [whole(CONTENT)], []
    assert fetch(server.url("/c"), checksums={"md5": MD5}).size == 10240
    assert server.asked == [("/c", "bytes=5000-")]


def test_a_file_that_has_changed_meanwhile_comes_anew(fetch: Callable[..., Any], server: FileServer) -> None:
    other = b"other" * 1000
    server.answers["/d"] = [whole(CONTENT, breaks_after=6000), whole(other, etag='"2"')]
    assert fetch(server.url("/d")).path.read_bytes() == other


def test_an_answer_that_brings_less_than_the_rest_is_gone_on_with(
    fetch: Callable[..., Any], server: FileServer
) -> None:
    """A server may give a shorter range than it was asked for (RFC 9110, 15.3.7)."""
    server.answers["/s"] = [whole(CONTENT, breaks_after=4000), piece(CONTENT, 1000), piece(CONTENT, 9999)]
    assert fetch(server.url("/s")).path.read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, "bytes=4000-", "bytes=5000-"]


def test_the_rest_of_another_version_is_not_joined(fetch: Callable[..., Any], server: FileServer) -> None:
    """Some servers know ranges, and not the condition under which one was asked for."""
    other = b"other" * 3000
    changed = [piece(other, 99_999, etag='"2"'), whole(other, etag='"2"')]
    server.answers["/t"] = [whole(CONTENT, breaks_after=4000), *changed]
    assert fetch(server.url("/t")).path.read_bytes() == other


def test_the_beginning_of_what_another_address_gave_is_not_gone_on_with(
    fetch: Callable[..., Any], server: FileServer
) -> None:
    """Two files of one target and one ETag, which tells versions of one address apart and nothing else."""
    other = b"other" * 3000
    server.answers |= {"/one": [whole(CONTENT, breaks_after=4000)], "/two": [whole(other)]}
    with pytest.raises(DownloadFailed):
        fetch(server.url("/one"), backoff=Backoff(retries=0))
    assert fetch(server.url("/two")).path.read_bytes() == other
    assert server.asked == [("/one", None), ("/two", None)]


def test_an_answer_without_a_length_is_whole_if_the_message_says_so(
    fetch: Callable[..., Any], server: FileServer, tmp_path: Path
) -> None:
    """Its end may be that of the connection (RFC 9112, 8): what says nothing of the file leaves that open."""
    cut = unmeasured(CONTENT, etag='"1"', breaks_after=4000)
    server.answers["/y"] = [cut, piece(CONTENT, 99_999)]
    assert fetch(server.url("/y"), size=10240).path.read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, "bytes=4000-"]
    server.answers["/y"] = [cut, unmeasured(CONTENT)]
    assert fetch(server.url("/y"), checksums={"md5": MD5}).path.read_bytes() == CONTENT
    server.answers["/y"] = [unmeasured(CONTENT)]
    with pytest.raises(RefusedFile, match="the answer has no length: give the size or a checksum"):
        fetch(server.url("/y"))


def test_a_size_is_a_whole_number_however_json_has_it(fetch: Callable[..., Any], server: FileServer) -> None:
    server.answers["/w"] = [whole(CONTENT)]
    assert fetch(server.url("/w"), size=10240.0).size == 10240
    for size in (10240.5, float("nan"), True, "10240", -1):
        with pytest.raises(InvalidArgument, match="size to be a whole number of bytes"):
            fetch(server.url("/w"), size=size)


@pytest.mark.parametrize("size", [10239, 10241])
def test_a_file_of_another_size_than_the_message_says_is_not_kept(
    fetch: Callable[..., Any], server: FileServer, tmp_path: Path, size: int
) -> None:
    server.answers["/z"] = [whole(CONTENT)]
    with pytest.raises(WrongChecksum, match=f"APPERRMET004.*The size is 10240; the message says {size}"):
        fetch(server.url("/z"), size=size)
    assert left(tmp_path) == set()


def test_what_was_whole_before_the_process_died_is_not_fetched_again(
    fetch: Callable[..., Any], server: FileServer, tmp_path: Path
) -> None:
    server.answers["/e"] = [whole(CONTENT)]
    (tmp_path / "file.part").write_bytes(CONTENT)
    (tmp_path / "file.part.version").write_text(f'{url_digest(server.url("/e"))}\n"1"')
    assert fetch(server.url("/e"), checksums={"sha256": SHA256}).size == 10240


@pytest.mark.parametrize("note", ["", '"of another file"', None])
def test_a_part_that_nobody_knows_the_version_of_is_begun_anew(
    fetch: Callable[..., Any], server: FileServer, tmp_path: Path, note: str | None
) -> None:
    server.answers["/f"] = [whole(CONTENT)]
    (tmp_path / "file.part").write_bytes(b"of another file")
    if note is not None:
        (tmp_path / "file.part.version").write_text(note)
    assert fetch(server.url("/f"), checksums={"sha256": SHA256}).size == 10240


def test_another_file_than_the_message_describes_is_not_kept(
    fetch: Callable[..., Any], server: FileServer, tmp_path: Path
) -> None:
    server.answers["/g"] = [whole(CONTENT)]
    with pytest.raises(WrongChecksum, match=f"APPERRMET004.*sha256 is {SHA256}; the message says 00"):
        fetch(server.url("/g"), checksums={"md5": MD5, "sha256": "00"})
    assert left(tmp_path) == set()
    with pytest.raises(InvalidArgument, match="of md5 or sha256"):
        fetch(server.url("/g"), checksums={"crc32": "0"})


@pytest.mark.parametrize("values", [("0" * 32, MD5), (MD5, "0" * 32)])
def test_all_checksums_of_a_message_are_checked_also_two_of_one_type(
    fetch: Callable[..., Any], server: FileServer, tmp_path: Path, values: tuple[str, str]
) -> None:
    server.answers["/two"] = [whole(CONTENT)]
    listed = [{"checksumType": "md5", "checksumValue": value} for value in (*values, MD5.upper())]
    with pytest.raises(WrongChecksum, match=f"The md5 is {MD5}; the message says 0{{32}}"):
        fetch(server.url("/two"), checksums=listed)
    assert left(tmp_path) == set()
    assert fetch(server.url("/two"), checksums=[listed[2], listed[2]]).size == 10240


@pytest.mark.parametrize("answer", [endless, whole(bytes(200_000))])
def test_a_file_that_is_too_large_fills_no_disk(
    fetch: Callable[..., Any], server: FileServer, tmp_path: Path, answer: Callable[[Any], None]
) -> None:
    server.answers["/h"] = [answer]
    with pytest.raises(RefusedFile, match="are allowed"):
        fetch(server.url("/h"))
    assert left(tmp_path) == set()
    assert len(server.asked) == 1


def test_a_server_that_only_keeps_one_waiting_is_left(
    fetch: Callable[..., Any], server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A second later at each look: of a machine's own clock it would hang how busy others keep it.
    clock = SimpleNamespace(monotonic=map(float, count()).__next__)
    monkeypatch.setattr(downloads, "time", clock)
    server.answers["/n"] = [dripping]
    with pytest.raises(DownloadFailed, match="less than 1024 bytes came in a second, also in 1 retries"):
        fetch(server.url("/n"), backoff=Backoff(retries=1))


def test_much_that_came_slowly_is_progress_too(
    fetch: Callable[..., Any], server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retries are counted anew after it, however the connection ended."""
    monkeypatch.setattr(downloads, "time", SimpleNamespace(monotonic=map(float, count()).__next__))
    monkeypatch.setattr(downloads, "_PROGRESS", 60)
    server.answers["/slow"] = [dripping, whole(b"x" * 1000)]
    assert fetch(server.url("/slow"), backoff=Backoff(retries=0)).size == 1000


def test_what_a_redirection_brings_is_not_read(fetch: Callable[..., Any], server: FileServer) -> None:
    """It would be read whole, and unpacked, before the limit of the file counts: this one breaks off."""

    def broken(request: Any) -> None:
        respond(request, 302, {"Location": "/end", "Content-Length": "1000"}, b"moved")
        request.close_connection = True

    server.answers |= {"/u": [broken], "/end": [whole(CONTENT)]}
    assert fetch(server.url("/u"), backoff=Backoff(retries=0)).size == 10240


def test_redirections_are_followed_but_not_in_a_circle_nor_out_of_https(
    fetch: Callable[..., Any], server: FileServer
) -> None:
    server.answers["/i"] = [status(302, Location="/there/"), whole(b"")]
    server.answers["/there/"] = [status(307, Location="../end")]
    server.answers["/end"] = [whole(CONTENT)]
    assert fetch(server.url("/i")).size == 10240
    server.answers["/circle"] = [status(301, Location="/circle")]
    with pytest.raises(RefusedFile, match="redirects more than 5 times"):
        fetch(server.url("/circle"))
    server.answers["/out"] = [status(302, Location="http://files.example/")]
    with pytest.raises(RefusedFile, match=r"http://files\.example/ is refused: it is no https address"):
        fetch(server.url("/out"))


@pytest.mark.parametrize(
    "url",
    [
        "http://files.example/a",
        "file:///etc/passwd",
        "https://me:pw@files.example/",
        "https:///",
        "https://[/",
    ],
)
def test_only_https_addresses_are_asked(fetch: Callable[..., Any], server: FileServer, url: str) -> None:
    with pytest.raises(RefusedFile) as raised:
        fetch(url)
    assert "pw" not in str(raised.value)
    assert server.asked == []


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "[::1]", "2130706433", "0x7f.1", "0.0.0.0"),
        *("169.254.169.254", "10.0.0.1", "[::ffff:192.168.0.1]", "[fe80::1]"),
    ],
)
def test_an_address_in_whatever_form_that_leads_here_is_refused(fetch: Callable[..., Any], host: str) -> None:
    with pytest.raises(RefusedFile, match="which is no public address"):
        fetch(f"https://{host}/", allow=is_public, resolve=resolve_host)


def test_what_was_checked_is_what_is_connected_to(fetch: Callable[..., Any], server: FileServer) -> None:
    """A name that leads to a public address when it is asked first, and here when it is asked again."""
    answers = [["127.0.0.1"], ["192.168.0.1"]]
    server.answers["/j"] = [whole(CONTENT, breaks_after=10), whole(CONTENT)]
    with pytest.raises(RefusedFile, match=r"'files.example' leads to 192.168.0.1"):
        fetch(server.url("/j"), resolve=lambda host, port: answers.pop(0))
    with pytest.raises(RefusedFile, match=r"leads to 10.0.0.1"):
        fetch(server.url("/j"), resolve=lambda host, port: ["127.0.0.1", "10.0.0.1"])


def test_no_name_is_looked_up_but_by_the_resolver(
    fetch: Callable[..., Any], server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is to the address, so that nobody asks for the name a second time."""
    asked, look_up = list[Any](), socket.getaddrinfo

    def noted(host: Any, *told: Any, **named: Any) -> Any:
        asked.append(host)
        return look_up(host, *told, **named)

    monkeypatch.setattr(socket, "getaddrinfo", noted)
    server.answers["/k"] = [whole(CONTENT)]
    fetch(server.url("/k"))
    assert set(asked) == {"127.0.0.1"}


def test_a_certificate_of_another_host_or_of_nobody_known_is_refused(
    fetch: Callable[..., Any], server: FileServer, authority: trustme.CA
) -> None:
    with FileServer(authority, host="other.example") as other:
        other.answers["/"] = [whole(CONTENT)]
        with pytest.raises(RefusedFile, match="Hostname mismatch"):
            fetch(other.url("/"))
        assert other.asked == []
    with pytest.raises(RefusedFile, match=r"unable to get local issuer certificate|self.signed"):
        fetch(server.url("/a"), certificates=ssl.create_default_context())


def test_each_host_shows_its_certificate_also_where_two_have_one_address(
    fetch: Callable[..., Any], server: FileServer
) -> None:
    """The connection that is open is of another host, whose certificate says nothing of this one."""
    server.answers["/moved"] = [status(302, Location=server.url("/elsewhere", host="other.example"))]
    server.answers["/elsewhere"] = [whole(CONTENT)]
    with pytest.raises(
        RefusedFile, match=r"https://other\.example:\d+/elsewhere is refused: Hostname mismatch"
    ):
        fetch(server.url("/moved"))
    assert [path for path, _ in server.asked] == ["/moved"]


def test_a_context_that_verifies_nothing_is_refused(fetch: Callable[..., Any], server: FileServer) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    with pytest.raises(InvalidArgument, match="a context that verifies hosts"):
        fetch(server.url("/a"), certificates=context)


def test_a_server_that_asks_for_time_gets_it_up_to_the_longest_delay(
    fetch: Callable[..., Any], server: FileServer
) -> None:
    """The delays alone would be 0.2 s, 0.4 s and 0.8 s."""
    busy = [status(503, Retry_After=said) for said in ("7", "0", "86400")]
    server.answers["/busy"] = [*busy, whole(b"abc")]
    slept = list[float]()
    fetch(server.url("/busy"), backoff=Backoff(retries=3, longest=60), sleep=slept.append)
    assert slept == [7, 0.4, 60]


def test_a_file_that_is_not_there_is_not_asked_for_again(
    fetch: Callable[..., Any], server: FileServer
) -> None:
    server.answers["/l"] = [status(404)]
    with pytest.raises(DownloadFailed, match="the answer was 404"):
        fetch(server.url("/l"))
    assert len(server.asked) == 1


def test_retries_are_counted_anew_after_each_mebibyte(fetch: Callable[..., Any], server: FileServer) -> None:
    large = bytes(6 << 20)
    server.answers["/m"] = [*[whole(large, breaks_after=(1 << 20) + 1)] * 5, whole(large)]
    assert fetch(server.url("/m"), max_bytes=10 << 20).size == 6 << 20


def test_retries_are_counted_anew_only_for_what_had_not_come_before(
    fetch: Callable[..., Any], server: FileServer
) -> None:
    """A server that gives the file from its beginning each time, now 3 MiB of it and now 1 MiB."""
    large, mebibyte = bytes(6 << 20), 1 << 20
    short, long = (whole(large, etag="", breaks_after=size * mebibyte) for size in (1, 3))
    server.answers["/again"] = [long, *[short, long] * 20, whole(large, etag="")]
    with pytest.raises(DownloadFailed, match="also in 3 retries"):
        fetch(server.url("/again"), max_bytes=10 << 20)
    # The first 3 MiB renew the tries, of which there are four.
    assert len(server.asked) == 5


Handle = Callable[..., tuple[list[int], list[tuple[str, str]], list[float]]]


@pytest.fixture
def handle(fetch: Callable[..., Any]) -> Handle:
    """
    Messages of these numbers, of which a handler fetches the files *urls*; all of one object but the second.

    Which were handed over, in this order; what the error queue has, and the seconds that were slept.
    """

    def call(urls: dict[int, str], count: int, **named: Any) -> Any:
        channels, calls, slept = exchange(), list[int](), list[float]()

        def handler(turn: MessageContext) -> None:
            number = next(each for each in range(count + 1) if uuid(each) == turn.message.message_id)
            calls.append(number)
            if number in urls:
                fetch(urls[number], backoff=BACKOFF, sleep=slept.append)

        with SqliteRepository(":memory:") as repository:
            receiver = gateway(repository, channels, backoff=BACKOFF, sleep=slept.append, **named)
            for number in range(1, count + 1):
                body = {"objectUUID": uuid(500 + (number == 2))}
                put(channels, OTHERS.message("MetadataDelete", body, message_id=uuid(number), now=NOON))
            receiver.receive()
            assert receiver.process(handler) == count
            assert repository.next_waiting() == []
        failed = [each["messageHeader"] for each in kept(channels.error)]
        return calls, [(each["errorCode"], each["errorDescription"]) for each in failed], slept

    return call


@pytest.mark.parametrize("number", [403, 404, 410])
def test_a_handler_is_not_called_again_for_a_file_that_is_not_there(
    handle: Handle, server: FileServer, number: int
) -> None:
    server.answers["/o"] = [status(number)]
    calls, [(code, description)], slept = handle({1: server.url("/o")}, 1)
    assert (calls, code, slept, len(server.asked)) == ([1], "GENERR006", [], 1)
    assert f"the answer was {number}" in description


def test_a_file_that_does_not_come_has_one_budget_and_lets_messages_about_others_by(
    handle: Handle, server: FileServer
) -> None:
    """The third is about the object of the first, so it stays behind that; ten retries are those of one."""
    server.answers["/p"] = [status(503)]
    calls, [(code, description)], slept = handle({1: server.url("/p")}, 3)
    assert calls == [1, 2, *[1] * 10, 3]
    assert (code, len(server.asked)) == ("GENERR006", 11)
    assert "the answer was 503" in description
    assert slept == BACKOFF.delays()


def test_a_file_that_comes_late_is_gone_on_with_by_the_next_handover(
    handle: Handle, server: FileServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers["/q"] = [whole(CONTENT, breaks_after=4000), status(503), whole(CONTENT)]
    assert handle({1: server.url("/q")}, 2) == ([1, 2, 1, 1], [], [0.2, 0.4])
    assert [asked for _, asked in server.asked] == [None, "bytes=4000-", "bytes=4000-"]
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert caplog.text.count(f"GENERR006 the message {uuid(1)} is handed over again: ") == 2


def test_a_file_at_an_address_that_is_refused_is_no_mistake_of_the_handler(handle: Handle) -> None:
    calls, [(code, description)], slept = handle({1: "http://files.example/a"}, 1)
    assert (calls, code, slept) == ([1], "GENERR006", [])
    assert "RefusedFile: http://files.example/a is refused" in description


def test_a_server_that_asks_a_handler_for_more_time_than_there_is_gets_what_there_is(
    handle: Handle, server: FileServer
) -> None:
    server.answers["/r"] = [status(503, Retry_After="5"), status(503, Retry_After="86400")]
    calls, failed, slept = handle({1: server.url("/r")}, 1)
    assert (calls, len(failed)) == ([1] * 3, 1)
    assert slept == pytest.approx([5, sum(BACKOFF.delays()) - 5])


def test_what_stays_behind_a_postponed_message_goes_in_its_order(handle: Handle, server: FileServer) -> None:
    server.answers["/s"] = [status(503), whole(CONTENT)]
    assert handle({1: server.url("/s")}, 5)[0] == [1, 2, 1, 3, 4, 5]
    server.answers["/s"] = [status(503), status(503), whole(CONTENT)]
    assert handle({2: server.url("/s"), 4: server.url("/s")}, 5)[0] == [1, 2, 3, 4, 2, 4, 5]
