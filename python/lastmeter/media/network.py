"""Devices elsewhere: a disk (NBD), a display (framebuffer commands), a camera.

The client's side of ``lastmeter disk`` and ``lastmeter display``, in a few lines: a device is an address and a token.
"""

from __future__ import annotations

import errno
import io
import os
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, ClassVar

import cv2
import numpy as np

from .graph import Module
from .payload import Frame, Image, Payload
from .video import FileSource, VideoError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typing_extensions import Buffer

#: Seconds after which a device that says nothing is given up.
SILENCE = 10.0
#: Seconds until a camera that broke off is asked again, and without a picture until it is given up.
AGAIN, GIVEN_UP = 0.5, 300.0
#: Bytes of one request to a disk.
REQUEST = 1 << 20


class DeviceError(OSError):
    """A device that refuses or does not speak as expected; the message says what it said."""


def address(text: str, port: int) -> tuple[str, int]:
    """Host and port of ``host``, ``host:port`` or ``[::1]:port``.

    >>> address("10.0.0.2", 10809), address("[::1]:99", 10809)
    (('10.0.0.2', 10809), ('::1', 99))
    """
    host, colon, number = text.rpartition(":")
    if not colon or (text.count(":") > 1 and not text.startswith("[")):
        host, number = text, str(port)
    if not number.isdigit() or not host:
        raise DeviceError(f"`{text}` is no address; write `host:port`")
    return host.strip("[]"), int(number)


def _receive(link: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = link.recv(min(length - len(parts), REQUEST))
        if not part:
            raise DeviceError("the device hung up")
        parts += part
    return bytes(parts)


class DiskFile(io.RawIOBase):
    """A network disk as a file: NBD, fixed newstyle, simple replies. The export's name is the token.

    A film can be written to it, and read from it: ``FileSource(DiskFile("nbd://10.0.0.2/token"))``.
    """

    _OPTION = 0x49484156454F5054
    _REPLY = 0x3E889045565A9

    def __init__(self, url: str, *, timeout: float = SILENCE) -> None:
        if not url.startswith("nbd://"):
            raise DeviceError(f"`{url}` is no disk; write `nbd://host:port/token`")
        place, _, name = url.removeprefix("nbd://").partition("/")
        self.url = url
        self._at = 0
        self._cookie = 0
        self._lock = threading.Lock()
        self.bytes_read = 0
        self.bytes_written = 0
        self._link = socket.create_connection(address(place, 10809), timeout=timeout)
        try:
            self.length, self.flags = self._greet(name)
        except (OSError, struct.error):
            self._link.close()
            raise

    def _greet(self, name: str) -> tuple[int, int]:
        magic, option, _ = struct.unpack(">8sQH", _receive(self._link, 18))
        if magic != b"NBDMAGIC" or option != self._OPTION:
            raise DeviceError(f"`{self.url}` does not speak NBD")
        word = name.encode()
        data = struct.pack(">I", len(word)) + word + struct.pack(">H", 0)
        self._link.sendall(struct.pack(">IQII", 3, self._OPTION, 7, len(data)) + data)
        found: tuple[int, int] | None = None
        while True:
            reply, _, kind, length = struct.unpack(">QIII", _receive(self._link, 20))
            if reply != self._REPLY or length > 65536:
                raise DeviceError(f"`{self.url}` does not speak NBD")
            text = _receive(self._link, length)
            if kind == 1:  # acknowledged
                break
            if kind & 0x80000000:
                raise DeviceError(
                    f"`{self.url}` refused: {text.decode(errors='replace') or hex(kind)}"
                )
            if kind == 3 and length >= 12 and text[:2] == b"\0\0":
                found = struct.unpack(">QH", text[2:12])
        if found is None:
            raise DeviceError(f"`{self.url}` does not say how large it is")
        return found

    def _request(self, operation: int, offset: int, length: int, data: bytes = b"") -> bytes:
        with self._lock:
            self._cookie += 1
            self._link.sendall(
                struct.pack(">IHHQQI", 0x25609513, 0, operation, self._cookie, offset, length)
                + data
            )
            magic, error, cookie = struct.unpack(">IIQ", _receive(self._link, 16))
            if magic != 0x67446698 or cookie != self._cookie:
                raise DeviceError(f"`{self.url}` answered out of order")
            if error:
                raise DeviceError(error, f"`{self.url}` refused {length} bytes at {offset}")
            return _receive(self._link, length) if operation == 0 else b""

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.length}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self.length - self._at)
        wanted = left if size < 0 else min(size, left)
        parts = []
        while wanted:
            # Disks take whole blocks.
            first = self._at // 512 * 512
            last = min(-(-(self._at + min(wanted, REQUEST)) // 512) * 512, self.length)
            block = self._request(0, first, last - first)
            part = block[self._at - first :][:wanted]
            parts.append(part)
            self._at += len(part)
            wanted -= len(part)
        data = b"".join(parts)
        self.bytes_read += len(data)
        return data

    def write(self, data: Buffer) -> int:
        data = bytes(data)
        begin, end = self._at, self._at + len(data)
        if end > self.length:
            raise DeviceError(errno.ENOSPC, f"`{self.url}` has {self.length} bytes")
        # Disks take whole blocks: what else is in the first and the last one stays.
        first, last = begin // 512 * 512, -(-end // 512) * 512
        before = self._request(0, first, 512)[: begin - first] if begin > first else b""
        after = self._request(0, last - 512, 512)[end - last :] if end < last else b""
        whole = before + data + after
        for offset in range(0, len(whole), REQUEST):
            part = whole[offset : offset + REQUEST]
            self._request(1, first + offset, len(part), part)
        self._at = end
        self.bytes_written += len(data)
        return len(data)

    def flush(self) -> None:
        if not self.closed and self.flags & 4:
            self._request(3, 0, 0)

    def close(self) -> None:
        if not self.closed:
            try:
                self.flush()
                self._link.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 2, 0, 0, 0))
            finally:
                # The base class flushes once more; there is nothing left to flush, nor a link.
                self.flags = 0
                self._link.close()
        super().close()


