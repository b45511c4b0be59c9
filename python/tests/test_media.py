"""Programs for pictures: the dispatcher, graphs, modules, captions, the index and the scores."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")
pytest.importorskip("av", reason="PyAV is not installed")

import numpy as np

import lastmeter as lm
from lastmeter.media import Graph, GraphError, Index, Lateness, Module, Source, Virtual, modules
from lastmeter.media import captions as captions_of
from lastmeter.media import command, files, films, measure, programs, score, shows, video
from lastmeter.media.ahead import Ahead
from lastmeter.media.dispatcher import Dispatcher
from lastmeter.media.index import BadIndex
from lastmeter.media.network import CameraSource
from lastmeter.media.payload import Caption, Event, Frame, Image, Payload


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


# Captions


def test_captions_come_back_from_webvtt() -> None:
    rng = random.Random(3)
    for _ in range(200):
        cues = []
        at = 0.0
        for _ in range(rng.randrange(1, 8)):
            at += rng.randrange(1, 5000) / 1000
            text = "".join(rng.choice("ab >&<.'\u00e9") for _ in range(rng.randrange(1, 30)))
            text = " ".join(text.split()) or "x"
            cues.append(Caption(round(at, 3), 1.5, text=text))
        back = captions_of.parse(captions_of.to_vtt(cues))
        assert [(round(c.time, 3), c.text) for c in back] == [(c.time, c.text) for c in cues]


def test_captions_of_any_text_never_break() -> None:
    rng = random.Random(4)
    pieces = [
        "WEBVTT\n",
        "00:01.000 --> 00:02.000\n",
        "1\n",
        "\n",
        "a<b>c\n",
        "\ufeff",
        "99:99:99,999 --> 0:0:0,0\n",
        "\x00",
    ]
    for _ in range(2000):
        text = "".join(rng.choice(pieces) for _ in range(rng.randrange(8)))
        try:
            captions_of.parse(text)
        except captions_of.CaptionError as error:
            assert str(error).startswith("line ")


# The index


def test_words_are_found_in_any_of_their_forms(tmp_path: Path) -> None:
    from lastmeter.media import Clip

    with Index(tmp_path / "index.db") as index:
        film = index.film("evening.mkv", "Evening", 60)
        clip = index.add(
            film, Clip("news", 0, 10, "storm", 2.0), [Caption(3, 2, text="Storms are coming")]
        )
        index.add(
            film, Clip("news", 10, 20, "court", 1.0), [Caption(12, 2, text="The judge said no")]
        )
        assert [found.id for found, _, _ in index.search("storm")] == [clip]
        assert index.search('"; DROP TABLE words') == [] and index.search("   ") == []
        assert [found.title for found in index.clips("news", ranked=True)] == ["storm", "court"]
        index.forget(film, "news")
        assert index.clips() == [] and index.search("storm") == []
    (tmp_path / "no.db").write_bytes(b"no database" * 100)
    with pytest.raises(BadIndex, match="is no index"):
        Index(tmp_path / "no.db")


# Films and programs


def test_a_generated_film_is_the_same_each_time() -> None:
    for name, make in programs.FILMS.items():
        one, other = make(7), make(7)
        assert np.array_equal(one.draw(30), other.draw(30)), name
        assert [c.text for c in one.captions] == [c.text for c in other.captions]
        assert not np.array_equal(one.draw(30), make(8).draw(30))


@pytest.mark.parametrize("program", ["room", "news", "jokes", "sport"])
def test_a_program_finds_what_a_film_shows(program: str) -> None:
    found = score.PROGRAMS[program](9)
    least = 0.97 if program == "room" else 0.85
    assert found.precision >= least and found.recall >= least, found


def test_the_recorder_gives_each_page_once() -> None:
    film = films.board(9, pages=2)
    from lastmeter.media.whiteboard import Whiteboard

    pages = score.play(film, Whiteboard()).pages
    assert len(pages) == 2
    assert all(
        score.same_page(page.image, true)
        for page, true in zip(pages, film.known["pages"], strict=True)
    )
    assert not score.same_page(pages[0].image, film.known["pages"][1])


def test_the_room_monitor_keeps_clips_within_its_room(tmp_path: Path) -> None:
    with Index(tmp_path / "index.db") as index:
        watched = programs.room("generated:room:2", tmp_path, index, keep=1)
        films_kept = list(tmp_path.glob("room-*.mp4"))
        assert len(films_kept) == 1, "only the last clip fits"
        assert [clip.path for clip in watched.clips] == [films_kept[0].name]
    frames = [
        payload
        for port, payload in video.decode(video.open_film(films_kept[0]), True, 0.0, None)
        if port == "out"
    ]
    (clip,) = watched.clips
    assert frames[-1].time == pytest.approx(clip.end - clip.begin + 2.0, abs=1.2), (
        "with what came before"
    )


def test_the_room_monitor_goes_on_when_the_disk_is_full(tmp_path: Path) -> None:
    from lastmeter.media.room import RoomMonitor

    monitor = score.play(films.room(2, 20.0), RoomMonitor(tmp_path, spare=1 << 60))
    assert monitor.dropped["disk full"] == len(monitor.spans) > 0
    assert list(tmp_path.iterdir()) == []


def test_a_film_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    writer = video.Writer(tmp_path / "film.mp4", rate=10)
    for _, frame in small(5).items():
        assert isinstance(frame, Frame)
        writer.picture(frame)
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_the_model_of_the_workstation_degrades_as_its_load_grows() -> None:
    late = {n: measure.model(n, seconds=20) for n in range(1, 5)}
    within = [late[n].within(0.015) for n in range(1, 5)]
    assert within == sorted(within, reverse=True) and within[0] == 1.0


def test_rates_of_the_published_programs_are_measured_and_modelled() -> None:
    found = list(measure.rates(frames=3))
    assert {(rate.width, rate.height) for rate in found} == set(measure.TABLE_8)
    for rate in found:
        assert rate.published == measure.TABLE_8[rate.width, rate.height][rate.program == "edge"]
        assert rate.seconds > 0 and rate.model <= measure.CAMERA
    modelled = {(rate.program, rate.width): rate.model for rate in found}
    # By hand: 18 + 8.3 ms for a quarter of the pixels, so 105 ms, the fourth picture of 30 a second.
    assert modelled["edge", 640] == 7.5 and modelled["puzzle", 640] == 15.0


@pytest.mark.parametrize("arguments", [["--help"], ["graph"], ["graph", "--json"], ["nothing"]])
def test_a_full_disk_is_an_error(arguments: list[str]) -> None:
    line = [sys.executable, "-m", "lastmeter.media", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 2, done.stderr
    # What is wrong with the arguments comes first.
    assert "No space left on device" in done.stderr or arguments == ["nothing"]
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def run(*arguments: str, status: int = 0) -> str:
    line = [sys.executable, "-m", "lastmeter.media", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def test_the_commands_answer(tmp_path: Path) -> None:
    assert "captions" in run("graph")
    out = tmp_path / "clips"
    lines = run(
        "jokes", "generated:comedy:2", "--out", str(out), "--json", "--traffic"
    ).splitlines()
    clips = [json.loads(line) for line in lines]
    assert len([clip for clip in clips if "title" in clip]) == 10
    assert clips[-1]["published"]["bits"] == "6 Mb/s"
    assert "did you mean" not in run("sport", "nowhere.mp4", "--out", str(out), status=2)
    assert "no index" in run("browse", str(tmp_path / "none"), status=2)
    assert "8 numbers" in run("board", "generated:board:1", "--corners", "1,2", status=2)
    assert command.main(["score", "jokes", "--seeds", "4", "--json"]) == 0


#: Commands of the page that need what a test does not have, or more time.
NOT_RUN = ("browse", "desk", "precision", "score", "rover", "puzzle")


def test_the_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "media.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    lines = [line for kind, text in blocks if kind == "sh" for line in text.splitlines()]
    commands = [line.split("#")[0].split()[2:] for line in lines]
    assert len(commands) > 10 and all(line.startswith("lastmeter media ") for line in lines)
    monkeypatch.chdir(tmp_path)
    for arguments in commands:
        if arguments[0] not in NOT_RUN:
            run(*arguments)
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, "media.md", "exec"), {})
        elif kind == "toml":
            assert "nowhere" not in text and files.build(tomllib.loads(text)).joints


def test_modules_cost_no_more_than_the_calls_that_they_make() -> None:
    """A chain of modules beside the same calls of OpenCV; the bound is wide, as other tests run beside."""
    import time

    import cv2

    pictures = [
        frame.image for _, frame in modules.Pattern(frames=120).items() if isinstance(frame, Frame)
    ]

    def alone() -> float:
        began = time.thread_time()
        for image in pictures:
            plane = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
            across, down = map(cv2.convertScaleAbs, cv2.spatialGradient(plane))
            cv2.addWeighted(across, 0.5, down, 0.5, 0)
        return time.thread_time() - began

    class Stored(Source):
        outputs = {"out": Frame}

        def items(self) -> Any:
            for number, image in enumerate(pictures):
                yield "out", Frame(number / 30, 1 / 30, image=image, number=number)

    def in_a_graph() -> float:
        graph = Graph()
        graph.add("stored", Stored())
        graph.add("edge", modules.Edge())
        graph.add("end", modules.Discard())
        graph.join("stored", "edge")
        graph.join("edge", "end")
        began = time.thread_time()
        graph.run()
        return time.thread_time() - began

    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        ratio = min(in_a_graph() / alone() for _ in range(5))
    finally:
        cv2.setNumThreads(threads)
    assert ratio < 1.25, ratio


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


def test_pictures_pass_by_the_host_of_a_desk_area_network(monkeypatch: pytest.MonkeyPatch) -> None:
    from lastmeter.media import desk

    built = Path(__file__).parents[2] / "target" / "debug" / "lastmeterd"
    if "LASTMETERD" not in os.environ and built.exists():
        monkeypatch.setenv("LASTMETERD", str(built))
    why = desk.missing()
    if why is not None:
        pytest.skip(why)
    found = desk.demonstrate(1.0, said=lambda _: None)
    answers = found["answers"]
    assert answers["to display"]["pictures"] >= 15 and answers["to display"]["refused"] == 0, found
    assert answers["to disk"]["pictures"] >= 15, found
    assert found["host"] < 100_000 < found["bytes"]["display"]["rx"], found
    assert answers["stranger"]["size"] == [320, 240] and answers["stranger"]["own"] == 0, found
    assert answers["stranger"]["beyond"] != 0, "nothing outside of the region"
    assert answers["camera"] == {"device": "camera", "width": 320, "height": 240, "receivers": 0}
    assert "owner" in answers["theft"]["error"], "the display shows what its owner says"
    assert "nobody has this token" in answers["camera to stranger"]["error"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[" * 30_000, "not a line of JSON"),
        ("\xff", "not a line of JSON"),
        ("[1]", "no object"),
        ('{"do": "stream"}', "only the owner"),
        ('{"do": "stream", "owner": "\\u00fc"}', "only the owner"),
        ('{"do": "stream", "owner": "mine", "from": "file:///etc/passwd"}', "http:// address"),
        ('{"do": "stream", "owner": "mine", "from": "http://x", "pictures": []}', "pictures: a whole"),
        ('{"do": "stream", "owner": "mine", "from": "http://x", "pictures": 1000000}', "pictures: a whole"),
    ],
)
def test_a_receiver_answers_whatever_it_is_asked(line: str, says: str) -> None:
    from lastmeter.media.desk import Receiver

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(line.encode("latin-1") + b"\n")
        Receiver("mine", "127.0.0.1:1")._converse(theirs)
        assert says in json.loads(ours.recv(65536))["error"]


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
