"""A window on an X screen (A-77): the few requests of the X protocol that pictures and arrow keys need.

    graph --> XWindow --> PutImage, in strips that fit a request --> X server
    program <-- on_key <-- KeyPress

It waits until the server has drawn each picture. Closing the window ends the graph. Screens of 24 bits in 32, which
is what X servers have; others are refused. Source of the layouts: X Window System Protocol, version 11, appendix B.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np

from .graph import Module
from .network import SILENCE, DeviceError
from .payload import Frame, Payload

if TYPE_CHECKING:
    from collections.abc import Callable

#: Bytes of an answer that is still read, and of a file of cookies.
ANSWER_MAX, COOKIES_MAX = 1 << 20, 1 << 20
#: Keys by their symbols.
KEYS = {0xFF51: "left", 0xFF52: "up", 0xFF53: "right", 0xFF54: "down"}
_COOKIE = b"MIT-MAGIC-COOKIE-1"
_WM_NAME, _STRING, _ATOM = 39, 31, 4


def place(display: str) -> tuple[str | tuple[str, int], int]:
    """The socket of a display, ``:0`` or ``host:0``, and its number.

    >>> place(":1.0"), place("10.0.0.2:0")
    (('/tmp/.X11-unix/X1', 1), (('10.0.0.2', 6000), 0))
    """
    found = re.fullmatch(r"([^:/]*):(\d{1,4})(\.\d+)?", display)
    if found is None:
        raise DeviceError(f"`{display}` is no X display; write `:0` or `host:0`")
    host, number = found[1], int(found[2])
    if host in ("", "unix"):
        return f"/tmp/.X11-unix/X{number}", number
    return (host, 6000 + number), number


def cookie(data: bytes, number: int) -> bytes:
    """The cookie for a display, of the content of ``~/.Xauthority``; empty if there is none.

    >>> part = lambda text: struct.pack(">H", len(text)) + text
    >>> cookie(b"\\x01\\x00" + b"".join(map(part, (b"host", b"1", b"MIT-MAGIC-COOKIE-1", b"word"))), 1)
    b'word'
    """
    at = 0
    while at + 2 <= len(data):
        at += 2
        parts = []
        for _ in range(4):
            if at + 2 > len(data):
                return b""
            (length,) = struct.unpack_from(">H", data, at)
            parts.append(data[at + 2 : at + 2 + length])
            at += 2 + length
        _, display, name, word = parts
        if name == _COOKIE and display in (b"", str(number).encode()):
            return word
    return b""


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


class Server:
    """A connection to an X server."""

    def __init__(self, display: str) -> None:
        where, number = place(display)
        family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET
        self.link = socket.socket(family)
        self.link.settimeout(SILENCE)
        #: Events that came while something else was awaited.
        self.events: list[bytes] = []
        try:
            self.link.connect(where)
            self._greet(self._word(number))
        except (OSError, struct.error, IndexError) as error:
            self.link.close()
            if isinstance(error, DeviceError):
                raise
            raise DeviceError(f"no X server at `{display}`: {error}") from None

    @staticmethod
    def _word(number: int) -> bytes:
        path = Path(os.environ.get("XAUTHORITY") or Path.home() / ".Xauthority")
        try:
            with path.open("rb") as file:
                return cookie(file.read(COOKIES_MAX), number)
        except OSError:
            return b""

    def _greet(self, word: bytes) -> None:
        name = _COOKIE if word else b""
        head = struct.pack("<BxHHHHxx", ord("l"), 11, 0, len(name), len(word))
        self.link.sendall(head + _padded(name) + _padded(word))
        status, reason, _, _, more = struct.unpack("<BBHHH", self._receive(8))
        body = self._receive(4 * more)
        if status != 1:
            raise DeviceError(f"the X server refused: {body[:reason].decode(errors='replace')}")
        self._base, self._mask = struct.unpack_from("<II", body, 4)
        vendor, most = struct.unpack_from("<HH", body, 16)
        formats, order, self._first_key, self._last_key = (body[at] for at in (21, 22, 26, 27))
        #: Bytes of a request, at most.
        self.most = 4 * most
        at = 32 + vendor + -vendor % 4
        sizes = {body[at + 8 * n]: body[at + 8 * n + 1] for n in range(formats)}
        at += 8 * formats
        (self.root,) = struct.unpack_from("<I", body, at)
        self.depth = body[at + 38]
        if order != 0 or self.depth != 24 or sizes.get(24) != 32:
            raise DeviceError("the X screen is not one of 24 bits in 32, the least first")
        self._names = 0

    def _receive(self, length: int) -> bytes:
        if length > ANSWER_MAX:
            raise DeviceError("the X server answers too much")
        parts = bytearray()
        while len(parts) < length:
            part = self.link.recv(length - len(parts))
            if not part:
                raise DeviceError("the X server hung up")
            parts += part
        return bytes(parts)

    def name(self) -> int:
        """A name for a window or a context."""
        self._names += 1
        number: int = self._base | (self._names & self._mask)
        return number

    def request(self, code: int, detail: int, body: bytes | memoryview) -> None:
        """Sends a request; its length is a multiple of four."""
        head = struct.pack("<BBH", code, detail, (4 + len(body)) // 4)
        self.link.sendall(b"".join((head, body)))

    def answer(self) -> bytes:
        """The next answer; events that come before it are kept."""
        while True:
            head = self._receive(32)
            match head[0] & 0x7F:
                case 0:
                    raise DeviceError(f"the X server refused request {head[10]}: error {head[1]}")
                case 1:
                    return head + self._receive(4 * struct.unpack_from("<I", head, 4)[0])
                case _:
                    self.events.append(head)

    def atom(self, name: bytes) -> int:
        """The number of a name."""
        self.request(16, 0, struct.pack("<Hxx", len(name)) + _padded(name))
        number: int = struct.unpack_from("<I", self.answer(), 8)[0]
        return number

    def keys(self) -> dict[int, str]:
        """The arrow keys by the keyboard's codes."""
        count = self._last_key - self._first_key + 1
        self.request(101, 0, struct.pack("<BBxx", self._first_key, count))
        found = self.answer()
        symbols = np.frombuffer(found[32:], "<u4").reshape(-1, max(1, found[1]))
        rows = enumerate(symbols.tolist(), self._first_key)
        return {code: KEYS[symbol] for code, row in rows for symbol in row if symbol in KEYS}