class Screen:
    """A network display, drawn on with framebuffer commands (``lastmeter display``)."""

    PUT, COPY, FILL, JPEG, SYNC = 2, 3, 4, 5, 8

    def __init__(self, place: str, token: str = "", *, timeout: float = SILENCE) -> None:
        self.link = socket.create_connection(address(place, 5899), timeout=timeout)
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.bytes_sent = 0
        word = token.encode()
        self.link.sendall(b"LMFB\x01" + bytes([len(word)]) + word)
        status, self.width, self.height = struct.unpack(">BHH", _receive(self.link, 5))
        if status != 0:
            self.link.close()
            raise DeviceError(f"the display at {place} refused")

    def command(
        self,
        operation: int,
        x: int,
        y: int,
        width: int,
        height: int,
        data: bytes = b"",
        *,
        answer: bool = False,
    ) -> int:
        """Sends a command; with ``answer`` waits for its status (0 done, 1 denied, 2 invalid, 3 clipped)."""
        head = struct.pack(">BBHHHHHI", operation, int(answer), 0, x, y, width, height, len(data))
        self.link.sendall(head + data)
        self.bytes_sent += len(head) + len(data)
        if not answer:
            return 0
        while True:
            reply = _receive(self.link, 16)
            _receive(self.link, struct.unpack(">I", reply[12:])[0])
            if reply[0] == operation + 128:
                return reply[1]

    def put(self, image: Image, x: int, y: int, quality: int = 0) -> None:
        """Draws a picture, as JPEG of a quality or raw."""
        height, width = image.shape[:2]
        if quality:
            data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
            self.command(self.JPEG, x, y, width, height, data)
            return
        words = np.zeros((height, width, 4), np.uint8)
        words[..., :3] = image if image.ndim == 3 else image[..., None]
        self.command(self.PUT, x, y, width, height, words.tobytes())

    def close(self) -> None:
        """Hangs up."""
        self.link.close()


