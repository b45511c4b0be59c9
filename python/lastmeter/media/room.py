"""Room Monitor: says whether a room is occupied, and keeps a film of each time that somebody is there (A-81).

    pictures --> activity --> occupied or empty --> clip with what came before it

The room without people is a mean of past pictures, learned only where nothing stands before it; its brightness
follows the light. Activity is the share of the picture that differs from it. Somebody is there while it is above a
threshold, and for a moment after.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
from numpy.typing import NDArray

from .graph import GraphError, Module
from .index import Clip
from .modules import grey
from .payload import Event, Frame, Image, Payload
from .video import VideoError, Writer

if TYPE_CHECKING:
    from .index import Index

#: Width at which activity is measured, in pixels.
WIDTH = 160


def part(image: Image, region: tuple[int, int, int, int] | None) -> Image:
    """The region of a picture, without a copy; one that lies outside of it is an error that says so."""
    if region is None:
        return image
    left, top, width, height = region
    if min(left, top) < 0 or min(width, height) < 1:
        raise GraphError(f"a region of {width}x{height} at {left},{top}: write left,top,width,height")
    if left + width > image.shape[1] or top + height > image.shape[0]:
        raise GraphError(
            f"a region of {width}x{height} at {left},{top} is not inside pictures of "
            f"{image.shape[1]}x{image.shape[0]}"
        )
    return image[top : top + height, left : left + width]


class Activity(Module):
    """The share of the picture that differs from the room without people, as events ``activity``.

    | parameter | unit | default | meaning |
    |---|---|---|---|
    | ``contrast`` | grey levels | 14 | difference above which a pixel counts |
    | ``learn`` | s | 8 | time in which the room's picture follows a change |
    | ``settle`` | s | 40 | time after which what stands still becomes part of the room |
    | ``region`` | pixels | the whole picture | left, top, width and height of what is watched |
    """

    inputs = {"in": Frame}
    outputs = {"out": Event}

    def __init__(
        self,
        contrast: float = 14.0,
        learn: float = 8.0,
        settle: float = 40.0,
        region: tuple[int, int, int, int] | None = None,
    ) -> None:
        super().__init__()
        self.contrast, self.learn, self.settle, self.region = contrast, learn, settle, region
        self._room: NDArray[np.float32] | None = None
        self._before: Image | None = None
        self._still: NDArray[np.float32] | None = None
        self._last = 0.0
        self._frames = 0

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame)
        share = self.measure(payload)
        self.send(
            "out", Event(payload.time, payload.duration, name="activity", values={"share": share})
        )

    def measure(self, frame: Frame) -> float:
        """The share for the next picture."""
        plane = grey(part(frame.image, self.region))
        height = max(1, plane.shape[0] * WIDTH // plane.shape[1])
        small = np.asarray(
            cv2.resize(plane, (WIDTH, height), interpolation=cv2.INTER_AREA), np.uint8
        )
        small = np.asarray(cv2.GaussianBlur(small, (3, 3), 0), np.uint8)
        if self._room is None or self._still is None or self._before is None:
            self._room, self._before = small.astype(np.float32), small
            self._still = np.zeros(small.shape, np.float32)
            self._last = frame.time
            return 0.0
        elapsed = max(1e-3, frame.time - self._last)
        self._last = frame.time
        self._frames += 1
        # The light: how much brighter the middle of all pixels is than in the room's picture.
        ratio = float(np.median(small / np.maximum(self._room, 8.0)))
        expected = self._room * ratio
        differs = (np.abs(small - expected) > self.contrast).astype(np.uint8)
        # Single pixels are noise, or the hand of a clock.
        differs = np.asarray(
            cv2.morphologyEx(differs, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8)), np.uint8
        )
        around = np.asarray(cv2.dilate(differs, np.ones((9, 9), np.uint8)), np.uint8) > 0
        moves = np.abs(small.astype(np.int16) - self._before) > self.contrast / 2
        self._before = small
        self._still = np.where(moves | ~around, 0.0, self._still + elapsed).astype(np.float32)
        rate = min(1.0, elapsed / self.learn)
        learns = ~around | (self._still > self.settle)
        self._room += np.where(learns, rate * (small / max(ratio, 1e-3) - self._room), 0.0).astype(
            np.float32
        )
        return float(differs.mean())


class Occupancy:
    """Occupied or empty from activity: above ``on`` for ``confirm`` seconds, until below ``off`` for ``linger``.

    ``since`` is when it became so: a change is known later than it was.
    """

    def __init__(
        self, on: float = 0.006, off: float = 0.003, confirm: float = 0.2, linger: float = 0.6
    ) -> None:
        self.on, self.off, self.confirm, self.linger = on, off, confirm, linger
        self.occupied = False
        self.since = 0.0
        self._changing: float | None = None

    def update(self, at: float, share: float) -> bool:
        """Whether somebody is there at an instant with this activity."""
        differs = share < self.off if self.occupied else share >= self.on
        if not differs:
            self._changing = None
            return self.occupied
        if self._changing is None:
            self._changing = at
        # Instants of pictures are rounded.
        if at - self._changing >= (self.linger if self.occupied else self.confirm) - 1e-6:
            self.occupied, self.since, self._changing = not self.occupied, self._changing, None
        return self.occupied


class RoomMonitor(Module):
    """Keeps a clip of each time that somebody is there, ``pre`` seconds of what came before included.

    ``keep`` is the space in bytes that clips may take: the oldest go. When the disk is full the monitor goes on
    without recording, and counts it.
    """

    inputs = {"in": Frame}
    outputs = {"out": Event}

    def __init__(
        self,
        folder: Path | None = None,
        index: Index | None = None,
        *,
        film: str = "room",
        pre: float = 2.0,
        rate: float = 10.0,
        keep: int = 10_000_000_000,
        spare: int = 100_000_000,
        activity: Activity | None = None,
    ) -> None:
        super().__init__()
        self.folder, self.index, self.film, self.pre, self.rate = folder, index, film, pre, rate
        self.keep, self.spare = keep, spare
        self.activity = activity or Activity()
        self.occupancy = Occupancy()
        self.spans: list[tuple[float, float]] = []
        self._before: deque[Frame] = deque()
        self._began: float | None = None
        self._writer: Writer | None = None
        self._most = 0.0
        self._at = 0.0

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame)
        share = self.activity.measure(payload)
        occupied = self.occupancy.update(payload.time, share)
        self._at = payload.end
        if occupied and self._began is None:
            self._begin(payload)
        elif not occupied and self._began is not None:
            self._end(payload.time)
        if self._began is not None:
            self._most = max(self._most, share)
            self._record(payload)
        elif self.folder is not None:
            self._before.append(payload)
            while self._before and self._before[0].time < payload.time - self.pre:
                self._before.popleft()

    def finish(self) -> None:
        if self._began is not None:
            self._end(self._at)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.abandon()

    def _begin(self, frame: Frame) -> None:
        self._began = self.occupancy.since
        self._most = 0.0
        self.send("out", Event(frame.time, name="occupied"))
        if self.folder is None:
            return
        if shutil.disk_usage(self.folder).free < self.spare:
            self.drop("disk full")
            return
        stamp = time.strftime("%Y%m%d-%H%M%S")
        self._writer = Writer(
            self.folder / f"room-{stamp}-{len(self.spans):04}.mp4", rate=self.rate
        )
        for before in self._before:
            self._record(before)
        self._before.clear()

    def _record(self, frame: Frame) -> None:
        if self._writer is None:
            return
        try:
            self._writer.picture(frame)
        except VideoError:
            self._writer.abandon()
            self._writer = None
            self.drop("disk full")

    def _end(self, at: float) -> None:
        assert self._began is not None
        # The moment for which it lingered is not part of the visit.
        end = at if self.occupancy.occupied else self.occupancy.since
        self.spans.append((self._began, end))
        self.send("out", Event(at, name="empty", values={"since": self._began}))
        path = ""
        if self._writer is not None:
            self._writer.finish()
            path, self._writer = self._writer.path.name, None
            self._make_room()
        if self.index is not None:
            clip = Clip(
                "room",
                self._began,
                end,
                f"somebody for {end - self._began:.0f} s",
                self._most,
                path=path,
            )
            self.index.add(self.index.film(self.film), clip)
        self._began = None

    def _make_room(self) -> None:
        assert self.folder is not None
        clips = sorted(self.folder.glob("room-*.mp4"))
        sizes = {clip: clip.stat().st_size for clip in clips}
        while sum(sizes.values()) > self.keep and len(sizes) > 1:
            oldest = min(sizes)
            oldest.unlink(missing_ok=True)
            del sizes[oldest]
            if self.index is not None:
                for clip in self.index.clips("room"):
                    if clip.path == oldest.name:
                        self.index.remove(clip.id)