class XWindow(Module):
    """Pictures in a window of an X screen, by default that of ``DISPLAY``."""

    inputs = {"in": Frame}

    def __init__(self, display: str = "") -> None:
        super().__init__()
        self.display = display
        self.title = ""
        #: Called with ``left``, ``right``, ``up`` or ``down``.
        self.on_key: Callable[[str], None] | None = None
        self.server: Server | None = None
        self.window = self._context = self._delete = 0
        self._size = (0, 0)
        self._keys: dict[int, str] = {}

    def begin(self) -> None:
        self.server = Server(self.display or os.environ.get("DISPLAY", ""))
        self._delete, self._keys = self.server.atom(b"WM_DELETE_WINDOW"), self.server.keys()

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame) and self.server is not None
        if payload.image.size == 0 or 4 * payload.width + 24 > self.server.most:
            self.drop("no size for a window")
            return
        self._fit(self.server, payload.width, payload.height)
        self._put(self.server, payload)
        self.server.request(43, 0, b"")  # Which window has the input focus: answered when all is drawn.
        self.server.answer()
        for event in self.server.events:
            self._on(event)
        self.server.events.clear()
        self.graph.arrived(self, payload)

    def _fit(self, server: Server, width: int, height: int) -> None:
        if self._size == (width, height):
            return
        if self.window:
            server.request(12, 0, struct.pack("<IHxxII", self.window, 12, width, height))
        else:
            self._open(server, width, height)
        self._size = (width, height)

    def _open(self, server: Server, width: int, height: int) -> None:
        self.window, self._context = server.name(), server.name()
        # Black behind; keys and uncovered parts are told.
        place = struct.pack("<IIhhHH", self.window, server.root, 0, 0, width, height)
        server.request(1, 0, place + struct.pack("<HHIIII", 0, 1, 0, 0x802, 0, 0x8001))
        server.request(55, 0, struct.pack("<III", self._context, self.window, 0))
        title = (self.title or self.graph.title).encode("latin-1", errors="replace")
        self._property(server, _WM_NAME, _STRING, 8, title)
        protocols = server.atom(b"WM_PROTOCOLS")
        self._property(server, protocols, _ATOM, 32, struct.pack("<I", self._delete))
        server.request(8, 0, struct.pack("<I", self.window))

    def _property(self, server: Server, name: int, kind: int, bits: int, data: bytes) -> None:
        head = struct.pack("<IIIBxxxI", self.window, name, kind, bits, len(data) * 8 // bits)
        server.request(18, 0, head + _padded(data))

    def _put(self, server: Server, frame: Frame) -> None:
        how = cv2.COLOR_BGR2BGRA if frame.image.ndim == 3 else cv2.COLOR_GRAY2BGRA
        words = np.ascontiguousarray(cv2.cvtColor(frame.image, how))
        rows = max(1, (server.most - 24) // (4 * frame.width))
        for top in range(0, frame.height, rows):
            strip = words[top : top + rows]
            head = struct.pack("<IIHHhhBBxx", self.window, self._context, frame.width, len(strip), 0, top, 0, 24)
            server.request(72, 2, b"".join((head, strip.data)))

    def _on(self, event: bytes) -> None:
        match event[0] & 0x7F:
            case 2 if event[1] in self._keys and self.on_key is not None:
                self.on_key(self._keys[event[1]])
            case 33 if struct.unpack_from("<I", event, 12)[0] == self._delete:
                self.graph.stop()

    def close(self) -> None:
        if self.server is not None:
            self.server.link.close()
