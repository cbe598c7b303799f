"""The channel adaptor: what an application changes is told once, in the right words, also after a crash."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cdckit.rdss.gateway import (
    Backoff,
    ChannelAdaptor,
    Channels,
    ChannelUnreachable,
    HttpSource,
    MemoryChannel,
    NoChannel,
    PollResult,
    SendFailed,
    SqliteRepository,
)
from support.rdss_exchange import NOON, OBJECT, exchange, gateway, kept, uuid
from support.rdss_messages import MESSAGES


class Application:
    """Objects by id, listed by pages of two over HTTP; *fails* answers from now on are no answers."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.slept: list[float] = []
        self.asked: list[str] = []
        self.fails, self.next, self.after = 0, "", ""
        application = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, page = application.answer(self.path)
                self.send_response(status)
                if application.after:
                    self.send_header("Retry-After", application.after)
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/objects"

    def change(self, name: int, minute: int, **content: Any) -> None:
        modified = f"2024-02-01T09:{minute:02}:00Z"
        self.objects[str(name)] = {"id": name, "modified": modified, **content}

    def answer(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        if self.fails:
            self.fails -= 1
            return 503, b""
        asked = parse_qs(urlsplit(path).query)
        since, place = asked.get("since", [""])[0], int(asked.get("place", ["0"])[0])
        # The newest first, as many applications list.
        listed = sorted(self.objects.values(), key=lambda each: each["modified"], reverse=True)
        listed = [each for each in listed if each["modified"] >= since]
        following = self.next or f"?since={since}&place={place + 2}"
        page = {"items": listed[place : place + 2], "next": following if len(listed) > place + 2 else None}
        return 200, json.dumps(page).encode()

    def __enter__(self) -> Application:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def application() -> Iterator[Application]:
    with Application() as running:
        yield running


def convert(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if content.get("confidential") or content.get("deleted"):
        return None
    return {**OBJECT, "objectUUID": uuid(content["id"]), "objectTitle": content["title"]}


def adaptor(
    repository: SqliteRepository, channels: Channels, application: Application, **told: Any
) -> ChannelAdaptor:
    source = HttpSource(application.url, **told)
    return ChannelAdaptor(
        gateway(repository, channels),
        source,
        convert,
        backoff=Backoff(retries=2),
        sleep=application.slept.append,
    )


def told(channels: Channels) -> list[tuple[str, str, str | None]]:
    """Of each message that was sent: its type, object, and title."""
    sent = kept(channels.output)
    return [
        (
            each["messageHeader"]["messageType"],
            each["messageBody"]["objectUUID"],
            each["messageBody"].get("objectTitle"),
        )
        for each in sent
    ]


def test_new_changed_and_hidden_objects_are_told_in_their_own_words(application: Application) -> None:
    channels = exchange()
    application.change(1, 1, title="one")
    application.change(2, 2, title="two", confidential=True)
    application.change(3, 3, title="three")
    with SqliteRepository(":memory:") as repository:
        polling = adaptor(repository, channels, application)
        assert polling.poll() == PollResult(sent=2, known=1)
        application.change(1, 5, title="one, mended")
        application.change(2, 6, title="two")
        application.change(3, 7, title="three", deleted=True)
        assert polling.poll() == PollResult(sent=3, known=0)
        assert polling.poll() == PollResult(sent=0, known=1)
        application.change(3, 8, title="three")
        assert polling.poll().sent == 1
    assert told(channels) == [
        ("MetadataCreate", uuid(3), "three"),
        ("MetadataCreate", uuid(1), "one"),
        ("MetadataDelete", uuid(3), None),
        ("MetadataCreate", uuid(2), "two"),
        ("MetadataUpdate", uuid(1), "one, mended"),
        ("MetadataCreate", uuid(3), "three"),
    ]


def test_a_new_version_is_linked_to_the_one_before_and_all_end_when_it_is_hidden(
    application: Application,
) -> None:
    """Each version has an objectUUID of its own; also a round that dies between two deletes ends all."""
    channels = exchange()

    def versions(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
        found = convert(content)
        return None if found is None else {**found, "objectUUID": uuid(100 + content["version"])}

    class Dies(MemoryChannel):
        left = 99

        def send(self, value: bytes, *, key: str) -> None:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
            super().send(value, key=key)

    channels = exchange(output=Dies("output"))
    with SqliteRepository(":memory:") as repository:
        source = HttpSource(application.url)
        polling = ChannelAdaptor(gateway(repository, channels), source, versions)
        for minute, version in enumerate((1, 1, 2, 3)):
            application.change(1, minute, title=f"title {minute}", version=version)
            assert polling.poll().sent == 1
        sent = kept(channels.output)
        links = [each["messageBody"].get("objectRelatedIdentifier") for each in sent]
        assert links[:2] == [None, None]
        for link, before in zip(links[2:], (101, 102), strict=True):
            [related] = link
            assert related["relationType"] == "isNewVersionOf"
            assert related["identifier"] == {"identifierValue": uuid(before), "identifierType": "UUID"}
        application.change(1, 9, title="title", version=3, deleted=True)
        channels.output.left = 2  # type: ignore[attr-defined]
        with pytest.raises(KeyboardInterrupt):
            polling.poll()
        assert polling.poll().sent == 1
        assert told(channels) == [("MetadataDelete", uuid(number), None) for number in (101, 102, 103)]
        application.change(1, 10, title="title", version=4)
        polling.poll()
        assert told(channels) == [("MetadataCreate", uuid(104), "title")]


def test_it_asks_from_where_it_was_and_misses_none_of_the_same_instant(application: Application) -> None:
    channels = exchange()
    application.change(1, 1, title="one")
    with SqliteRepository(":memory:") as repository:
        adaptor(repository, channels, application).poll()
        application.change(2, 1, title="two, in the same minute")
        assert adaptor(repository, channels, application).poll() == PollResult(sent=1, known=1)
        assert application.asked == ["/objects", "/objects?since=2024-02-01T09%3A01%3A00Z"]
        adaptor(repository, channels, application, overlap=timedelta(minutes=10)).poll()
        assert application.asked[-1] == "/objects?since=2024-02-01T08%3A51%3A00Z"


def test_an_object_dated_in_the_future_hides_no_change_of_others(application: Application) -> None:
    """It is noon on 1 February 2024; the object of 2099 is asked for in every round."""
    application.change(1, 1, title="one")
    application.objects["2"] = {"id": 2, "modified": "2099-01-01T00:00:00Z", "title": "two"}
    channels = exchange()
    with SqliteRepository(":memory:") as repository:
        polling = adaptor(repository, channels, application)
        assert polling.poll() == PollResult(sent=2, known=0)
        application.change(3, 2, title="three")
        assert polling.poll() == PollResult(sent=1, known=2)


def test_a_change_that_is_undone_is_told_too(application: Application) -> None:
    channels = exchange()
    with SqliteRepository(":memory:") as repository:
        for minute, title in enumerate(["one", "other", "one", "other"]):
            application.change(1, minute, title=title)
            assert adaptor(repository, channels, application).poll().sent == 1
    assert [title for _, _, title in told(channels)] == ["one", "other", "one", "other"]


def test_a_round_that_is_cut_short_is_done_again_and_sends_each_change_once(application: Application) -> None:
    """The process dies after each of its commits in turn."""
    channels = exchange()
    for number in range(1, 6):
        application.change(number, number, title=f"number {number}")

    class Dies(SqliteRepository):
        commits = 0

        def keep_positions(self, stream: str, positions: Mapping[str, str]) -> None:
            self.commits -= 1
            if self.commits < 0:
                raise KeyboardInterrupt
            super().keep_positions(stream, positions)

    with Dies(":memory:") as repository:
        for commits in (0, 1, 1, 3):
            repository.commits = commits
            with pytest.raises(KeyboardInterrupt):
                adaptor(repository, channels, application).poll()
        repository.commits = 99
        assert adaptor(repository, channels, application).poll() == PollResult(sent=3, known=2)
    assert len(told(channels)) == 5


def test_what_a_round_that_failed_has_begun_is_finished_before_the_object_is_looked_at_again(
    application: Application,
) -> None:
    """What is to be sent will be sent: so the object that is hidden meanwhile is deleted, not forgotten."""

    class Down(MemoryChannel):
        is_down = True

        def send(self, value: bytes, *, key: str) -> None:
            if self.is_down:
                raise ChannelUnreachable(self.name, "down")
            super().send(value, key=key)

    channels = exchange(output=Down("output"))
    application.change(1, 1, title="one")
    with SqliteRepository(":memory:") as repository:
        polling = adaptor(repository, channels, application)
        with pytest.raises(SendFailed):
            polling.poll()
        application.change(1, 2, title="one", confidential=True)
        with pytest.raises(SendFailed):
            polling.poll()
        channels.output.is_down = False  # type: ignore[attr-defined]
        assert polling.poll() == PollResult(sent=1, known=0)
        assert told(channels) == [("MetadataCreate", uuid(1), "one"), ("MetadataDelete", uuid(1), None)]
        assert polling.poll() == PollResult(sent=0, known=1)


def test_an_object_that_others_would_refuse_is_left_out_and_tried_when_it_changes(
    application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    channels = exchange()
    application.change(1, 1, title="")
    application.change(2, 2)
    application.change(3, 3, title="three")
    with SqliteRepository(":memory:") as repository:
        polling = adaptor(repository, channels, application)
        assert polling.poll() == PollResult(sent=1, known=0, unfit=("2", "1"))
        assert "GENERR009 the object 2 is not sent: KeyError: 'title'" in caplog.text
        assert "GENERR001 the object 1 is not sent: " in caplog.text
        application.change(1, 4, title="one")
        assert polling.poll().sent == 1


FILE = MESSAGES["create"]["messageBody"]["objectFile"][0]
CHECKSUM = {**FILE["fileChecksum"][0], "checksumValue": "?"}
UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "an instant": ({"objectTitle": NOON}, "GENERR007"),
    "NaN": ({"objectTitle": float("nan")}, "GENERR007"),
    "half a character": ({"objectTitle": "\ud83d"}, "GENERR007"),
    "a number for a UUID": ({"objectUUID": 7}, "GENERR010"),
    "a text for a UUID": ({"objectUUID": "x,y z"}, "GENERR010"),
    "a checksum that is none": ({"objectFile": [{**FILE, "fileChecksum": [CHECKSUM]}]}, "APPERRMET004"),
    "a text for a relation": ({"objectUUID": uuid(7), "objectRelatedIdentifier": ["x"]}, "GENERR001"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_an_object_that_nobody_could_send_holds_up_no_other_and_goes_when_it_is_corrected(
    application: Application, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """It is an update here, of an object that was sent, and is the first that is listed."""
    changes, code = UNFIT[name]

    def convert_badly(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return {**(convert(content) or {}), **(changes if content.get("bad") else {})}

    channels = exchange()
    with SqliteRepository(":memory:") as repository:
        polling = ChannelAdaptor(gateway(repository, channels), HttpSource(application.url), convert_badly)
        application.change(1, 1, title="one")
        assert polling.poll().sent == 1
        application.change(1, 3, title="one", bad=True)
        application.change(2, 2, title="two")
        assert polling.poll() == PollResult(sent=1, known=0, unfit=("1",))
        assert f"{code} the object 1 is not sent: " in caplog.text
        application.change(1, 4, title="one, mended")
        assert polling.poll() == PollResult(sent=1, known=0)
    assert [title for _, _, title in told(channels)] == ["one", "two", "one, mended"]


def test_what_was_begun_by_other_rules_and_is_unfit_now_leaves_room_for_the_object_as_it_is(
    application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    channels = exchange()
    application.change(1, 1, title="one")
    begun = {"state": "", "messages": [["MetadataCreate", {"objectUUID": "x"}, uuid(50)]]}
    with SqliteRepository(":memory:") as repository:
        repository.keep_positions("adaptor adaptor", {"step 1": json.dumps(begun)})
        assert adaptor(repository, channels, application).poll() == PollResult(sent=1, known=0)
    assert "GENERR010 what was begun of the object 1 is not sent: " in caplog.text
    assert told(channels) == [("MetadataCreate", uuid(1), "one")]


def test_a_version_that_links_itself_as_a_urn_gets_no_second_link(application: Application) -> None:
    before = {"identifierType": "UUID", "identifierValue": f"urn:uuid:{uuid(101).upper()}"}
    link = {"relationType": "isNewVersionOf", "identifier": before}

    def versions(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
        links = {"objectRelatedIdentifier": (link,)} if content["version"] == 2 else {}
        return {**(convert(content) or {}), "objectUUID": uuid(100 + content["version"]), **links}

    channels = exchange()
    with SqliteRepository(":memory:") as repository:
        polling = ChannelAdaptor(gateway(repository, channels), HttpSource(application.url), versions)
        for version in (1, 2):
            application.change(1, version, title="title", version=version)
            assert polling.poll().sent == 1
    assert kept(channels.output)[1]["messageBody"]["objectRelatedIdentifier"] == [link]


def test_a_queue_that_refuses_the_sender_is_no_fault_of_the_object(application: Application) -> None:
    """The round fails, and the next one sends what it did not."""

    class Refusing(MemoryChannel):
        refuses = True

        def send(self, value: bytes, *, key: str) -> None:
            if self.refuses:
                raise NoChannel(self.name, "access refused")
            super().send(value, key=key)

    application.change(1, 1, title="one")
    channels = exchange(output=Refusing("output"))
    with SqliteRepository(":memory:") as repository:
        with pytest.raises(NoChannel, match="'output' cannot be used: access refused"):
            adaptor(repository, channels, application).poll()
        channels.output.refuses = False  # type: ignore[attr-defined]
        gateway(repository, channels).resume()
        assert adaptor(repository, channels, application).poll() == PollResult(sent=1, known=0)
    assert told(channels) == [("MetadataCreate", uuid(1), "one")]


def test_an_application_that_does_not_answer_is_asked_again(application: Application) -> None:
    application.change(1, 1, title="one")
    with SqliteRepository(":memory:") as repository:
        polling = adaptor(repository, exchange(), application)
        application.fails = 2
        assert polling.poll().sent == 1
        assert application.slept == [0.2, 0.4]
        application.fails, application.after = 1, "30"
        polling.poll()
        assert application.slept == [0.2, 0.4, 30]
        application.fails = 3
        with pytest.raises(ChannelUnreachable, match="the answer was 503"):
            polling.poll()


@pytest.mark.parametrize(
    ("following", "said"),
    [
        ("http://127.0.0.1:1/elsewhere", "the next page is said to be http://127.0.0.1:1"),
        ("/objects", "next page"),
    ],
)
def test_a_next_page_elsewhere_or_in_a_circle_is_not_asked(
    application: Application, following: str, said: str
) -> None:
    for number in range(3):
        application.change(number, number, title="title")
    application.next = following
    with SqliteRepository(":memory:") as repository, pytest.raises(NoChannel, match=said):
        adaptor(repository, exchange(), application).poll()


def test_pages_that_name_each_other_as_the_next_end(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {"/objects": "/objects?more", "/objects?more": "/objects"}

    def answer(path: str) -> tuple[int, bytes]:
        return 200, json.dumps({"items": [], "next": pages.pop(path)}).encode()

    monkeypatch.setattr(application, "answer", answer)
    with SqliteRepository(":memory:") as repository, pytest.raises(NoChannel, match="next page"):
        adaptor(repository, exchange(), application).poll()


@pytest.mark.parametrize("page", [b"[]", b"{}", b"no JSON", b'{"items": [1]}', b'{"items": [{"id": 1}]}'])
def test_an_answer_that_is_no_list_of_objects_is_said_to_be_none(
    application: Application, monkeypatch: pytest.MonkeyPatch, page: bytes
) -> None:
    monkeypatch.setattr(application, "answer", lambda path: (200, page))
    with (
        SqliteRepository(":memory:") as repository,
        pytest.raises(NoChannel, match="objects' cannot be used"),
    ):
        adaptor(repository, exchange(), application).poll()
