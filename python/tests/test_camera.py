"""A camera that `lastmeterd` serves, read by OpenCV and shown in a browser.

Needs `lastmeterd`, OpenCV and Chromium; without them the tests are skipped with a message.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import eventually

WIDTH, HEIGHT = 320, 240
PATIENCE_S = 30.0


def program() -> str | None:
    built = Path(__file__).parents[2] / "target" / "debug" / "lastmeterd"
    found = os.environ.get("LASTMETERD") or shutil.which("lastmeterd")
    return found or (str(built) if built.exists() else None)


@pytest.fixture(scope="module")
def viewers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A camera with the pattern; where its viewers ask."""
    found = program()
    if found is None:
        pytest.skip("no lastmeterd: `make devices` builds it")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("camera")
    text = f'name = "the door"\nlisten = "127.0.0.1:{port}"\nsize = "{WIDTH}x{HEIGHT}"\nrate = 25\n'
    (folder / "camera.toml").write_text(text)
    running = subprocess.Popen([found, "camera", "run", "camera.toml"], cwd=folder, stdout=subprocess.DEVNULL)
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            assert time.monotonic() < until, "the camera did not begin"
            time.sleep(0.05)
    yield f"127.0.0.1:{port}"
    running.terminate()
    running.wait(timeout=20)


@pytest.mark.parametrize("address", ["http://{}/stream.mjpg", "rtsp://{}/"])
def test_opencv_reads_the_camera(viewers: str, address: str) -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    capture = cv2.VideoCapture(address.format(viewers))
    assert capture.isOpened()
    pictures = []
    for _ in range(10):
        good, picture = capture.read()
        assert good
        assert picture.shape == (HEIGHT, WIDTH, 3)
        pictures.append(picture)
    capture.release()
    # The block moves, so no two are the same; the ground of the digits is black.
    assert all((one != other).any() for one, other in zip(pictures, pictures[1:], strict=False))
    assert pictures[0][:4, :4].max() < 60


@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_shows_the_stream(viewers: str, width: int) -> None:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    from browser import chromium

    with chromium() as browser:
        page = browser.new_page(viewport={"width": width, "height": 900})
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"http://{viewers}/", wait_until="commit")
        shown = "document.images.length && document.images[0].naturalWidth > 0"
        eventually(lambda: bool(page.evaluate(shown)), "the picture is there")
        assert page.title() == "the door"
        size = page.evaluate("[document.images[0].naturalWidth, document.images[0].naturalHeight]")
        assert size == [WIDTH, HEIGHT]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # A drawn copy of the picture changes with time.
        page.evaluate(
            """window.sum = () => {
                const image = document.images[0], canvas = document.createElement('canvas');
                canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
                const drawing = canvas.getContext('2d'); drawing.drawImage(image, 0, 0);
                return drawing.getImageData(0, 0, canvas.width, canvas.height).data.reduce((a, b) => a + b, 0);
            }"""
        )
        first = page.evaluate("sum()")
        eventually(lambda: page.evaluate("sum()") != first, "the picture moves")
        if wanted := os.environ.get("LASTMETER_PICTURES"):
            page.screenshot(path=f"{wanted}/camera-{width}.png", timeout=20_000)
        assert faults == []
