"""The frame of programs for pictures: the dispatcher, graphs, modules."""

from __future__ import annotations

import json
import random
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")
pytest.importorskip("av", reason="PyAV is not installed")

import numpy as np

import lastmeter as lm
from lastmeter.media import Graph, GraphError, Lateness, Module, Source, Virtual, modules
from lastmeter.media import beside, files, programs, shows, video
from lastmeter.media.ahead import Ahead
from lastmeter.media.dispatcher import Dispatcher
from lastmeter.media.network import CameraSource
from lastmeter.media.payload import Event, Frame, Image, Payload


class Slow(Module):
    """Takes a while of the clock for each frame."""

    inputs = {"in": Frame}
    outputs = {"out": Frame}

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def process(self, port: str, payload: Payload) -> None:
        clock = self.dispatcher.clock
        assert isinstance(clock, Virtual)
        clock._now += self.seconds
        self.send("out", payload.derive())


class Camera(modules.Pattern):
    live = True


def joined(source: Source, *others: Module, clock: Any = None) -> tuple[Graph, modules.Collect]:
    graph = Graph(Dispatcher(clock or Virtual()))
    graph.add("source", source)
    before = "source.out"
    for number, module in enumerate(others):
        graph.add(f"m{number}", module)
        graph.join(before, f"m{number}.in")
        before = f"m{number}.out"
    end: modules.Collect = graph.add("end", modules.Collect())
    graph.join(before, "end.in")
    return graph, end


def small(frames: int = 10, pace: float = 0.0) -> modules.Pattern:
    return modules.Pattern(frames=frames, width=32, height=24, rate=10, pace=pace)


# The dispatcher


def test_timeouts_are_called_in_order_of_their_instants() -> None:
    dispatcher = Dispatcher(Virtual())
    called: list[float] = []
    for due in (3.0, 1.0, 2.0):
        dispatcher.timeout(due, lambda due=due: called.append(due))  # type: ignore[misc]
    taken_back = dispatcher.timeout(1.5, lambda: called.append(1.5))
    taken_back.cancel()
    dispatcher.run()
    assert called == [1.0, 2.0, 3.0]
    assert dispatcher.lateness.count == 3 and dispatcher.lateness.worst == 0


def test_a_long_callback_makes_the_next_timeout_late() -> None:
    clock = Virtual()
    dispatcher = Dispatcher(clock)

    def long() -> None:
        clock._now += 0.012

    dispatcher.timeout(1.0, long)
    dispatcher.timeout(1.005, lambda: None)
    dispatcher.run()
    assert dispatcher.lateness.worst == pytest.approx(0.007)
    assert dispatcher.lateness.within(0.005) == 0.5 and dispatcher.lateness.within(0.015) == 1.0


def test_work_of_the_pool_comes_back_as_a_callback() -> None:
    dispatcher = Dispatcher()
    found: list[int] = []
    dispatcher.pool(lambda: 6 * 7, lambda future: found.append(future.result()))
    dispatcher.run()
    dispatcher.close()
    assert found == [42]


def test_the_quantile_of_lateness_is_right_to_its_step() -> None:
    late = Lateness()
    for number in range(1000):
        late.enter(number * 1e-5)
    assert late.quantile(0.5) == pytest.approx(0.005, abs=Lateness.STEP)
    assert late.quantile(0.99) == pytest.approx(0.0099, abs=Lateness.STEP)
    for number in range(1000):
        late.enter(0.02 + number * 1e-4)
    assert 0.095 <= late.quantile(0.9) <= 2 * 0.095, "beyond 20 ms to the doubling"
    assert late.quantile(1.0) == late.worst == pytest.approx(0.1199)
    both = Lateness()
    both.add(late)
    both.add(late)
    assert both.count == 4000 and both.quantile(0.9) == late.quantile(0.9)


# Graphs


