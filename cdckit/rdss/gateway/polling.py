"""What an application's own HTTP interface says of new and changed objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import httpx

from cdckit.rdss.gateway.backoff import retry_after
from cdckit.rdss.gateway.errors import ChannelUnreachable, NoChannel


@dataclass(frozen=True)
class Found:
    """
    An object as its application has it now: *modified* grows with every change, as a text that sorts.

    >>> Found("42", "2024-02-01T09:00:00Z", {"title": "Prices"}).content["title"]
    'Prices'
    """

    id: str
    modified: str
    content: Mapping[str, Any]


class Source(Protocol):
    """
    What an adaptor polls.

    >>> class Shelf:
    ...     name = "shelf"
    ...     def changed(self, since):
    ...         yield Found("42", "2024-02-01T09:00:00Z", {"title": "Prices"})
    >>> source: Source = Shelf()
    >>> [found.id for found in source.changed(None)]
    ['42']
    """

    name: str

    def changed(self, since: str | None) -> Iterator[Found]:
        """Every object whose `modified` is *since* or later, in any order; all of them without it."""


class HttpSource:
    """
    An interface that answers `GET <url>?since=<modified>` with pages, `{"items": [...], "next": <url>}`.

    Args:
        url: The address of the list; its origin is the only one that is asked.
        items: The member of a page that holds the objects.
        id: The member of an object that says which it is.
        modified: The member that says when it was changed last, in RFC 3339 and one zone.
        since: The parameter for the oldest time of interest.
        overlap: How much earlier to ask, for what became visible late; what is known is not sent again.
        client: With credentials, certificates or time-outs of its own.

    >>> source = HttpSource("http://127.0.0.1:1/objects")
    >>> list(source.changed(None))
    Traceback (most recent call last):
    ...
    cdckit.rdss.gateway.errors.ChannelUnreachable: The channel 'http://127.0.0.1:1/objects' cannot be ...
    """

    def __init__(
        self,
        url: str,
        *,
        items: str = "items",
        id: str = "id",
        modified: str = "modified",
        since: str = "since",
        overlap: timedelta = timedelta(0),
        client: httpx.Client | None = None,
    ) -> None:
        self.name = url
        self._url, self._items, self._id, self._modified = httpx.URL(url), items, id, modified
        self._since, self._overlap = since, overlap
        self._client = client or httpx.Client(timeout=30, trust_env=False)

    def changed(self, since: str | None) -> Iterator[Found]:
        """The objects of all pages; an answer that is no such list raises `NoChannel`."""
        asked = {} if since is None else {self._since: self._earlier(since)}
        url: httpx.URL | None = self._url.copy_merge_params(asked)
        while url is not None:
            page = self._page(url)
            for each in self._member(page, self._items, list):
                found_id, modified = (
                    str(self._member(each, name, (str, int))) for name in (self._id, self._modified)
                )
                yield Found(found_id, modified, each)
            url = self._following(page.get("next"), url)

    def _earlier(self, since: str) -> str:
        if not self._overlap:
            return since
        return (datetime.fromisoformat(since) - self._overlap).isoformat().replace("+00:00", "Z")

    def _page(self, url: httpx.URL) -> Mapping[str, Any]:
        try:
            answer = self._client.get(url)
            if answer.status_code == 429 or answer.status_code >= 500:
                because, said = f"the answer was {answer.status_code}", answer.headers.get("retry-after")
                raise ChannelUnreachable(self.name, because, retry_after(said))
            answer.raise_for_status()
            page = answer.json()
        except httpx.TransportError as error:
            raise ChannelUnreachable(self.name, str(error) or type(error).__name__) from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise NoChannel(self.name, str(error).splitlines()[0]) from error
        if not isinstance(page, Mapping):
            raise NoChannel(self.name, "a page is no JSON object")
        return page

    def _following(self, said: object, url: httpx.URL) -> httpx.URL | None:
        if said is None:
            return None
        following = url.join(str(said))
        # Credentials of the client are for this origin alone.
        if (following.scheme, following.netloc) != (self._url.scheme, self._url.netloc) or following == url:
            raise NoChannel(self.name, f"the next page is said to be {following}")
        return following

    def _member(self, value: object, name: str, kind: type | tuple[type, ...]) -> Any:
        found = value.get(name) if isinstance(value, Mapping) else None
        if not isinstance(found, kind):
            raise NoChannel(self.name, f"an answer lacks the member {name!r}")
        return found


Convert = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""An object as a body of the exchange; None for one that others are not to see: deleted, or confidential."""
