"""A window in a browser: a page with the live picture, and keys for a program that takes them (A-77).

    graph --> BrowserSink --> /stream (Motion JPEG) --> page
    program <-- on_key <----- /key <----- arrow keys, buttons

It listens on loopback unless told otherwise, and answers only browsers that call it by the name of this host: a page of another site
can neither see the pictures nor press keys.
"""

from __future__ import annotations

import json
import mimetypes
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import cv2

from .graph import Module
from .payload import Frame, Payload
from .web import is_own_name, resource

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds after which a browser that takes nothing is left.
SILENCE = 10.0
#: The keys that a page has, by the names that programs are given.
KEYS = ("left", "right", "up", "down")
_POLICY = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"


class BrowserSink(Module):
    """Pictures for a browser: an address with a page that shows them. A slow browser gets fewer, not older ones."""

    inputs = {"in": Frame}
    #: Requests served at once, of which a browser that watches is one.
    WATCHERS = 16

    def __init__(self, port: int = 0, *, host: str = "127.0.0.1", quality: int = 80) -> None:
        super().__init__()
        self.host, self.port, self.quality = host, port, quality
        #: What the page is called.
        self.title = ""
        #: Called with one of :data:`KEYS` in a thread of the server; without it the page has no keys.
        self.on_key: Callable[[str], None] | None = None
        #: A line below the picture, asked for after each key and now and then.
        self.words: Callable[[], str] = str
        self._fresh = threading.Condition()
        self._picture: bytes | memoryview = b""
        self._number = 0
        self._server: ThreadingHTTPServer | None = None
        self._places = threading.BoundedSemaphore(self.WATCHERS)

    def begin(self) -> None:
        sink = self

        class Answer(BaseHTTPRequestHandler):
            timeout = SILENCE

            def do_GET(self) -> None:
                sink._serve(self, "GET")

            def do_POST(self) -> None:
                sink._serve(self, "POST")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer((self.host, self.port), Answer)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        serve = partial(self._server.serve_forever, poll_interval=0.05)
        threading.Thread(target=serve, daemon=True, name=self.name).start()

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame)
        _, data = cv2.imencode(".jpg", payload.image, [cv2.IMWRITE_JPEG_QUALITY, self.quality])
        with self._fresh:
            self._picture, self._number = data.data, self._number + 1
            self._fresh.notify_all()
        self.graph.arrived(self, payload)

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    # What threads of the server do.

    def _serve(self, answer: BaseHTTPRequestHandler, method: str) -> None:
        if not self._places.acquire(blocking=False):
            answer.send_error(503, "too many watch")
            return
        try:
            self._answer(answer, method)
        except OSError:
            pass  # The browser left.
        finally:
            self._places.release()

    def _answer(self, answer: BaseHTTPRequestHandler, method: str) -> None:
        if not is_own_name(answer, self.host):
            answer.send_error(403, "this page is for this host alone")
            return
        parts = urlsplit(answer.path)
        match method, parts.path:
            case "GET", "/":
                self._send(answer, "text/html; charset=utf-8", resource("window.html"))
            case "GET", "/window.css" | "/window.js":
                kind = mimetypes.guess_type(parts.path)[0] or "text/plain"
                self._send(answer, kind, resource(parts.path[1:]))
            case "GET", "/stream":
                self._stream(answer)
            case "GET", "/state":
                self._say(answer)
            case "POST", "/key":
                name = parse_qs(parts.query).get("name", [""])[0]
                if self.on_key is None or name not in KEYS:
                    answer.send_error(404)
                    return
                self.on_key(name)
                self._say(answer)
            case _:
                answer.send_error(404)

    def _say(self, answer: BaseHTTPRequestHandler) -> None:
        keys = list(KEYS) if self.on_key is not None else []
        state = {"title": self.title, "keys": keys, "words": self.words()}
        self._send(answer, "application/json", json.dumps(state).encode())

    def _send(self, answer: BaseHTTPRequestHandler, kind: str, body: bytes) -> None:
        answer.send_response(200)
        answer.send_header("Content-Type", kind)
        answer.send_header("Content-Length", str(len(body)))
        answer.send_header("Content-Security-Policy", _POLICY)
        answer.send_header("X-Content-Type-Options", "nosniff")
        answer.send_header("Cache-Control", "no-store")
        answer.end_headers()
        answer.wfile.write(body)

    def _stream(self, answer: BaseHTTPRequestHandler) -> None:
        answer.send_response(200)
        answer.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
        answer.send_header("Cache-Control", "no-store")
        answer.end_headers()
        seen = 0
        while self._server is not None:
            with self._fresh:
                is_new = self._fresh.wait_for(lambda: self._number > seen, timeout=1.0)
                picture, seen = self._picture, self._number
            if picture and is_new:
                head = (
                    f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(picture)}\r\n\r\n"
                )
                answer.wfile.write(b"".join((head.encode(), picture, b"\r\n")))
