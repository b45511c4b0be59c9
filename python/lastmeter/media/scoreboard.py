"""Sports Highlight Browser: clips around each change of a scoreboard (A-86).

The scoreboard is where edges stay while all else moves. Its picture is compared with the one before: a change that
lasts is an event, with the new score where :mod:`.digits` can read it; a frame that does not show the board (a close-up, a replay) is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from .digits import consistent, read_score
from .graph import Module
from .modules import grey
from .payload import Event, Frame, Image, Payload

#: Pictures kept to find the scoreboard, and seconds between two of them.
SAMPLES = 40
APART = 1.0
#: Share of the board's pixels that must be as expected for the board to be shown.
SHOWN = 0.8
#: Share of the board's pixels whose change is a new score, at least.
CHANGED = 0.005
#: Seconds that a change must last.
LASTS = 0.5
#: Grey levels by which a pixel must change.
CONTRAST = 60


@dataclass
class Highlight:
    """The score changed: when, the board's picture after it, and the score if it can be read."""

    time: float
    image: Image
    score: tuple[int, int] | None = None


def find_scoreboard(images: list[Image]) -> tuple[int, int, int, int] | None:
    """x, y, width and height of the region whose edges stay in most pictures; None if there is none."""
    planes = np.stack([grey(image) for image in images])
    middle = np.median(planes, axis=0).astype(np.uint8)
    calm = (np.abs(planes.astype(np.int16) - middle) < 24).mean(axis=0) > 0.6
    edges = (
        np.asarray(
            cv2.morphologyEx(middle, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)), np.uint8
        )
        > 60
    )
    text = np.asarray(
        cv2.morphologyEx(
            (edges & calm).astype(np.uint8), cv2.MORPH_CLOSE, np.ones((7, 15), np.uint8)
        ),
        np.uint8,
    )
    count, _, boxes, _ = cv2.connectedComponentsWithStats(text)
    best, most = None, 0.0
    for number in range(1, count):
        x, y, width, height, area = (int(value) for value in boxes[number])
        # A board is wide, small, and full of edges; a line of the field is neither.
        if width < 20 or height < 6 or width < 1.5 * height or width * height > 0.15 * middle.size:
            continue
        dense = float((edges & calm)[y : y + height, x : x + width].mean())
        if dense * area > most and dense > 0.15:
            best, most = (x, y, width, height), dense * area
    return best


class Scoreboard(Module):
    """Events ``score`` at each lasting change of the board."""

    inputs = {"in": Frame}
    outputs = {"out": Event}

    def __init__(self, region: tuple[int, int, int, int] | None = None) -> None:
        super().__init__()
        self.region = region
        self.highlights: list[Highlight] = []
        self._samples: list[Image] = []
        self._held: list[tuple[float, Image]] = []
        self._next = 0.0
        self._state: np.ndarray | None = None
        self._since: tuple[float, np.ndarray] | None = None
        #: The boards that were seen since, without noise when added up.
        self._seen: list[Image] = []

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame)
        if self.region is None:
            self._learn(payload)
        else:
            self._look(payload.time, grey(payload.image))

    def finish(self) -> None:
        if self.region is None:
            self._settle()
        scores = consistent([highlight.score for highlight in self.highlights])
        for highlight, score in zip(self.highlights, scores, strict=True):
            highlight.score = score

    def _learn(self, frame: Frame) -> None:
        # While the region is not known, small pictures are held, and looked at once it is.
        self._held.append((frame.time, grey(frame.image)))
        if frame.time >= self._next:
            self._samples.append(frame.image)
            self._next = frame.time + APART
        if len(self._samples) >= SAMPLES:
            self._settle()

    def _settle(self) -> None:
        held, self._held = self._held, []
        self.region = find_scoreboard(self._samples) if self._samples else None
        self._samples = []
        if self.region is None:
            self.drop("no scoreboard")
            return
        for at, plane in held:
            self._look(at, plane)

    def _look(self, at: float, plane: Image) -> None:
        assert self.region is not None
        x, y, width, height = self.region
        crop = np.asarray(
            cv2.GaussianBlur(plane[y : y + height, x : x + width], (3, 3), 0), np.int16
        )
        if self._state is None:
            self._state = crop
            return
        differs = np.abs(crop - self._state) > CONTRAST * 0.5
        share = float(differs.mean())
        if share > 1 - SHOWN:
            return  # The board is not shown.
        if share < CHANGED:
            self._since = None
            self._state = (0.9 * self._state + 0.1 * crop).astype(np.int16)
            return
        if (
            self._since is None
            or float((np.abs(crop - self._since[1]) > CONTRAST * 0.5).mean()) > CHANGED
        ):
            self._since, self._seen = (at, crop), []
        self._seen.append(plane[max(0, y - 2) : y + height + 2, max(0, x - 2) : x + width + 2])
        if at - self._since[0] >= LASTS:
            self._changed(self._since[0], crop)

    def _changed(self, at: float, crop: np.ndarray) -> None:
        self._state, self._since = crop, None
        score = read_score(np.mean(self._seen, axis=0).astype(np.uint8))
        self.highlights.append(Highlight(at, crop.astype(np.uint8), score))
        if self._graph is not None:
            values = {"number": len(self.highlights), "score": score}
            self.send("out", Event(at, name="score", values=values))
