"""The browser of clips: what the programs found, by program, time, activity and words, and plays it from there (A-82).

One page without a framework; it asks this server alone. It listens on loopback, and serves what the index names:
clips, films and pictures by number, never by path.
"""

from __future__ import annotations

import json
import mimetypes
import re
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from .index import thumbnail_name
from .traffic import NAMES, Component

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .index import Clip, Index

#: Requests served at once.
PLACES = 32
#: Seconds after which a silent browser is left.
SILENCE = 20.0
#: Bytes of one part of a film.
PART = 1 << 20
#: Pictures, and their sides in pixels, of which a page may say at once that it showed them.
SHOWN_MAX, SIDE_MAX = 1_000, 16_384
#: Bytes of a pixel on a screen.
PIXEL = 3

_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; media-src 'self'"
)


class Site:
    """What the page asks for, from an index and the folder of its clips."""

    def __init__(self, index: Index, folder: Path) -> None:
        self.index, self.folder = index, folder.resolve()
        #: What browsers fetched of the clips, by program (A-117).
        self.retrieval = {name: Component(NAMES[name], "retrieval") for name in NAMES}
        #: The pictures that their pages then showed.
        self.display = {name: Component(NAMES[name], "display") for name in NAMES}
        self._lock = threading.Lock()

    def fetched(self, path: str, begin: float, size: int) -> None:
        """Counts bytes of a clip, or of a page of a board, that a browser fetched since an instant."""
        _, what, number = path.split("/", 2)
        with self._lock:
            clip = self.index.clip(int(number)) if number.isdigit() else None
            if clip is None or clip.program not in self.retrieval:
                return
            if what == "clip" or clip.path.endswith(".png"):
                self.retrieval[clip.program].enter(begin, time.monotonic(), size)

    def showed(self, query: dict[str, str]) -> bool:
        """Counts pictures that a page says it has shown; False if it says nonsense."""
        names = ("clip", "frames", "width", "height", "ms")
        if not all(re.fullmatch(r"\d{1,9}", query.get(name, "")) for name in names):
            return False
        number, frames, width, height, ms = (int(query[name]) for name in names)
        if not 0 < frames <= SHOWN_MAX or not 0 < max(width, height) <= SIDE_MAX:
            return False
        with self._lock:
            clip = self.index.clip(number)
            if clip is None or clip.program not in self.display:
                return False
            now = time.monotonic()
            begin = now - min(ms / 1e3, 60.0)
            self.display[clip.program].enter(begin, now, frames * width * height * PIXEL)
        return True

    def traffic(self) -> list[Component]:
        """What was fetched and shown, program by program."""
        parts = [part[name] for name in NAMES for part in (self.retrieval, self.display)]
        return [part for part in parts if part.sessions]

    def answer(self, path: str, query: dict[str, str]) -> tuple[HTTPStatus, str, bytes | Path]:
        """Status, type and body; a body that is a path is a file, served in parts."""
        if path in ("/", "/index.html"):
            return HTTPStatus.OK, "text/html; charset=utf-8", resource("page.html")
        if path in ("/page.css", "/page.js"):
            return HTTPStatus.OK, mimetypes.guess_type(path)[0] or "text/plain", resource(path[1:])
        with self._lock:
            if path == "/api/clips":
                return _json([self._row(clip) for clip in self._clips(query)])
            if path == "/api/search":
                found = self.index.search(query.get("q", "")[:200], query.get("program") or None)
                return _json(
                    [
                        {**self._row(clip), "line": unmarked(line), "from": begin}
                        for clip, line, begin in found
                    ]
                )
            if path == "/api/said":
                number = query.get("clip", "")
                said = self.index.said(int(number)) if number.isdigit() else []
                return _json(
                    [
                        {"begin": begin, "end": end, "text": unmarked(text)}
                        for begin, end, text in said
                    ]
                )
            if found_path := re.fullmatch(r"/(clip|picture)/(\d{1,9})", path):
                return self._file(found_path[1], int(found_path[2]))
        return HTTPStatus.NOT_FOUND, "text/plain", b"nothing is here"

    def _clips(self, query: dict[str, str]) -> list[Clip]:
        program = query.get("program") or None
        ranked = query.get("order") == "score"
        least = _number(query.get("least"))
        since, until = _number(query.get("since")), _number(query.get("until"))
        return self.index.clips(program, least=least, since=since, until=until, ranked=ranked)

    def _row(self, clip: Clip) -> dict[str, Any]:
        is_picture = clip.path.endswith((".png", ".jpg"))
        return {
            "id": clip.id,
            "program": clip.program,
            "begin": clip.begin,
            "end": clip.end,
            "title": clip.title,
            "score": clip.score,
            "at": clip.at,
            "film": clip.film,
            "whole": bool(clip.path),
            "picture": is_picture,
            "thumbnail": self._thumbnail(clip) is not None,
        }

    def _thumbnail(self, clip: Clip) -> Path | None:
        is_picture = clip.path.endswith(".png")
        return self._inside(self.folder / (clip.path if is_picture else thumbnail_name(clip.id)))

    def _file(self, what: str, number: int) -> tuple[HTTPStatus, str, bytes | Path]:
        clip = self.index.clip(number)
        path: Path | None = None
        if clip is not None and what == "picture":
            path = self._thumbnail(clip)
        elif clip is not None and clip.path:
            path = self._inside(self.folder / clip.path)
        elif clip is not None:
            film = next(
                (film["path"] for film in self.index.films() if film["id"] == clip.film), ""
            )
            path = Path(film) if film and Path(film).is_file() else None
        if path is None:
            return HTTPStatus.NOT_FOUND, "text/plain", b"the film is not here"
        return HTTPStatus.OK, mimetypes.guess_type(path.name)[0] or "application/octet-stream", path

    def _inside(self, path: Path) -> Path | None:
        whole = path.resolve()
        return whole if whole.is_relative_to(self.folder) and whole.is_file() else None


