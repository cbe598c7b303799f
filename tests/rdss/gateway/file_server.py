"""An HTTPS server on loopback that serves files badly: it breaks off, redirects, lies, and never ends."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import trustme

HOST = "files.example"


class FileServer:
    """
    Answers each request of a path by the next of the functions that were told for it, the last one again.

    *asked* are the requests: path, and the Range, if any.
    """

    def __init__(self, authority: trustme.CA, host: str = HOST) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self.answers: dict[str, list[Callable[[Any], None]]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(host).configure_cert(context)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that go away
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def url(self, path: str, host: str = HOST) -> str:
        return f"https://{host}:{self._server.server_address[1]}{path}"

    def __enter__(self) -> FileServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(server: FileServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.asked.append((self.path, self.headers["Range"]))
            answers = server.answers[self.path]
            (answers.pop(0) if len(answers) > 1 else answers[0])(self)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def whole(content: bytes, *, etag: str = '"1"', breaks_after: int | None = None) -> Callable[[Any], None]:
    """
    The file, from where it is asked for if it is the same; it breaks off after so many bytes.

    With no *etag* nothing tells it from another, and it is given from wherever it is asked for.
    """

    def answer(request: Any) -> None:
        start = 0
        if request.headers["Range"] and request.headers["If-Range"] == (etag or None):
            start = int(request.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        if start >= len(content) > 0:
            return respond(request, 416, {"Content-Range": f"bytes */{len(content)}"})
        left = content[start:]
        said = {"Content-Length": str(len(left)), **({"ETag": etag} if etag else {})}
        if start:
            said["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        respond(request, 206 if start else 200, said, left[:breaks_after])
        request.close_connection = breaks_after is not None

    return answer


def piece(content: bytes, most: int, *, etag: str = '"1"') -> Callable[[Any], None]:
    """At most so many bytes from where it is asked for, whichever file is asked for."""

    def answer(request: Any) -> None:
        start = int(request.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        some = content[start : start + most]
        place = f"bytes {start}-{start + len(some) - 1}/{len(content)}"
        said = {"Content-Length": str(len(some)), "Content-Range": place, "ETag": etag}
        respond(request, 206, said, some)

    return answer


def unmeasured(content: bytes, *, etag: str = "", breaks_after: int | None = None) -> Callable[[Any], None]:
    """The file without its length: it ends where the connection does, which may break off."""

    def answer(request: Any) -> None:
        headers = {"Connection": "close", **({"ETag": etag} if etag else {})}
        respond(request, 200, headers, content[:breaks_after])
        request.close_connection = True

    return answer


def status(number: int, **headers: str) -> Callable[[Any], None]:
    """An answer without content."""
    said = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request: respond(request, number, {**said, "Content-Length": "0"})


def endless(request: Any) -> None:
    """A body without a length that goes on until nobody listens."""
    respond(request, 200, {"Transfer-Encoding": "chunked"})
    try:
        while True:
            request.wfile.write(b"10000\r\n" + bytes(65536) + b"\r\n")
    except OSError:
        request.close_connection = True


def dripping(request: Any) -> None:
    """A body that comes a byte at a time, so that no connection ever seems to be broken."""
    respond(request, 200, {"Content-Length": "1000"})
    try:
        for _ in range(1000):
            request.wfile.write(b"x")
            time.sleep(0.02)
    except OSError:
        request.close_connection = True


def respond(request: Any, number: int, headers: dict[str, str], content: bytes = b"") -> None:
    request.send_response(number)
    for name, value in headers.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(content)