def test_a_file_waits_for_a_slow_module_and_loses_nothing() -> None:
    graph, end = joined(small(pace=1.0), Slow(0.25))
    graph.run()
    assert [frame.number for frame in end.payloads] == list(range(10))
    assert graph.modules["source"].dropped.total() == 0


def test_a_camera_drops_what_a_slow_module_cannot_take() -> None:
    camera = Camera(frames=40, width=32, height=24, rate=10, pace=1.0)
    graph, end = joined(camera, Slow(0.25))
    graph.run()
    lost = graph.modules["source"].dropped["no room"]
    assert lost > 10 and len(end.payloads) + lost == 40
    numbers = [frame.number for frame in end.payloads]
    assert numbers == sorted(numbers)
    words = graph.ledger()["verdict"]["words"]
    assert "m0" in words


class Elsewhere(Ahead):
    """Frames that a thread hands over once it is allowed to."""

    outputs: ClassVar[dict[str, type[Payload]]] = {"out": Frame}

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.frames = frames
        self.allowed, self.given = threading.Event(), threading.Event()

    def items(self) -> Iterator[tuple[str, Payload]]:
        assert self.allowed.wait(60)
        for number in range(self.frames):
            yield "out", Frame(number / 10, 0.1, image=np.zeros((2, 2), np.uint8), number=number)
        self.given.set()


class CameraElsewhere(Elsewhere):
    live = True


def test_the_dispatcher_does_not_wait_for_a_source_without_frames() -> None:
    graph = Graph()
    source = graph.add("source", Elsewhere(30))
    end = graph.add("end", modules.Collect())
    graph.join("source", "end")
    # It is the dispatcher that allows the first frame: one that waited for it would wait for ever.
    graph.dispatcher.timeout(graph.dispatcher.now() + 0.01, source.allowed.set)
    graph.run()
    graph.dispatcher.close()
    assert [frame.number for frame in end.payloads] == list(range(30))


def test_a_camera_elsewhere_drops_what_is_out_of_date() -> None:
    graph = Graph()
    source = graph.add("source", CameraElsewhere(50))

    def slow(payload: Payload) -> None:
        assert source.given.wait(60), "a camera waits for nobody"

    graph.add("slow", modules.Call(slow))
    graph.join("source", "slow")
    source.allowed.set()
    graph.run()
    graph.dispatcher.close()
    lost = source.dropped["out of date"]
    assert lost >= 50 - 8 - 4 and source.dropped.total() + graph.modules["slow"].handled == 50


def test_a_camera_that_breaks_off_is_opened_again() -> None:
    import cv2

    picture = cv2.imencode(".jpg", np.full((48, 64, 3), 90, np.uint8))[1].tobytes()
    head = f"--f\r\nContent-Type: image/jpeg\r\nContent-Length: {len(picture)}\r\n\r\n"
    asked = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=f")
            self.end_headers()
            for _ in range(6):
                self.wfile.write(head.encode() + picture + b"\r\n")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    graph = Graph()
    camera = graph.add("camera", CameraSource(f"http://127.0.0.1:{server.server_address[1]}/"))

    def count(payload: Payload) -> None:
        if len(asked) >= 3:
            graph.stop()

    graph.add("count", modules.Call(count))
    graph.join("camera.out", "count")
    graph.run(60)
    graph.dispatcher.close()
    server.shutdown()
    server.server_close()
    assert len(asked) >= 3 and camera.dropped["broke off"] >= 2
    with pytest.raises(video.VideoError, match="cannot read"):
        joined(CameraSource(f"http://127.0.0.1:{server.server_address[1]}/"))[0].run()


def test_what_a_source_elsewhere_raises_ends_the_run() -> None:
    graph = Graph()
    graph.add("source", video.FileSource("nowhere.mp4"))
    graph.add("end", modules.Discard())
    graph.join("source.out", "end")
    with pytest.raises(video.VideoError, match="nowhere.mp4"):
        graph.run()


