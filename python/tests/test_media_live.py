"""Live pictures into a real display: `lastmeterd display`, without which the test is skipped with a message."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")
pytest.importorskip("av", reason="PyAV is not installed")

from lastmeter.media import Graph, desk, modules
from lastmeter.media.network import WindowSink, wait_for_port

TOKEN = "0123456789abcdef"
BUILT = Path(__file__).parents[2] / "target" / "debug" / "lastmeterd"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at now."""
    places = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [place.getsockname()[1] for place in places]
    for place in places:
        place.close()
    return ports


@pytest.fixture
def display(tmp_path: Path) -> Iterator[str]:
    """The address at which a display of 800x600 takes commands."""
    daemon = desk.daemon() or (str(BUILT) if BUILT.exists() else None)
    if daemon is None:
        pytest.skip("`lastmeterd` is not found: `make devices` builds it")
    listen, commands = free_ports(2)
    config = tmp_path / "display.toml"
    config.write_text(
        f'name = "test"\nsize = "800x600"\nlisten = "127.0.0.1:{listen}"\n'
        f'commands = "127.0.0.1:{commands}"\n[clients.owner]\ntoken = "{TOKEN}"\n'
    )
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    child = subprocess.Popen(
        [daemon, "display", "run", str(config)], stdout=subprocess.DEVNULL, env=environment
    )
    try:
        assert wait_for_port("127.0.0.1", commands, 60.0), "the display does not start"
        yield f"127.0.0.1:{commands}"
    finally:
        child.terminate()
        child.wait(30)


def test_edges_are_found_and_shown_live_on_one_core(display: str) -> None:
    """A-111: 640x480 at 30 frames/s; time of CPU, so that what runs beside does not count."""
    graph = Graph(title="edges")
    graph.add("camera", modules.Pattern(frames=60, rate=30, pace=1.0))
    graph.add("edge", modules.Edge())
    window = graph.add("window", WindowSink(display, TOKEN))
    graph.join("camera", "edge")
    graph.join("edge", "window")
    began = time.process_time()
    graph.run()
    seconds = (time.process_time() - began) / 60
    graph.dispatcher.close()
    assert window.handled == 60 and window.dropped.total() == 0
    assert graph.paths["window"].packets == 60, "the display answered that each is drawn"
    print(f"{seconds * 1e3:.2f} ms of CPU for a frame")
    assert seconds < 1 / 30
