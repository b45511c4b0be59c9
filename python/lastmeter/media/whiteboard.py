"""Whiteboard Recorder: the fewest pictures that have all that was written on a board (A-83).

    pictures --> straightened --> without people --> what is written --> pages

A page is what stood on the board before much of it was wiped, or at the end. People are what stays dark when
strokes, being thin, are closed over; the board behind them is remembered until it is seen again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import cv2
import numpy as np
from numpy.typing import NDArray

from .graph import Module
from .index import Clip
from .modules import grey
from .payload import Event, Frame, Image, Payload

if TYPE_CHECKING:
    from pathlib import Path

    from .index import Index

Mask = NDArray[np.bool_]

#: Size of the straightened board.
SIZE = (480, 320)
#: A stroke is at most this wide, in pixels of the straightened board.
STROKE = 15


def find_board(image: Image) -> NDArray[np.float32] | None:
    """The corners of the largest bright quadrilateral, clockwise from top left; None if there is none."""
    plane = np.asarray(cv2.GaussianBlur(grey(image), (5, 5), 0), np.uint8)
    level, _ = cv2.threshold(plane, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    bright = np.asarray(plane > level, np.uint8) * 255
    bright = np.asarray(
        cv2.morphologyEx(bright, cv2.MORPH_CLOSE, np.ones((15, 15), np.uint8)), np.uint8
    )
    shapes, _ = cv2.findContours(bright, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    for shape in sorted(shapes, key=cv2.contourArea, reverse=True)[:3]:
        hull = cv2.convexHull(shape)
        if cv2.contourArea(hull) < 0.1 * plane.size:
            return None
        for share in (0.01, 0.02, 0.03, 0.05, 0.08):
            corners = cv2.approxPolyDP(hull, share * cv2.arcLength(hull, True), True)
            if len(corners) == 4:
                return _in_order(corners.reshape(4, 2).astype(np.float32))
    return None


def _in_order(corners: NDArray[np.float32]) -> NDArray[np.float32]:
    by_sum, by_difference = corners.sum(axis=1), corners[:, 0] - corners[:, 1]
    order = [by_sum.argmin(), by_difference.argmax(), by_sum.argmax(), by_difference.argmin()]
    return corners[order]


@dataclass
class Page:
    """A page: when it was begun and completed, its picture, and earlier states of it."""

    begin: float
    end: float
    image: Image
    history: list[tuple[float, Image]] = field(default_factory=list)


class Board:
    """What is written on a board, from straightened pictures in which people stand before it."""

    def __init__(self, still: float = 0.7, contrast: int = 38) -> None:
        self.still, self.contrast = still, contrast
        self.image: Image | None = None
        self._before: Image | None = None
        self._age: NDArray[np.float32] | None = None
        self._last = 0.0

    def update(self, at: float, image: Image) -> Image:
        """The board without people after another picture."""
        plane = np.asarray(cv2.medianBlur(image, 3), np.uint8)
        if self.image is None or self._age is None or self._before is None:
            self.image = np.full_like(plane, int(np.percentile(grey(plane), 90)))
            self._before, self._last = plane, at
            self._age = np.zeros(plane.shape[:2], np.float32)
            return self.image
        moved = np.asarray(cv2.absdiff(plane, self._before), np.uint8)
        moved_any = (moved if moved.ndim == 2 else moved.max(axis=2)) > 24
        self._before = plane
        person = people(plane)
        self._age = np.where(moved_any | person, 0.0, self._age + (at - self._last)).astype(
            np.float32
        )
        self._last = at
        seen = self._age >= self.still
        self.image = np.where(seen if plane.ndim == 2 else seen[..., None], plane, self.image)
        return self.image

    def ink(self) -> Mask:
        """Where something is written."""
        assert self.image is not None
        return ink(self.image, self.contrast)


def people(image: Image) -> Mask:
    """Where a picture of a board shows something larger than strokes, and a margin around it."""
    plane = grey(image)
    # A quarter of the pixels are enough to tell a person from a stroke.
    small = np.asarray(
        cv2.resize(plane, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA), np.uint8
    )
    half = STROKE // 2 + 1
    closed = np.asarray(
        cv2.morphologyEx(small, cv2.MORPH_CLOSE, np.ones((half, half), np.uint8)), np.uint8
    )
    white = float(np.percentile(closed, 80))
    dark = np.asarray(closed < 0.8 * white, np.uint8)
    # The frame of the board is dark too, and no person.
    edge = 2
    dark[:edge], dark[-edge:], dark[:, :edge], dark[:, -edge:] = 0, 0, 0, 0
    around = cv2.dilate(dark, np.ones((STROKE, STROKE), np.uint8))
    return (
        np.asarray(cv2.resize(around, plane.shape[::-1], interpolation=cv2.INTER_NEAREST), np.uint8)
        > 0
    )


def ink(image: Image, contrast: int = 38) -> Mask:
    """Where a board without people is darker than its ground, in its darkest colour."""
    darkest = image if image.ndim == 2 else np.asarray(image.min(axis=2), np.uint8)
    ground = np.asarray(
        cv2.morphologyEx(darkest, cv2.MORPH_CLOSE, np.ones((STROKE, STROKE), np.uint8)), np.uint8
    )
    found = ground.astype(np.int16) - darkest > contrast
    margin = 8
    found[:margin], found[-margin:], found[:, :margin], found[:, -margin:] = (
        False,
        False,
        False,
        False,
    )
    return np.asarray(found, np.bool_)


class Whiteboard(Module):
    """The recorder: pictures in; an event ``page`` and a picture for each page.

    | parameter | unit | default | meaning |
    |---|---|---|---|
    | ``corners`` | pixels | found | of the board, clockwise from top left |
    | ``every`` | s | 0.2 | time between two looks |
    | ``wiped`` | share | 0.35 | of what is written; a page ends if more than this is gone |
    | ``settle`` | s | 2 | a page begins when nothing more was wiped for this time |
    | ``added`` | share | 0.2 | of what is written; a state of the page is kept if more than this is new |
    """

    inputs = {"in": Frame}
    outputs = {"out": Frame, "pages": Event}

    def __init__(
        self,
        corners: list[tuple[float, float]] | None = None,
        *,
        every: float = 0.2,
        wiped: float = 0.35,
        settle: float = 2.0,
        added: float = 0.2,
        index: Index | None = None,
        folder: Path | None = None,
        film: str = "board",
    ) -> None:
        super().__init__()
        self.corners = None if corners is None else np.array(corners, np.float32)
        self.every, self.wiped, self.added = every, wiped, added
        self.settle = settle
        self.index, self.folder, self.film = index, folder, film
        self.board = Board()
        self.pages: list[Page] = []
        self._next = 0.0
        self._begin = 0.0
        self._fullest: tuple[float, Image, Mask] | None = None
        #: While the board is being wiped: the least that was written, and since when.
        self._wiping: tuple[int, float] | None = None
        self._history: list[tuple[float, Image]] = []
        self._written = 0
        self._at = 0.0

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame)
        if payload.time < self._next:
            return
        self._next = payload.time + self.every - 1e-6
        if self.corners is None:
            self.corners = find_board(payload.image)
            if self.corners is None:
                self.drop("no board")
                return
        self._at = payload.time
        self.look(payload)

    def look(self, frame: Frame) -> None:
        """Takes the next picture."""
        assert self.corners is not None
        target = np.array(
            [(0, 0), (SIZE[0] - 1, 0), (SIZE[0] - 1, SIZE[1] - 1), (0, SIZE[1] - 1)], np.float32
        )
        matrix = cv2.getPerspectiveTransform(self.corners, target)
        straight = np.asarray(cv2.warpPerspective(frame.image, matrix, SIZE), np.uint8)
        image = self.board.update(frame.time, straight)
        written = self.board.ink()
        amount = int(written.sum())
        if self._wiping is not None:
            least, since = self._wiping
            if amount < least - 10:
                self._wiping = (amount, frame.time)
            elif frame.time - since >= self.settle:
                self._wiping = None
            return
        if self._fullest is not None:
            _, _, before = self._fullest
            around = (
                np.asarray(
                    cv2.dilate(written.astype(np.uint8), np.ones((5, 5), np.uint8)), np.uint8
                )
                > 0
            )
            gone = int((before & ~around).sum())
            if gone > self.wiped * before.sum() and before.sum() > 60:
                self._end_page(frame.time)
                self._wiping = (amount, frame.time)
                return
        if self._fullest is None or amount >= self._fullest[2].sum():
            self._fullest = (frame.time, image.copy(), written)
        if amount > self._written * (1 + self.added) + 60:
            self._history.append((frame.time, image.copy()))
            self._written = amount

    def finish(self) -> None:
        self._end_page(self._at)

    def _end_page(self, at: float) -> None:
        if self._fullest is None or self._fullest[2].sum() <= 60:
            return
        _, image, _ = self._fullest
        page = Page(self._begin, at, image, self._history)
        self.pages.append(page)
        self._begin, self._fullest, self._history, self._written = at, None, [], 0
        number = len(self.pages)
        path = ""
        if self.folder is not None:
            path = f"page-{number:03}.png"
            cv2.imwrite(str(self.folder / path), image)
        if self.index is not None:
            self.index.add(
                self.index.film(self.film),
                Clip("board", page.begin, page.end, f"page {number}", path=path),
            )
        if self._graph is not None:
            self.send("out", Frame(page.begin, page.end - page.begin, image=image, number=number))
            self.send(
                "pages",
                Event(page.end, name="page", values={"number": number, "begin": page.begin}),
            )


def to_pdf(pages: list[Page], path: Path) -> None:
    """Writes the pages into a PDF, one on each sheet, as JPEG pictures."""
    objects: list[bytes] = []
    kids = " ".join(f"{3 + 3 * number} 0 R" for number in range(len(pages)))
    objects.append(b"<< /Type /Catalog /Pages 2 0 R >>")
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode())
    for number, page in enumerate(pages):
        height, width = page.image.shape[:2]
        first = 3 + 3 * number
        box = f"/MediaBox [0 0 {width} {height}]"
        use = f"/Resources << /XObject << /Im {first + 2} 0 R >> >>"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R {box} {use} /Contents {first + 1} 0 R >>".encode()
        )
        drawing = f"q {width} 0 0 {height} 0 0 cm /Im Do Q".encode()
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawing), drawing))
        _, data = cv2.imencode(".jpg", page.image, [cv2.IMWRITE_JPEG_QUALITY, 92])
        space = "/DeviceGray" if page.image.ndim == 2 else "/DeviceRGB"
        head = (
            f"<< /Type /XObject /Subtype /Image /Width {width} /Height {height} /ColorSpace {space} "
            f"/BitsPerComponent 8 /Filter /DCTDecode /Length {data.size} >>"
        )
        objects.append(head.encode() + b"\nstream\n" + data.tobytes() + b"\nendstream")
    text = bytearray(b"%PDF-1.4\n")
    places = []
    for number, thing in enumerate(objects, 1):
        places.append(len(text))
        text += b"%d 0 obj\n" % number + thing + b"\nendobj\n"
    table = len(text)
    text += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    text += b"".join(b"%010d 00000 n \n" % place for place in places)
    text += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1,
        table,
    )
    path.write_bytes(bytes(text))
