"""Modules in a graph beside the very calls of OpenCV that they make, in one program, by turns.

Each block of pictures goes through the calls in a loop, then through a graph of modules. What counts is the time from
one picture to the next that a tenth of them do not exceed, of the best block: what other programs took away is left
out, on both sides alike.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import cv2

from . import modules
from .graph import Graph, Source
from .payload import Frame, Image, Payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .graph import Module

#: Blocks of pictures for each side, and pictures of a block.
BLOCKS, PICTURES = 12, 60
#: The share of pictures whose time is looked at.
SHARE = 0.1


def edges(image: Image) -> Any:
    """The calls of the module Edge."""
    plane = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    across, down = map(cv2.convertScaleAbs, cv2.spatialGradient(plane))
    return cv2.addWeighted(across, 0.5, down, 0.5, 0)


def sobel(image: Image) -> Any:
    """The same picture by the textbook: a pass for each direction."""
    plane = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    across = cv2.convertScaleAbs(cv2.Sobel(plane, cv2.CV_16S, 1, 0))
    down = cv2.convertScaleAbs(cv2.Sobel(plane, cv2.CV_16S, 0, 1))
    return cv2.addWeighted(across, 0.5, down, 0.5, 0)


def jpeg(image: Image) -> Any:
    """The call of the module JpegEncode."""
    return cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 80])


#: The calls, and the modules that do the same.
CHAINS: dict[str, tuple[Callable[[Image], Any], tuple[Callable[[], Module], ...]]] = {
    "edges as JPEG": (
        lambda image: jpeg(edges(image)),
        (modules.Edge, modules.JpegEncode),
    ),
    "JPEG": (jpeg, (modules.JpegEncode,)),
    "edges": (edges, (modules.Edge,)),
    "edges by the textbook": (sobel, (modules.Edge,)),
}


@dataclass
class Beside:
    """Seconds for a picture of 640x480 in colour, by the calls alone and by modules."""

    chain: str
    calls: float
    graph: float
    #: By how much the blocks of calls differ from the best one, in the median.
    noise: float

    @property
    def ratio(self) -> float:
        """Of the graph's time to that of the calls."""
        return self.graph / self.calls

    def to_dict(self) -> dict[str, Any]:
        """For JSON: seconds."""
        return {
            "chain": self.chain,
            "calls": self.calls,
            "graph": self.graph,
            "ratio": self.ratio,
            "noise": self.noise,
        }


class _Stamped(Source):
    """Pictures, and when each was asked for."""

    outputs = {"out": Frame}

    def __init__(self, pictures: list[Image]) -> None:
        super().__init__()
        self.pictures = pictures
        self.stamps: list[float] = []

    def items(self) -> Iterator[tuple[str, Payload]]:
        for number, image in enumerate(self.pictures):
            self.stamps.append(time.perf_counter())
            yield "out", Frame(number / 30, 1 / 30, image=image, number=number)


def _step(stamps: list[float]) -> float:
    # A graph's first pictures fill its inputs, and its last ones empty them.
    steps = sorted(late - early for early, late in pairwise(stamps[4:-3]))
    return steps[int(SHARE * len(steps))]


def _by_calls(call: Callable[[Image], Any], pictures: list[Image]) -> float:
    stamps = []
    for image in pictures:
        stamps.append(time.perf_counter())
        call(image)
    return _step(stamps)


def by_graph(makes: tuple[Callable[[], Module], ...], pictures: list[Image]) -> float:
    """Seconds from one picture to the next through a graph of these modules."""
    graph = Graph(title="beside")
    source = graph.add("source", _Stamped(pictures))
    before = "source"
    for number, make in enumerate(makes):
        graph.add(f"m{number}", make())
        graph.join(before, f"m{number}")
        before = f"m{number}"
    graph.add("end", modules.Discard())
    graph.join(before, "end")
    graph.run()
    graph.dispatcher.close()
    return _step(source.stamps)


def beside(chain: str, blocks: int = BLOCKS) -> Beside:
    """Measures one of :data:`CHAINS`, on one thread of OpenCV."""
    call, makes = CHAINS[chain]
    pattern = modules.Pattern(frames=PICTURES)
    pictures = [frame.image for _, frame in pattern.items() if isinstance(frame, Frame)]
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        pairs = [(_by_calls(call, pictures), by_graph(makes, pictures)) for _ in range(blocks)]
    finally:
        cv2.setNumThreads(threads)
    calls, graphs = zip(*pairs, strict=True)
    return Beside(chain, min(calls), min(graphs), median(calls) / min(calls) - 1)