class WindowSink(Module):
    """A window on a network display (A-77): pictures at a place, as JPEG or raw; waits until each is drawn.

    What does not fit the screen is cut off.
    """

    inputs = {"in": Frame}

    def __init__(
        self, place: str, token: str = "", *, x: int = 0, y: int = 0, quality: int = 85
    ) -> None:
        super().__init__()
        self.place, self.token, self.x, self.y, self.quality = place, token, x, y, quality
        self.screen: Screen | None = None

    def begin(self) -> None:
        self.screen = Screen(self.place, self.token)

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame) and self.screen is not None
        image = payload.image[: self.screen.height - self.y, : self.screen.width - self.x]
        if image.size == 0:
            self.drop("off the screen")
            return
        self.screen.put(image, self.x, self.y, self.quality)
        status = self.screen.command(Screen.SYNC, 0, 0, 0, 0, answer=True)
        if status:
            self.drop("refused")
            return
        self.graph.arrived(self, payload)

    def close(self) -> None:
        if self.screen is not None:
            self.screen.close()


class CameraSource(FileSource):
    """A camera: an address (``rtsp://``, ``http://`` with MJPEG) or ``/dev/video0``. It does not wait for room (A-79).

    Its pictures belong to the time at which they come, since the graph began: so those of several cameras can be
    compared, whatever they say of it themselves. A camera that breaks off is opened again (counted, ``broke off``),
    until it has given nothing for :data:`GIVEN_UP` seconds. A file plays as a camera would.
    """

    live: ClassVar[bool] = True

    def __init__(self, name: str | Path, *, colour: bool = True) -> None:
        super().__init__(name, pace=1.0 if os.path.isfile(name) else 0.0, colour=colour)

    def items(self) -> Iterator[tuple[str, Payload]]:
        last: float | None = None
        while True:
            try:
                for port, payload in super().items():
                    last = self._now()
                    if not self.pace:
                        payload.time = max(0.0, last - self.graph.began)
                    yield port, payload
                return
            except VideoError:
                # One that never gave anything is not there.
                if last is None or self.pace or self._now() - last > GIVEN_UP:
                    raise
            self.drop("broke off")
            if self.waits(AGAIN):
                return


#: What a camera may answer to a command, by its number.
_ANSWERS = {3: "nobody has this token", 4: "no such picture", 5: "as many receivers as it can serve"}


def diagnose(place: str, token: str, *, tries: int = 20) -> dict[str, int | str]:
    """Asks a camera (``lastmeter camera``) over UDP how it is: its size, and how many receive from it.

    Source of the layout: `crates/wire/src/camera`.
    """
    host, port = address(place, 8555)
    family, _, _, _, to = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    word, cookie = token.encode(), 0
    with socket.socket(family, socket.SOCK_DGRAM) as link:
        link.settimeout(0.5)
        link.connect(to)
        for _ in range(tries):
            # Diagnose, in JPEG; all but the cookie and the length of the token is for commands that want frames.
            head = b"LMC1" + bytes([4, 3]) + bytes(27) + bytes([len(word)]) + bytes(14)
            try:
                link.send(head + struct.pack(">Q", cookie) + bytes(16) + word)
                answer = link.recv(2048)
            except (TimeoutError, ConnectionRefusedError):
                continue
            if len(answer) != 56 or answer[:4] != b"LMF1":
                raise DeviceError(f"{place} does not speak a camera's protocol")
            if answer[4] == 2:  # It wants proof that it can be heard here.
                cookie = struct.unpack(">Q", answer[16:24])[0]
            elif answer[4] == 6:
                width, height = struct.unpack(">HH", answer[24:28])
                (receivers,) = struct.unpack(">H", answer[44:46])
                return {"device": "camera", "width": width, "height": height, "receivers": receivers}
            else:
                raise DeviceError(
                    f"the camera at {place} refused: {_ANSWERS.get(answer[4], answer[4])}"
                )
    raise DeviceError(f"the camera at {place} does not answer")


def wait_for_port(host: str, port: int, seconds: float = 5.0) -> bool:
    """Waits until something listens there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            socket.create_connection((host, port), timeout=0.2).close()
            return True
        except OSError:
            time.sleep(0.02)
    return False
