"""A window on an X screen, which is Xvfb's: without it, skipped with a message."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")
pytest.importorskip("av", reason="PyAV is not installed")

import cv2
import numpy as np

from lastmeter.media import Graph, modules
from lastmeter.media.network import DeviceError
from lastmeter.media.payload import Frame, Image
from lastmeter.media.xwindow import Server, XWindow, cookie, place
from patience import eventually


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of an X screen of 800x600 that asks for a cookie."""
    if shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is not installed")
    folder = tmp_path_factory.mktemp("x")
    word, path = bytes(range(16)), folder / "cookies"
    part = [b"", b"", b"MIT-MAGIC-COOKIE-1", word]
    entry = b"\xff\xff" + b"".join(struct.pack(">H", len(text)) + text for text in part)
    path.write_bytes(entry)
    read, write = os.pipe()
    line = ["Xvfb", "-displayfd", str(write), "-screen", "0", "800x600x24", "-nolisten", "tcp", "-noreset"]
    child = subprocess.Popen(
        [*line, "-auth", str(path)], pass_fds=(write,), stderr=subprocess.DEVNULL
    )
    os.close(write)
    before = os.environ.get("XAUTHORITY")
    os.environ["XAUTHORITY"] = str(path)
    try:
        number = b""
        while not number.endswith(b"\n"):
            more = os.read(read, 16)
            assert more, "Xvfb did not start"
            number += more
        yield f":{number.decode().strip()}"
    finally:
        if before is None:
            del os.environ["XAUTHORITY"]
        else:
            os.environ["XAUTHORITY"] = before
        child.terminate()
        child.wait(30)
        os.close(read)


def grab(server: Server, width: int, height: int) -> Image:
    """What the screen shows at its top left."""
    body = struct.pack("<IhhHHI", server.root, 0, 0, width, height, 0xFFFFFFFF)
    server.request(73, 2, body)
    words = np.frombuffer(server.answer()[32:], np.uint8)
    return words[: 4 * width * height].reshape(height, width, 4)[..., :3]


@pytest.mark.parametrize("colour", [True, False])
def test_a_window_shows_every_pixel(screen: str, colour: bool) -> None:
    graph = Graph(title="window")
    pattern = modules.Pattern(frames=8, width=500, height=300, colour=colour)
    graph.add("pattern", pattern)
    window: XWindow = graph.add("window", XWindow(screen))
    graph.join("pattern", "window")
    seen: list[Image] = []
    close = window.close

    def look() -> None:
        assert window.server is not None
        seen.append(grab(window.server, 500, 300))
        close()

    window.close = look  # type: ignore[method-assign]
    graph.run()
    graph.dispatcher.close()
    assert window.handled == 8 and graph.paths["window"].packets == 8
    *_, (_, last) = pattern.items()
    assert isinstance(last, Frame)
    image = last.image if colour else cv2.cvtColor(last.image, cv2.COLOR_GRAY2BGR)
    assert np.array_equal(seen[0], image)


def test_its_keys_play_and_closing_it_ends_the_graph(screen: str) -> None:
    graph = Graph(title="keys")
    graph.add("pattern", modules.Pattern(width=64, height=48, rate=50, pace=1.0))
    window: XWindow = graph.add("window", XWindow(screen))
    graph.join("pattern", "window")
    pressed: list[str] = []
    window.on_key = pressed.append
    thread = threading.Thread(target=graph.run, args=(60,))
    thread.start()
    eventually(lambda: window.handled > 0, "the window shows pictures")
    other = Server(screen)
    code = next(code for code, key in other.keys().items() if key == "left")
    for kind, rest in (
        (2, struct.pack("<BxxI", code, 0)),
        (33, struct.pack("<BxxIII", 32, window.window, other.atom(b"WM_PROTOCOLS"), window._delete)),
    ):
        event = (bytes([kind]) + rest).ljust(32, b"\0")
        other.request(25, 0, struct.pack("<II", window.window, 0) + event)
    other.atom(b"done")
    thread.join(60)
    assert not thread.is_alive() and pressed == ["left"]
    assert graph.ends - graph.began < 50, "it ended because it was closed"
    other.link.close()
    graph.dispatcher.close()


def test_a_picture_of_another_size_fits(screen: str) -> None:
    graph = Graph(title="sizes")
    window: XWindow = graph.add("window", XWindow(screen))
    graph.add("pattern", modules.Pattern(frames=1, width=40, height=30))
    graph.join("pattern", "window")
    window.begin()
    for number, (width, height) in enumerate(((40, 30), (80, 60))):
        image = np.full((height, width, 3), 50 * (number + 1), np.uint8)
        window.process("in", Frame(0.0, image=image))
        assert window.server is not None
        assert np.array_equal(grab(window.server, width, height), image)
    window.process("in", Frame(0.0, image=np.zeros((1, 1 << 17, 3), np.uint8)))
    assert window.dropped == {"no size for a window": 1}
    window.close()


def test_without_the_cookie_the_server_refuses(screen: str, tmp_path: Path) -> None:
    cookies = os.environ["XAUTHORITY"]
    os.environ["XAUTHORITY"] = str(tmp_path / "none")
    try:
        with pytest.raises(DeviceError, match="refused"):
            Server(screen)
    finally:
        os.environ["XAUTHORITY"] = cookies


def test_what_is_no_display_says_what_would_be_right() -> None:
    for text in ("", "0", ":x", "a/b:0", ":12345"):
        with pytest.raises(DeviceError, match="write `:0` or `host:0`"):
            place(text)
    with pytest.raises(DeviceError, match="no X server at `:9999`"):
        Server(":9999")
    rng = np.random.default_rng(1)
    for _ in range(2000):
        data = rng.integers(0, 4, int(rng.integers(0, 60)), np.uint8).tobytes()
        assert isinstance(cookie(data, 0), bytes)


def test_a_server_that_talks_nonsense_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random answers to the greeting: an error that says so, never another exception."""
    rng = np.random.default_rng(2)
    for turn in range(300):
        ours, theirs = socket.socketpair()
        body = rng.integers(0, 256, int(rng.integers(0, 300)), np.uint8).tobytes()
        head = bytes([1 if turn % 3 else turn % 256]) + bytes(5) + struct.pack("<H", len(body) // 4)
        theirs.sendall(head + body)
        theirs.shutdown(socket.SHUT_WR)

        class Link:
            """A socket that is connected already."""

            def __init__(self, _: int) -> None:
                self.connect = lambda where: None
                self.settimeout, self.sendall = ours.settimeout, ours.sendall
                self.recv, self.close = ours.recv, ours.close

        with monkeypatch.context() as patched:
            patched.setattr("lastmeter.media.xwindow.socket.socket", Link)
            with pytest.raises(DeviceError):
                Server(":0")
        theirs.close()
