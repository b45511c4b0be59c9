"""The modules of the VuSystem and those that its programs need: each takes frames in and gives frames out.

OpenCV does what it does well; a module adds what joins it to a graph.

Rows: A-111.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from .graph import Module, Source
from .payload import Caption, Coded, Event, Frame, Image, Payload, Sound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def grey(image: Image) -> Image:
    """A picture without its colours; one that has none is returned as it is."""
    return (
        image if image.ndim == 2 else np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), np.uint8)
    )


class Pattern(Source):
    """A test picture with its number drawn in it, moving by a pixel each frame."""

    outputs = {"out": Frame}

    def __init__(
        self,
        *,
        frames: int = 0,
        width: int = 640,
        height: int = 480,
        rate: float = 30.0,
        colour: bool = True,
        pace: float = 0.0,
    ) -> None:
        super().__init__(pace)
        self.frames, self.width, self.height, self.rate, self.colour = (
            frames,
            width,
            height,
            rate,
            colour,
        )

    def items(self) -> Iterator[tuple[str, Payload]]:
        ramp = np.add.outer(np.arange(self.height), np.arange(self.width)).astype(np.uint8)
        base = np.stack([ramp, ramp[::-1], ramp[:, ::-1]], axis=2) if self.colour else ramp
        number = 0
        while self.frames == 0 or number < self.frames:
            image = np.ascontiguousarray(np.roll(base, number % self.width, axis=1))
            cv2.putText(
                image,
                str(number),
                (8, self.height - 12),
                cv2.FONT_HERSHEY_SIMPLEX,
                1.0,
                (255, 255, 255),
                2,
            )
            yield "out", Frame(number / self.rate, 1 / self.rate, image=image, number=number)
            number += 1


class Filter(Module):
    """One picture in, one out; subclasses override :meth:`change`."""

    inputs = {"in": Frame}
    outputs = {"out": Frame}

    def change(self, image: Image) -> Image:
        """The picture that leaves."""
        raise NotImplementedError

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame)
        image = self.change(payload.image)
        # `derive` takes three times as long; born and visits are set by `send`.
        self.send(
            "out",
            Frame(
                payload.time,
                payload.duration,
                payload.channel,
                0.0,
                None,
                image,
                payload.number,
                payload.key,
            ),
        )


class Exercise(Filter):
    """Walks over each pixel and hands the picture on: the least that a filter can cost (A-75)."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = 0

    def change(self, image: Image) -> Image:
        self.sum += int(cv2.sumElems(image)[0])
        return image


class Edge(Filter):
    """Edges by Sobel's operator, both directions in one pass, white on black (A-76).

    What lies between the picture that came and the one that leaves is kept and written over for the next.
    """

    def __init__(self) -> None:
        super().__init__()
        self._between: tuple[Any, ...] = ()

    def change(self, image: Image) -> Image:
        size = image.shape[:2]
        if not self._between or self._between[0].shape != size:
            planes = [np.empty(size, np.uint8) for _ in range(3)]
            self._between = (*planes, *(np.empty(size, np.int16) for _ in range(2)))
        plane, one, other, across, down = self._between
        if image.ndim == 2:
            plane = image
        else:
            cv2.cvtColor(image, cv2.COLOR_BGR2GRAY, plane)
        cv2.spatialGradient(plane, across, down)
        cv2.convertScaleAbs(across, one)
        cv2.convertScaleAbs(down, other)
        return np.asarray(cv2.addWeighted(one, 0.5, other, 0.5, 0), np.uint8)


class Difference(Filter):
    """How much each pixel differs from the frame before; the first differs by nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._before: Image | None = None

    def change(self, image: Image) -> Image:
        before, self._before = self._before, image
        if before is None or before.shape != image.shape:
            return np.zeros_like(image)
        return np.asarray(cv2.absdiff(image, before), np.uint8)


class Threshold(Filter):
    """White where a pixel is brighter than ``level``, black elsewhere."""

    def __init__(self, level: int = 32) -> None:
        super().__init__()
        self.level = level

    def change(self, image: Image) -> Image:
        return np.asarray(
            cv2.threshold(grey(image), self.level, 255, cv2.THRESH_BINARY)[1], np.uint8
        )


class Grey(Filter):
    """Brightness alone."""

    def change(self, image: Image) -> Image:
        return grey(image)


class Scale(Filter):
    """Another size; averages where it shrinks."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self.width, self.height = width, height

    def change(self, image: Image) -> Image:
        if image.shape[1] == self.width and image.shape[0] == self.height:
            return image
        shrinks = self.width < image.shape[1]
        how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
        return np.asarray(cv2.resize(image, (self.width, self.height), interpolation=how), np.uint8)


class Text(Filter):
    """Writes a text into the picture: ``{time}`` and ``{number}`` are filled in."""

    def __init__(self, text: str = "{time:.1f} s", x: int = 8, y: int = 24) -> None:
        super().__init__()
        self.text, self.x, self.y = text, x, y

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame)
        image = payload.image.copy()
        text = self.text.format(time=payload.time, number=payload.number)
        for colour, thickness in (((0, 0, 0), 3), ((255, 255, 255), 1)):
            cv2.putText(
                image, text, (self.x, self.y), cv2.FONT_HERSHEY_SIMPLEX, 0.6, colour, thickness
            )
        self.send("out", payload.derive(image=image))


