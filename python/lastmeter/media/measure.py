"""What modules cost here, and how precise the dispatcher is, beside what was published for workstations of 1994.

Published: the report of the Aurora testbed at MIT, section 4.4: Tables 8, 9 and 10, Figures 14 and 15.

Rows: A-80, A-107, A-108, A-109, A-110, A-112, A-113, A-114.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import modules
from .dispatcher import Lateness
from .graph import Graph, Source
from .payload import Frame, Payload
from .shows import Puzzle
from .video import FileSource, Writer
from .window import BrowserSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .graph import Module

#: Published milliseconds a frame of 320x240x8 on a DEC 3000/400 and a SPARCstation 10/512 (Table 9).
TABLE_9 = {
    "Exercise": (5.0, 4.5),
    "Edge": (18.0, 20.0),
    "WindowSink": (8.3, 10.0),
    "FileSource": (31.0, 38.0),
    "Vidboard": (33.0, None),
}
#: Published pixels a second of a DEC 3000/400 (section 4.4).
PIXELS = 15e6
#: Published bits a second of all streams that a DEC 3000/400 receives and shows (section 4.3).
SHOWN = 74e6
#: How often the least edge filter visits memory for a pixel: the pixel, its right and lower neighbours, the result.
EDGE_VISITS = 4
#: Bytes a second of a file read in order. Assumed: the usual disk of a DEC 3000/400, an RZ26, with 57 sectors of 512
#: bytes a track at 5400 turns a minute.
FILE = 57 * 512 * 5400 / 60
#: Pictures a second of the camera of the published programs.
CAMERA = 30.0
#: Published frames a second of the programs puzzle and edge on a DEC 3000/400 (Table 8).
TABLE_8 = {
    (640, 480): (12.0, 6.67),
    (320, 240): (30.0, 25.0),
    (212, 160): (15.0, 15.0),
    (160, 120): (30.0, 30.0),
}
#: Published shares of timeouts at most 5, 10, 15 and 20 ms late, for 1 to 4 processes (Table 10).
TABLE_10 = {
    1: (0.989, 0.999, 0.999, 0.999),
    2: (0.892, 0.960, 0.988, 0.993),
    3: (0.864, 0.915, 0.943, 0.967),
    4: (0.698, 0.776, 0.828, 0.857),
}
#: The published limit: the jitter of 3-2 pulldown (section 4.4).
LIMIT = 0.015


@dataclass
class Cost:
    """What a module takes for a frame here, in seconds of CPU, and published milliseconds where there are any."""

    module: str
    width: int
    height: int
    seconds: float
    published: tuple[float | None, ...]
    #: What the model of the DEC 3000/400 says, in seconds, where it says anything.
    model: float | None = None

    @property
    def pixels(self) -> float:
        """Pixels a second."""
        return self.width * self.height / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """For JSON: seconds."""
        return {
            "module": self.module,
            "width": self.width,
            "height": self.height,
            "seconds": self.seconds,
            "frames_per_second": 1 / self.seconds,
            "pixels_per_second": self.pixels,
            "published": [None if ms is None else ms / 1e3 for ms in self.published],
            "model": self.model,
        }


def workstation(module: str, width: int, height: int) -> float | None:
    """What a module takes for a frame on the modelled DEC 3000/400, in seconds; None if nothing is known of it.

    Nothing is taken from Table 9. Exercise follows from the published pixels a second, Edge from four visits for each
    pixel at the same pace, WindowSink from the bits a second of all streams, FileSource from the disk's turning, and the
    Vidboard gives whole frames.

    >>> [round(1e3 * (workstation(name, 320, 240) or 0), 1) for name in TABLE_9]
    [5.1, 20.5, 8.3, 29.2, 33.3]
    """
    pixels = width * height
    match module:
        case "Exercise":
            return pixels / PIXELS
        case "Edge":
            return EDGE_VISITS * pixels / PIXELS
        case "WindowSink":
            return 8 * pixels / SHOWN
        case "FileSource":
            return pixels / FILE
        case "Vidboard":
            return 1 / CAMERA
    return None


@dataclass
class Rate:
    """Frames a second of a program: published, by the model, and what one core of this machine could do."""

    program: str
    width: int
    height: int
    published: float
    model: float
    #: Seconds of CPU for a frame here.
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON: frames a second."""
        return {
            "program": self.program,
            "width": self.width,
            "height": self.height,
            "published": self.published,
            "model": self.model,
            "seconds": self.seconds,
            "frames_per_second": 1 / self.seconds,
        }


