"""A display in the viewers of others: noVNC in a browser, and vncdotool. Without them, skipped with a message.

TigerVNC's viewer and GTK-VNC's are tried in `crates/daemon/tests/display_viewers.rs`.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import chromium
from patience import eventually

TOKEN = "the-owners-secret"
TARGET = Path(__file__).parents[2] / "target"
BUILT = TARGET / "debug" / "lastmeterd"
# Debian's package, or its pages alone (`scripts/setup test`).
PAGES = [Path("/usr/share/novnc"), TARGET / "novnc/usr/share/novnc"]
PUT, LISTEN, KEY, POINTER, RESIZE, SIZE = 2, 7, 9, 10, 13, 14
ANSWERED = 128
# The size and the pixels of the canvas that noVNC draws on.
PIXELS = """() => {
    const canvas = [...document.querySelectorAll("canvas")].pop();
    if (!canvas || !canvas.width || !canvas.height) return null;
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let text = "";
    for (let at = 0; at < data.length; at += 8192)
        text += String.fromCharCode(...data.subarray(at, at + 8192));
    return [canvas.width, canvas.height, btoa(text)];
}"""


def picture(width: int, height: int, seed: int) -> np.ndarray[Any, Any]:
    """Noise, flat tiles and a gradient: something for each encoding; red, green, blue."""
    across, down = np.meshgrid(np.arange(width), np.arange(height))
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3))
    tiles = np.stack([across // 8 * 40, down // 10 * 30, np.full_like(across, seed)], axis=2)
    slope = np.stack([across, down, across + down], axis=2)
    third = (3 * across // width)[..., None]
    return np.where(third == 0, noise, np.where(third == 1, tiles, slope)).astype(np.uint8)


class Display:
    """A display that is drawn on, and what its program is told."""

    def __init__(self, folder: Path) -> None:
        daemon = shutil.which("lastmeterd") or (str(BUILT) if BUILT.exists() else None)
        if daemon is None:
            pytest.skip("`lastmeterd` is not found: `make devices` builds it")
        places = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        self.viewers, self.commands, self.web = (place.getsockname()[1] for place in places)
        for place in places:
            place.close()
        pages = next((place for place in PAGES if (place / "vnc.html").exists()), PAGES[0])
        (folder / "display.toml").write_text(
            f"size = '320x200'\nlisten = '127.0.0.1:{self.viewers}'\n"
            f"commands = '127.0.0.1:{self.commands}'\nweb = '127.0.0.1:{self.web}'\n"
            f"pages = '{pages}'\n"
            f"quality = 0\ninput = ['owner']\nresize = ['owner']\n[clients.owner]\ntoken = '{TOKEN}'\n"
        )
        line = [daemon, "display", "run", "display.toml"]
        environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
        self.child = subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL, env=environment)
        self.size = (320, 200)
        self.events: list[tuple[int, int, int, bytes]] = []
        self.links: list[socket.socket] = []
        self.program = self.greet()
        listener = self.greet()
        listener.sendall(struct.pack(">BBH4HI", LISTEN, 1, 1, 0, 0, 0, 0, 0))
        threading.Thread(target=self.hear, args=(listener,), daemon=True).start()

    def greet(self) -> socket.socket:
        """A program's connection."""
        until = time.monotonic() + 60
        while True:
            try:
                link = socket.create_connection(("127.0.0.1", self.commands), 60)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < until, "the display does not start"
                time.sleep(0.05)
        link.sendall(b"LMFB\1" + bytes([len(TOKEN)]) + TOKEN.encode())
        assert self.take(link, 5)[0] == 0
        link.settimeout(None)
        self.links.append(link)
        return link

    @staticmethod
    def take(link: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = link.recv(count - len(data))
            if not more:
                raise ConnectionError("the display ended")
            data += more
        return data

    def hear(self, link: socket.socket) -> None:
        """Notes keys and pointers."""
        try:
            while True:
                head = self.take(link, 16)
                operation, _, _, x, y, w, h, length = struct.unpack(">BBH4HI", head)
                place = (w, h) if operation - ANSWERED == SIZE else (x, y)
                self.events.append((operation - ANSWERED, *place, self.take(link, length)))
        except OSError:
            return

    def ask(self, operation: int, width: int, height: int, data: bytes = b"") -> None:
        head = struct.pack(">BBH4HI", operation, 1, 1, 0, 0, width, height, len(data))
        self.program.sendall(head + data)
        assert self.take(self.program, 16)[1] == 0, "done"

    def draw(self, seed: int) -> np.ndarray[Any, Any]:
        """Draws all of it."""
        pixels = picture(*self.size, seed)
        words = np.zeros((*pixels.shape[:2], 4), np.uint8)
        words[..., :3] = pixels[..., ::-1]
        self.ask(PUT, *self.size, words.tobytes())
        return pixels

    def told(self, operation: int, place: tuple[int, int] | None, start: bytes) -> bool:
        """Whether there was such an event."""
        return any(
            kind == operation and place in (None, (x, y)) and data.startswith(start)
            for kind, x, y, data in list(self.events)
        )

    def hears(self, operation: int, place: tuple[int, int] | None, *starts: bytes) -> None:
        """Waits for such events."""
        for start in starts:
            wanted = partial(self.told, operation, place, start)
            eventually(wanted, f"event {operation}")

    def close(self) -> None:
        for link in self.links:
            link.close()
        self.child.terminate()
        self.child.wait(30)


@pytest.fixture
def display(tmp_path: Path) -> Iterator[Display]:
    made = Display(tmp_path)
    try:
        yield made
    finally:
        made.close()


def key(down: bool, symbol: int) -> bytes:
    """The first bytes of a key's event."""
    return struct.pack(">BxxxI", down, symbol)


def test_vncdotool_captures_each_pixel_types_and_moves(display: Display, tmp_path: Path) -> None:
    pytest.importorskip("vncdotool", reason="vncdotool is not installed")
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    expected, seen = display.draw(1), tmp_path / "seen.png"
    # The module itself: the script's path would be another installation's.
    command = [sys.executable, "-c", "from vncdotool.command import vncdo; vncdo()"]
    server = ["-s", f"127.0.0.1::{display.viewers}", "-p", TOKEN[:8]]
    work = ["move", "37", "41", "click", "1", "type", "a", "pause", "0.2", "capture", str(seen)]
    subprocess.run([*command, *server, *work], check=True, timeout=60)
    assert np.array_equal(np.asarray(image.open(seen).convert("RGB")), expected)
    display.hears(KEY, None, key(True, 0x61), key(False, 0x61))
    display.hears(POINTER, (37, 41), b"\1", b"\0")
    display.ask(RESIZE, 280, 230)
    display.size = (280, 230)
    larger = display.draw(2)
    subprocess.run([*command, *server, "capture", str(seen)], check=True, timeout=60)
    assert np.array_equal(np.asarray(image.open(seen).convert("RGB")), larger)


def test_novnc_shows_each_pixel_types_moves_and_resizes(display: Display) -> None:
    if not any((place / "vnc.html").exists() for place in PAGES):
        pytest.skip("noVNC is not installed")
    expected = display.draw(1)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 600, "height": 500})
        page.goto(
            f"http://127.0.0.1:{display.web}/vnc.html?autoconnect=true&path=websockify"
            f"&password={TOKEN[:8]}&resize=off"
        )

        def shows(pixels: np.ndarray[Any, Any]) -> bool:
            """Whether the page's picture is this one, each pixel of it."""
            seen = page.evaluate(PIXELS)
            if seen is None or seen[:2] != [pixels.shape[1], pixels.shape[0]]:
                return False
            words = np.frombuffer(base64.b64decode(seen[2]), np.uint8)
            return np.array_equal(words.reshape(*pixels.shape[:2], 4)[..., :3], pixels)

        eventually(lambda: shows(expected), "the picture, exactly")
        after = display.draw(2)
        eventually(lambda: shows(after), "the next one, exactly")
        box = page.locator("canvas").last.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 37, box["y"] + 41)
        for press, mask in ((page.mouse.down, b"\1"), (page.mouse.up, b"\0")):
            press()
            display.hears(POINTER, (37, 41), mask)
        page.keyboard.press("a")
        display.hears(KEY, None, key(True, 0x61), key(False, 0x61))
        display.ask(RESIZE, 280, 230)
        display.size = (280, 230)
        other = display.draw(3)
        eventually(lambda: shows(other), "another size, exactly")
        # The page's own wish: a screen as large as the window.
        page.goto(
            f"http://127.0.0.1:{display.web}/vnc.html?autoconnect=true&path=websockify"
            f"&password={TOKEN[:8]}&resize=remote"
        )
        display.hears(SIZE, (600, 500), b"")
        display.size = (600, 500)
        largest = display.draw(4)
        eventually(lambda: shows(largest), "the page's size, exactly")
        if folder := os.environ.get("LASTMETER_PICTURES"):
            page.screenshot(path=str(Path(folder) / "novnc.png"))