def test_pictures_are_handed_on_not_copied() -> None:
    class Seen(modules.Exercise):
        images: ClassVar[list[Any]] = []

        def change(self, image: Image) -> Image:
            self.images.append(image)
            return super().change(image)

    graph, end = joined(small(), Seen())
    seen = Seen.images
    graph.run()
    assert all(frame.image is image for frame, image in zip(end.payloads, seen, strict=True))


def test_the_stages_of_a_ledger_sum_to_the_latency() -> None:
    graph, _ = joined(small(pace=1.0), Slow(0.02), Slow(0.05))
    graph.run()
    ledger = lm.Ledger.from_json(json.dumps(graph.ledger()))
    assert ledger.balance["latency_residual"] < 1e-9
    assert ledger.latency == pytest.approx(0.07, rel=0.2)
    assert [stage["stage"] for stage in ledger.stages.rows()] == ["source", "m0", "m1", "end"]
    assert "<html" in ledger.to_html()


def test_a_graph_that_runs_on_does_not_grow() -> None:
    """Times of sources and modules are added up as they come; what waits to be added up is bounded."""
    graph = Graph(Dispatcher(Virtual()))
    camera = graph.add("camera", Camera(width=32, height=24, rate=30.0))
    end = graph.add("end", modules.Discard())
    graph.join("camera", "end")
    sizes: dict[int, int] = {}

    def look() -> None:
        if end.handled % 500 == 0:
            sizes.setdefault(end.handled, tracemalloc.get_traced_memory()[0])
        if end.handled >= 2000:
            graph.stop()
        else:
            graph.dispatcher.defer(look)

    tracemalloc.start()
    try:
        look()
        graph.run()
    finally:
        tracemalloc.stop()
    assert camera.handled >= 2000 and sorted(sizes) == [0, 500, 1000, 1500, 2000]
    # Samples of times fill up, 256 times wait to be added up; what is kept of every frame would be 250 kB.
    assert sizes[2000] - sizes[1000] < 150_000, "memory grows with the frames"


def test_joints_that_cannot_be_say_why() -> None:
    graph = Graph()
    graph.add("pattern", small())
    graph.add("level", modules.AudioLevel())
    graph.add("edge", modules.Edge())
    with pytest.raises(GraphError, match=r"`pattern.out` gives frame, but `level.in` takes sound"):
        graph.join("pattern", "level")
    graph.join("pattern", "edge")
    with pytest.raises(GraphError, match=r"`edge.in` is fed twice"):
        graph.join("pattern", "edge")
    with pytest.raises(GraphError, match=r"no module is called `edges`"):
        graph.join("pattern", "edges")
    with pytest.raises(GraphError, match=r"`level.in` is fed by nothing"):
        graph.run()


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({}, r"\[modules\]` is missing"),
        ({"moduls": {}}, "did you mean `modules`"),
        ({"modules": {"a": {"kind": "patern"}}}, "did you mean `pattern`"),
        ({"modules": {"a": {"kind": "pattern", "frame": 1}}}, "did you mean `frames`"),
        ({"modules": {"a": {"kind": "pattern"}}, "chains": ["a ->"]}, "joins nothing"),
        (
            {"modules": {"a": {"kind": "perspective", "corners": [], "width": 1, "height": 1}}},
            "four corners",
        ),
        (
            {"modules": {"a": {"kind": "pattern"}}, "joints": [{"from": "a"}]},
            'write `from = "camera"`',
        ),
    ],
)
def test_a_graph_file_that_is_wrong_says_what_would_be_right(document: Any, says: str) -> None:
    with pytest.raises(GraphError, match=says):
        files.build(document)


def test_a_graph_from_a_file_runs(tmp_path: Path) -> None:
    path = tmp_path / "edges.toml"
    path.write_text(
        'title = "edges"\nchains = ["camera -> edge -> end"]\n[modules]\n'
        'camera = { kind = "pattern", frames = 5, width = 64, height = 48 }\n'
        'edge = { kind = "edge" }\nend = { kind = "discard" }\n'
    )
    graph = files.load(path)
    graph.run()
    assert graph.modules["end"].handled == 5
    assert "edge(" in files.kinds() and "in: frame --> out: frame" in files.kinds()