def modelled_rate(program: str, width: int, height: int) -> float:
    """Frames a second on the workstation: a frame is worked on, shown, and only then the next asked of the camera.

    ``edge`` takes Edge's time, ``puzzle`` visits each pixel once, as Exercise does; both show the frame with
    WindowSink. A camera of 30 frames/s gives every first, second, ... of its frames.

    >>> [modelled_rate("edge", *size) for size in TABLE_8]
    [7.5, 30.0, 30.0, 30.0]
    """
    work = workstation("Edge" if program == "edge" else "Exercise", width, height)
    shown = workstation("WindowSink", width, height)
    assert work is not None and shown is not None
    return CAMERA / math.ceil(CAMERA * (work + shown))


def rates(frames: int = 100) -> Iterator[Rate]:
    """Table 8, measured here: both programs, without a pause between frames, into a window for browsers."""
    for size, published in TABLE_8.items():
        pictures = _pictures(*size)
        for program, known in zip(("puzzle", "edge"), published, strict=True):
            graph = Graph(title=program)
            graph.add("camera", _Stored(pictures, frames))
            graph.add("program", modules.Edge() if program == "edge" else Puzzle(seed=1))
            graph.add("window", BrowserSink())
            graph.join("camera", "program")
            graph.join("program", "window")
            seconds = _cpu(graph) / frames
            yield Rate(program, *size, known, modelled_rate(program, *size), seconds)


class _Stored(Source):
    """The same few pictures again and again."""

    outputs = {"out": Frame}

    def __init__(self, pictures: list[Any], frames: int) -> None:
        super().__init__()
        self.pictures, self.frames = pictures, frames

    def items(self) -> Iterator[tuple[str, Payload]]:
        for number in range(self.frames):
            image = self.pictures[number % len(self.pictures)]
            yield "out", Frame(number / CAMERA, 1 / CAMERA, image=image, number=number)


def _pictures(width: int, height: int) -> list[Any]:
    """Eight pictures of 8 bits, as the published ones."""
    source = modules.Pattern(frames=8, width=width, height=height, colour=False)
    return [frame.image for _, frame in source.items() if isinstance(frame, Frame)]


def _cpu(graph: Graph) -> float:
    """Seconds of CPU, of all threads, of a run."""
    began = time.process_time()
    graph.run()
    return time.process_time() - began


def filters() -> dict[str, Callable[[], Module]]:
    """The filters that Figure 14 and Table 9 speak of, and ours."""
    return {
        "Exercise": modules.Exercise,
        "Edge": modules.Edge,
        "Difference": modules.Difference,
        "Threshold": modules.Threshold,
        "Grey": modules.Grey,
        "Scale to half": lambda: modules.Scale(160, 120),
        "Text": modules.Text,
        "JpegEncode": modules.JpegEncode,
        "Keyframes": modules.Keyframes,
    }


def costs(frames: int = 200, width: int = 320, height: int = 240) -> Iterator[Cost]:
    """Measures each module alone, on pictures of 8 bits as the published ones."""
    rng = np.random.default_rng(1)
    pictures = [rng.integers(0, 256, (height, width), np.uint8) for _ in range(8)]
    for name, make in filters().items():
        seconds = _alone(make(), pictures, frames)
        model = workstation(name, width, height)
        yield Cost(name, width, height, seconds, TABLE_9.get(name, ()), model)
    seconds = _into_a_window(pictures, frames)
    model = workstation("WindowSink", width, height)
    yield Cost("WindowSink", width, height, seconds, TABLE_9["WindowSink"], model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        writer = Writer(path, rate=30)
        for number in range(frames):
            writer.picture(Frame(number / 30, 1 / 30, image=pictures[number % 8], number=number))
        writer.finish()
        graph = Graph(title="file")
        source = graph.add("file", FileSource(path, colour=False))
        graph.add("end", modules.Discard())
        graph.join("file.out", "end.in")
        seconds = _cpu(graph) / max(1, source.handled)
        model = workstation("FileSource", width, height)
        yield Cost("FileSource", width, height, seconds, TABLE_9["FileSource"], model)


def _into_a_window(pictures: list[Any], frames: int) -> float:
    graph = Graph(title="window")
    graph.add("stored", _Stored(pictures, frames))
    graph.add("window", BrowserSink())
    graph.join("stored", "window")
    return _cpu(graph) / frames


def _alone(module: Module, pictures: list[Any], frames: int) -> float:
    graph = Graph(title=module.name)
    graph.add("module", module)
    began = time.process_time()
    for number in range(frames):
        module.process("in", Frame(number / 30, 1 / 30, image=pictures[number % 8], number=number))
    return (time.process_time() - began) / frames


# The dispatcher's precision


def vsdemo(seconds: float, width: int = 320, height: int = 240, rate: float = 30.0) -> Lateness:
    """The load of the published runs: live pictures through a filter, in a process of its own (A-80)."""
    graph = Graph(title="vsdemo")
    graph.add(
        "camera", modules.Pattern(width=width, height=height, rate=rate, colour=False, pace=1.0)
    )
    graph.add("edge", modules.Edge())
    graph.add("end", modules.Discard())
    graph.join("camera.out", "edge.in")
    graph.join("edge.out", "end.in")
    tick(graph, seconds)
    graph.run(seconds)
    return graph.dispatcher.lateness


def tick(graph: Graph, seconds: float, every: float = 0.01) -> None:
    """Timeouts besides those of the pictures, at a hundred a second."""
    begin = graph.dispatcher.now()

    def again(number: int) -> None:
        if number * every < seconds:
            graph.dispatcher.timeout(begin + number * every, lambda: again(number + 1))

    again(1)


def _child(seconds: float, send: Any) -> None:
    send.send(json.dumps(vsdemo(seconds).to_dict()))
    send.close()


def precision(processes: int, seconds: float = 5.0) -> Lateness:
    """The lateness of all timeouts of so many processes at once (A-112, A-113)."""
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe(duplex=False) for _ in range(processes)]
    children = [
        context.Process(target=_child, args=(seconds, send), daemon=True) for _, send in pairs
    ]
    for child in children:
        child.start()
    whole = Lateness()
    try:
        for receive, _ in pairs:
            if not receive.poll(seconds + 60):
                raise TimeoutError("a process of the measurement did not answer")
            found = json.loads(receive.recv())
            total = found["mean"] * found["count"]
            whole.add(Lateness(found["counts"], found["worst"], total, found["beyond"]))
    finally:
        for child in children:
            child.join(timeout=5)
            child.kill()
    return whole