def unmarked(line: str) -> str:
    """A caption without the marks of a new speaker or story.

    >>> unmarked(">>> Storms are coming"), unmarked("2 > 1")
    ('Storms are coming', '2 > 1')
    """
    return line.lstrip("> ")


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _json(value: Any) -> tuple[HTTPStatus, str, bytes]:
    return HTTPStatus.OK, "application/json", json.dumps(value).encode()


def resource(name: str) -> bytes:
    """A file of the pages that come with the package."""
    return files(__package__).joinpath("page", name).read_bytes()


def is_own_name(request: BaseHTTPRequestHandler, host: str) -> bool:
    """Whether a browser calls a server on loopback by the name of this host, and from a page of its own."""
    asked = request.headers.get("Host") or ""
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"http://{asked}":
        return False
    name = asked.rsplit(":", 1)[0].strip("[]")
    return host != "127.0.0.1" or name in ("127.0.0.1", "localhost")


def serve(
    index: Index, folder: Path, port: int = 0, host: str = "127.0.0.1", *, site: Site | None = None
) -> ThreadingHTTPServer:
    """A server of the page; run its ``serve_forever``. A site of one's own tells what was fetched."""
    served = site or Site(index, folder)
    places = threading.BoundedSemaphore(PLACES)

    class Answer(BaseHTTPRequestHandler):
        timeout = SILENCE
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._in_place(self._answer)

        def do_POST(self) -> None:
            self._in_place(self._note)

        def _in_place(self, answer: Callable[[], None]) -> None:
            if not places.acquire(blocking=False):
                self.send_error(503)
                return
            try:
                answer()
            except (ConnectionError, TimeoutError):
                self.close_connection = True
            finally:
                places.release()

        def _answer(self) -> None:
            # A page of another site must not read this one under another name.
            if not is_own_name(self, host):
                self.send_error(HTTPStatus.FORBIDDEN, "this page is for this host alone")
                return
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            status, kind, body = served.answer(parts.path, query)
            if isinstance(body, Path):
                began, sent = time.monotonic(), 0
                try:
                    for size in self._send_file(kind, body):
                        sent += size
                finally:
                    served.fetched(parts.path, began, sent)
                return
            self.send_response(status)
            self._head(kind, len(body))
            self.wfile.write(body)

        def _note(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            self.close_connection = True  # What else it sends is not read.
            if not is_own_name(self, host):
                self.send_error(HTTPStatus.FORBIDDEN, "this page is for this host alone")
            elif parts.path != "/api/shown" or not served.showed(query):
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                self.send_response(HTTPStatus.NO_CONTENT)
                self.send_header("Connection", "close")
                self.end_headers()

        def _send_file(self, kind: str, path: Path) -> Iterator[int]:
            size = path.stat().st_size
            begin, end = 0, size
            wanted = re.fullmatch(r"bytes=(\d{1,15})-(\d{0,15})", self.headers.get("Range") or "")
            if wanted is not None:
                begin = int(wanted[1])
                end = min(size, int(wanted[2]) + 1 if wanted[2] else size)
                if begin >= end:
                    self.send_error(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
                    return
                self.send_response(HTTPStatus.PARTIAL_CONTENT)
                self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
            else:
                self.send_response(HTTPStatus.OK)
            self.send_header("Accept-Ranges", "bytes")
            self._head(kind, end - begin)
            with path.open("rb") as film:
                film.seek(begin)
                while begin < end:
                    part = film.read(min(PART, end - begin))
                    if not part:
                        break
                    self.wfile.write(part)
                    begin += len(part)
                    yield len(part)

        def _head(self, kind: str, length: int) -> None:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(length))
            self.send_header("Content-Security-Policy", _POLICY)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-cache")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((host, port), Answer)
    server.daemon_threads = True
    return server