def test_a_graph_file_names_a_picture_to_look_for(tmp_path: Path) -> None:
    import cv2

    still = np.random.default_rng(3).integers(0, 255, (48, 64), np.uint8)
    picture = tmp_path / "corner.png"
    cv2.imwrite(str(picture), still[20:32, 30:46])
    graph = files.build(
        {
            "chains": ["camera -> find -> end"],
            "modules": {
                "camera": {"kind": "pattern", "frames": 1, "width": 64, "height": 48},
                "find": {"kind": "template", "template": str(picture), "least": 0.9},
                "end": {"kind": "discard"},
            },
        }
    )
    find = graph.modules["find"]
    found: list[Event] = []

    def keep(port: str, payload: Payload) -> None:
        assert port == "out" and isinstance(payload, Event)
        found.append(payload)

    find.send = keep  # type: ignore[method-assign]
    find.process("in", Frame(0.0, 0.1, image=still, number=0))
    assert [(one.values["x"], one.values["y"]) for one in found] == [(30, 20)]
    with pytest.raises(GraphError, match="cannot read the picture"):
        files.build({"modules": {"a": {"kind": "template", "template": "none.png"}}})


# Modules


def test_edges_are_where_brightness_changes() -> None:
    image = np.zeros((40, 40), np.uint8)
    image[:, 20:] = 200
    edges = modules.Edge().change(image)
    assert edges[:, 19:21].min() > 100 and edges[:, :18].max() == 0 and edges[:, 22:].max() == 0


def test_edges_are_those_of_the_two_sobel_operators() -> None:
    import cv2

    rng = np.random.default_rng(2)
    image = rng.integers(0, 256, (48, 65, 3), np.uint8)
    plane = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    across = cv2.convertScaleAbs(cv2.Sobel(plane, cv2.CV_16S, 1, 0))
    down = cv2.convertScaleAbs(cv2.Sobel(plane, cv2.CV_16S, 0, 1))
    assert np.array_equal(
        modules.Edge().change(image), cv2.addWeighted(across, 0.5, down, 0.5, 0)
    )


def test_a_payload_derives_what_it_has_and_nothing_else() -> None:
    frame = Frame(2.0, 0.1, image=np.zeros((2, 2), np.uint8), number=7, key=True)
    other = frame.derive(time=3.0)
    assert other.image is frame.image and other == Frame(3.0, 0.1, "", 0.0, None, frame.image, 7, True)
    with pytest.raises(TypeError, match="Frame has no colour"):
        frame.derive(colour=1)


def test_a_jpeg_comes_back_and_nonsense_is_dropped() -> None:
    graph, end = joined(small(3), modules.JpegEncode(95), modules.JpegDecode())
    graph.run()
    original = list(small(3).items())
    for frame, (_, sent) in zip(end.payloads, original, strict=True):
        assert isinstance(sent, Frame)
        difference = np.abs(frame.image.astype(int) - sent.image)
        assert float(difference.mean()) < 12
    decode = modules.JpegDecode()
    from lastmeter.media import Coded

    decode.process("in", Coded(0.0, data=b"no picture"))
    assert decode.dropped == {"not a JPEG": 1}


def test_the_rover_shows_its_rate_whatever_the_cameras_send() -> None:
    rover = shows.Rover(4, 64, 48, rate=10.0)
    graph = Graph(Dispatcher(Virtual()))
    graph.add("rover", rover)
    image = np.zeros((24, 32, 3), np.uint8)
    # Four cameras of 7 frames a second, none of which keeps step with the window.
    times = sorted((number + camera / 4) / 7 for number in range(70) for camera in range(4))
    for number, at in enumerate(times):
        rover.process(f"camera{number % 4}", Frame(at, 1 / 7, image=image, number=number))
    assert 99 <= rover.sent["out"] <= 101 and rover.dropped["above the rate"] + rover.sent["out"] == 280