def model(
    processes: int,
    *,
    quantum: float = 0.010,
    frame: float = 0.033,
    work: float = 0.0083,
    every: float = 0.01,
    seconds: float = 60.0,
    seed: int = 1,
) -> Lateness:
    """The same runs on the published workstation, in virtual time: processes of equal priority take turns on one CPU.

    | parameter | unit | default | source |
    |---|---|---|---|
    | ``quantum`` | s | 0.010 | assumed: how long a process runs while others wait |
    | ``frame`` | s | 0.033 | the next picture comes this long after the one before was asked for (Table 9, Vidboard) |
    | ``work`` | s | 0.0083 | one callback shows a picture (Table 9, WindowSink) |
    | ``every`` | s | 0.01 | assumed: timeouts between those of pictures |

    Nothing is fitted to Table 10. A callback runs to its end before the next one of its process; a picture is
    asked for when the one before has been shown, as in the closed loop of the Vidboard.
    """
    rng = np.random.default_rng([seed, processes])
    late = Lateness()
    picture = [float(rng.uniform(0, frame)) for _ in range(processes)]
    tick = [float(rng.uniform(0, every)) for _ in range(processes)]
    left = [0.0] * processes
    turn, now = 0, 0.0
    while now < seconds:
        due = [now if left[p] > 0 else min(picture[p], tick[p]) for p in range(processes)]
        ready = [p for p in range(processes) if due[p] <= now]
        if not ready:
            now = min(due)
            continue
        # The next one in turn.
        p = min(ready, key=lambda p: (p - turn) % processes)
        turn = p + 1
        end = now + quantum
        while now < end:
            if left[p] > 0:
                step = min(left[p], end - now)
                left[p] -= step
                now += step
                if left[p] <= 1e-12:
                    left[p] = 0.0
            elif tick[p] <= min(picture[p], now):
                late.enter(now - tick[p])
                tick[p] += every
            elif picture[p] <= now:
                late.enter(now - picture[p])
                left[p] = work
                picture[p] = max(picture[p] + frame, now + work)
            else:
                break
    return late


def precision_table(seconds: float = 5.0, most: int = 4) -> Iterator[dict[str, Any]]:
    """Table 10: published, the model of its workstation, and here; a row for each number of processes."""
    for processes in range(1, most + 1):
        here, modelled = precision(processes, seconds), model(processes)
        limits = (0.005, 0.010, 0.015, 0.020)
        yield {
            "processes": processes,
            "limits": list(limits),
            "published": list(TABLE_10[processes]),
            "model": [modelled.within(limit) for limit in limits],
            "here": [here.within(limit) for limit in limits],
            "p99": here.quantile(0.99),
            "worst": here.worst,
            "accepted": here.quantile(0.99) <= LIMIT,
            "counts": here.counts,
            "cores": os.cpu_count() or 1,
        }