class Perspective(Filter):
    """Straightens a quadrilateral, corners clockwise from top left, to a rectangle."""

    def __init__(self, corners: list[tuple[float, float]], width: int, height: int) -> None:
        super().__init__()
        if len(corners) != 4:
            raise ValueError(f"perspective takes four corners, not {len(corners)}")
        target = np.array(
            [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)], np.float32
        )
        self.matrix = cv2.getPerspectiveTransform(np.array(corners, np.float32), target)
        self.width, self.height = width, height

    def change(self, image: Image) -> Image:
        return np.asarray(
            cv2.warpPerspective(image, self.matrix, (self.width, self.height)), np.uint8
        )


class JpegEncode(Module):
    """A picture as JPEG."""

    inputs = {"in": Frame}
    outputs = {"out": Coded}

    def __init__(self, quality: int = 80) -> None:
        super().__init__()
        self.quality = quality

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame)
        _, data = cv2.imencode(".jpg", payload.image, [cv2.IMWRITE_JPEG_QUALITY, self.quality])
        coded = Coded(
            payload.time,
            payload.duration,
            payload.channel,
            data=data.data,
            number=payload.number,
        )
        self.send("out", coded)


class JpegDecode(Module):
    """A picture from JPEG; what is no JPEG is dropped."""

    inputs = {"in": Coded}
    outputs = {"out": Frame}

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Coded)
        image = cv2.imdecode(np.frombuffer(payload.data, np.uint8), cv2.IMREAD_COLOR)
        if image is None:
            self.drop("not a JPEG")
            return
        frame = Frame(
            payload.time,
            payload.duration,
            payload.channel,
            image=np.asarray(image, np.uint8),
            number=payload.number,
        )
        self.send("out", frame)


class AudioLevel(Module):
    """The level of sound, as an event ``level`` with root mean square and peak from 0 to 1."""

    inputs = {"in": Sound}
    outputs = {"out": Event}

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Sound)
        samples = payload.samples
        level = float(np.sqrt(np.mean(np.square(samples)))) if samples.size else 0.0
        peak = float(np.max(np.abs(samples))) if samples.size else 0.0
        self.send(
            "out",
            Event(
                payload.time, payload.duration, name="level", values={"rms": level, "peak": peak}
            ),
        )


class TemplateMatch(Module):
    """Where a small picture is found in each frame, as an event ``match`` with place and score from -1 to 1."""

    inputs = {"in": Frame}
    outputs = {"out": Event}

    def __init__(self, template: Image, least: float = 0.8) -> None:
        super().__init__()
        self.template, self.least = grey(template), least

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame)
        plane = grey(payload.image)
        if plane.shape[0] < self.template.shape[0] or plane.shape[1] < self.template.shape[1]:
            self.drop("smaller than the template")
            return
        scores = cv2.matchTemplate(plane, self.template, cv2.TM_CCOEFF_NORMED)
        _, score, _, (x, y) = cv2.minMaxLoc(scores)
        if score >= self.least:
            self.send(
                "out",
                Event(
                    payload.time,
                    payload.duration,
                    name="match",
                    values={"x": x, "y": y, "score": score},
                ),
            )


class Keyframes(Module):
    """The first frame of each shot: histograms of neighbours differ by more than ``least``, from 0 to 1."""

    inputs = {"in": Frame}
    outputs = {"out": Frame, "cuts": Event}

    def __init__(self, least: float = 0.35) -> None:
        super().__init__()
        self.least = least
        self._before: np.ndarray[Any, np.dtype[np.float32]] | None = None

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame)
        histogram = np.asarray(
            cv2.calcHist([grey(payload.image)], [0], None, [64], [0, 256]), np.float32
        )
        histogram /= max(1.0, float(histogram.sum()))
        before, self._before = self._before, histogram
        change = 1.0 if before is None else float(np.abs(histogram - before).sum()) / 2
        if change >= self.least:
            self.send("out", payload.derive(key=True))
            self.send("cuts", Event(payload.time, name="cut", values={"change": change}))


class Call(Module):
    """Calls a function for each payload: the shortest way to a module of one's own."""

    inputs = {"in": Payload}

    def __init__(self, function: Callable[[Payload], object]) -> None:
        super().__init__()
        self.function = function

    def process(self, port: str, payload: Payload) -> None:
        self.function(payload)
        self.graph.arrived(self, payload)


class Collect(Module):
    """Keeps what comes, for tests and notebooks; at most ``most``, the last."""

    inputs = {"in": Payload}

    def __init__(self, most: int = 100_000) -> None:
        super().__init__()
        self.most = most
        self.payloads: list[Any] = []

    def process(self, port: str, payload: Payload) -> None:
        self.payloads.append(payload)
        if len(self.payloads) > self.most:
            del self.payloads[0]
        self.graph.arrived(self, payload)


class Discard(Module):
    """Takes frames and keeps nothing."""

    inputs = {"in": Payload}

    def process(self, port: str, payload: Payload) -> None:
        self.graph.arrived(self, payload)


class Join(Module):
    """Several inputs of one type in the order of the stream's time."""

    inputs = {"first": Payload, "second": Payload}
    outputs = {"out": Payload}

    def process(self, port: str, payload: Payload) -> None:
        self.send("out", payload.derive())


__all__ = [
    "AudioLevel",
    "Call",
    "Caption",
    "Collect",
    "Difference",
    "Discard",
    "Edge",
    "Exercise",
    "Filter",
    "Grey",
    "Join",
    "JpegDecode",
    "JpegEncode",
    "Keyframes",
    "Pattern",
    "Perspective",
    "Scale",
    "TemplateMatch",
    "Text",
    "Threshold",
    "grey",
]