def test_who_holds_up_a_graph_is_said() -> None:
    graph, _ = joined(small(3, pace=1.0), Slow(0.02))
    graph.run()
    graph.dispatcher.lateness.enter(0.050)
    graph.kept_waiting = 0.2
    words = graph.ledger()["verdict"]["words"]
    assert "other programs" in words and "20%" in words
    graph.kept_waiting = 0.0
    assert "other programs" not in graph.ledger()["verdict"]["words"]


def test_a_puzzle_can_be_solved_by_sliding_back() -> None:
    game = shows.Puzzle(3, seed=5, shuffles=0)
    assert game.solved
    holes = [game.hole]
    rng = random.Random(1)
    for _ in range(30):
        place = rng.choice(game._neighbours())
        holes.append(place)
        assert game.slide(place)
    assert not game.slide(game.hole)
    for place in reversed(holes[:-1]):
        assert game.slide(place)
    assert game.solved
    image = np.arange(9 * 9, dtype=np.uint8).reshape(9, 9)
    assert game.arrange(image).shape == image.shape


def calls(chain: str, pictures: int) -> int:
    """Functions that Python calls, its own and others, while so many pictures go through a chain of modules."""
    count = 0

    def each(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    images = [frame.image for _, frame in small(pictures).items() if isinstance(frame, Frame)]
    sys.setprofile(each)
    try:
        beside.by_graph(beside.CHAINS[chain][1], images)
    finally:
        sys.setprofile(None)
    return count


# Counted, not timed: `lastmeter media cost` measures what a graph adds to the calls that its modules make.
@pytest.mark.parametrize(("chain", "most"), [("JPEG", 66), ("edges as JPEG", 91)])
def test_a_graph_adds_few_calls_to_those_that_its_modules_make(chain: str, most: int) -> None:
    each = (calls(chain, 120) - calls(chain, 20)) / 100
    print(f"{chain}: {each:.1f} calls for a picture")
    assert each <= most


def test_modules_are_measured_beside_the_calls_that_they_make() -> None:
    one = beside.beside("edges as JPEG", blocks=1)
    # Far apart only if one side did not do what the other did.
    assert one.calls > 1e-5 and 0.2 < one.ratio < 20
    assert set(one.to_dict()) == {"chain", "calls", "graph", "ratio", "noise"}


def test_pictures_go_through_pipelines_of_gstreamer() -> None:
    import shutil

    from lastmeter.media import bridge

    if shutil.which(bridge.LAUNCH) is None:
        pytest.skip(f"{bridge.LAUNCH} is not installed")
    graph, end = joined(
        bridge.PipelineSource("videotestsrc num-buffers=10 pattern=white", width=321, height=24),
    )
    graph.run()
    assert len(end.payloads) == 10
    assert end.payloads[0].image.shape == (24, 321, 3) and end.payloads[0].image.min() > 250
    graph = Graph()
    graph.add("source", small())
    sink = graph.add("sink", bridge.PipelineSink("fakesink"))
    graph.join("source", "sink")
    graph.run()
    assert sink.handled == 10 and sink.dropped.total() == 0


def test_events_of_keyframes_are_at_cuts() -> None:
    film = programs.FILMS["news"](1)
    graph = Graph(Dispatcher(Virtual()))
    graph.add("film", film.source())
    graph.add("keys", modules.Keyframes())
    graph.add("frames", modules.Discard())
    cuts: modules.Collect = graph.add("cuts", modules.Collect())
    graph.join("film.out", "keys.in")
    graph.join("keys.out", "frames.in")
    graph.join("keys.cuts", "cuts.in")
    graph.run()
    assert len(cuts.payloads) >= 8 and all(isinstance(cut, Event) for cut in cuts.payloads)
