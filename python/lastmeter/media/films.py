"""Films with known truth, drawn by ourselves: what a program finds in them is scored against what was put in.

Each film is a function of its seed: the same seed gives the same pictures, sounds and captions to the last bit.

| film | shows | truth |
|---|---|---|
| `room` | people who cross a room, noise, drifting light, a clock that ticks | when somebody is there |
| `board` | somebody writes on a board seen at an angle, stands before it, wipes it | its pages |
| `news` | a presenter and reports, speech, pauses, captions of which some lack their marks | its stories |
| `comedy` | a stage, captions with laughter and applause, the sound of both | its jokes |
| `sport` | a game with a scoreboard, cuts to close-ups without it | when the score changes |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np

from .graph import Source
from .payload import Caption, Frame, Image, Payload, Samples, Sound

#: Pictures a second, where a film does not say otherwise.
RATE = 10.0
#: Samples of sound a second.
SOUND = 8000

Generator = np.random.Generator


@dataclass
class Span:
    """From one instant to another, in seconds, with what is there."""

    begin: float
    end: float
    what: str = ""
    values: dict[str, Any] = field(default_factory=dict)


@dataclass
class Film:
    """What is drawn, said and written, and the truth about it."""

    name: str
    seed: int
    seconds: float
    rate: float
    draw: Callable[[int], Image]
    truth: list[Span]
    captions: list[Caption] = field(default_factory=list)
    sound: Samples | None = None
    #: What else is known: corners of a board, the pages' pictures, the place of a scoreboard.
    known: dict[str, Any] = field(default_factory=dict)

    def source(self, pace: float = 0.0) -> FilmSource:
        """The film as a module with outputs `out`, `captions` and `sound`."""
        return FilmSource(self, pace)

    def frames(self) -> Iterator[Frame]:
        """Its pictures alone."""
        for number in range(round(self.seconds * self.rate)):
            yield Frame(number / self.rate, 1 / self.rate, image=self.draw(number), number=number)


class FilmSource(Source):
    """Plays a generated film."""

    outputs = {"out": Frame, "captions": Caption, "sound": Sound}

    def __init__(self, film: Film, pace: float = 0.0) -> None:
        super().__init__(pace)
        self.film = film

    def items(self) -> Iterator[tuple[str, Payload]]:
        film = self.film
        captions = iter(film.captions)
        waiting = next(captions, None)
        step = int(SOUND / film.rate)
        for frame in film.frames():
            while waiting is not None and waiting.time <= frame.time:
                yield "captions", waiting.derive()
                waiting = next(captions, None)
            if film.sound is not None:
                piece = film.sound[frame.number * step : (frame.number + 1) * step]
                yield "sound", Sound(frame.time, 1 / film.rate, samples=piece, rate=SOUND)
            yield "out", frame
        while waiting is not None:
            yield "captions", waiting.derive()
            waiting = next(captions, None)


def _noise(
    rng: Generator, shape: tuple[int, ...], strength: float
) -> Callable[[Image, int], Image]:
    """Adds noise to pictures, from a bank that is drawn once."""
    bank = rng.normal(0, strength, (8, *shape)).astype(np.int16)
    shifts = rng.integers(0, shape[1], 4096)

    def add(image: Image, number: int) -> Image:
        noise = np.roll(bank[number % 8], int(shifts[number % 4096]), axis=1)
        return np.asarray(np.clip(image.astype(np.int16) + noise, 0, 255), np.uint8)

    return add


# A room


def room(seed: int, seconds: float = 60.0) -> Film:
    """A room that people cross; the light drifts, and a clock on the wall ticks."""
    rng = np.random.default_rng([seed, 1])
    width, height = 320, 240
    still = _room_background(rng, width, height)
    noise = _noise(rng, still.shape, 3.0)
    people = _visits(rng, seconds)
    drift = rng.uniform(6, 14), rng.uniform(20, 40), rng.uniform(0, 6)

    def draw(number: int) -> Image:
        at = number / RATE
        image = still.copy()
        hand = at * 2 * np.pi / 10
        tip = (
            int(272 + 12 * np.sin(np.floor(hand * 5) / 5)),
            int(40 - 12 * np.cos(np.floor(hand * 5) / 5)),
        )
        cv2.line(image, (272, 40), tip, (20, 20, 20), 1)
        for person in people:
            if person.begin <= at < person.end:
                _draw_person(image, person, at)
        light = 1 + drift[0] / 255 * np.sin(2 * np.pi * at / drift[1] + drift[2])
        image = np.clip(image * light, 0, 255).astype(np.uint8)
        return noise(image, number)

    return Film("room", seed, seconds, RATE, draw, _union(people))


def _room_background(rng: Generator, width: int, height: int) -> Image:
    image = np.full((height, width, 3), 170, np.uint8)
    image[int(height * 0.7) :] = (90, 110, 130)
    for _ in range(7):
        x, y = int(rng.integers(0, width - 60)), int(rng.integers(20, height - 70))
        colour = tuple(int(v) for v in rng.integers(40, 220, 3))
        cv2.rectangle(
            image,
            (x, y),
            (x + int(rng.integers(20, 60)), y + int(rng.integers(20, 60))),
            colour,
            -1,
        )
    cv2.circle(image, (272, 40), 16, (240, 240, 240), -1)
    return np.asarray(cv2.GaussianBlur(image, (3, 3), 0), np.uint8)


def _visits(rng: Generator, seconds: float) -> list[Span]:
    visits = []
    at = float(rng.uniform(4, 8))
    while at < seconds - 4:
        lasts = float(rng.uniform(3, 9))
        end = min(at + lasts, seconds - 2)
        colour = [int(v) for v in rng.integers(10, 90, 3)]
        stops = bool(rng.random() < 0.4)
        visits.append(
            Span(
                at,
                end,
                "somebody",
                {"colour": colour, "left": bool(rng.random() < 0.5), "stops": stops},
            )
        )
        at = end + float(rng.uniform(3, 12)) if rng.random() < 0.85 else end - lasts / 3
    return visits


def _draw_person(image: Image, person: Span, at: float) -> None:
    share = (at - person.begin) / (person.end - person.begin)
    if person.values["stops"]:  # Walks in, stands and moves a little, walks out.
        share = min(share / 0.3, 1) * 0.5 + max((share - 0.7) / 0.3, 0) * 0.5
    if not person.values["left"]:
        share = 1 - share
    x = int(20 + share * (image.shape[1] - 40) + 3 * np.sin(at * 7))
    colour = tuple(person.values["colour"])
    cv2.ellipse(image, (x, 165), (17, 48), 0, 0, 360, colour, -1)
    cv2.circle(image, (x, 105), 13, (120, 150, 200), -1)
    leg = int(9 * np.sin(at * 9))
    cv2.line(image, (x, 205), (x - leg, 236), colour, 8)
    cv2.line(image, (x, 205), (x + leg, 236), colour, 8)


def _union(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: span.begin):
        if joined and span.begin <= joined[-1].end:
            joined[-1].end = max(joined[-1].end, span.end)
        else:
            joined.append(Span(span.begin, span.end, span.what))
    return joined


# A board

#: The size of a board as it is seen straight on.
BOARD = (480, 320)


def board(seed: int, pages: int = 3) -> Film:
    """Somebody writes on a board, stands before it while writing, wipes it and writes again."""
    rng = np.random.default_rng([seed, 2])
    strokes, wipes, seconds = _lecture(rng, pages)
    corners = np.array([(58, 32), (588, 46), (602, 430), (40, 446)], np.float32)
    corners += rng.uniform(-14, 14, corners.shape).astype(np.float32)
    straight = np.array(
        [(0, 0), (BOARD[0] - 1, 0), (BOARD[0] - 1, BOARD[1] - 1), (0, BOARD[1] - 1)], np.float32
    )
    matrix = cv2.getPerspectiveTransform(straight, corners)
    wall = np.full((480, 640, 3), (96, 104, 110), np.uint8)
    noise = _noise(rng, wall.shape, 2.0)
    side = 1 if rng.random() < 0.5 else -1

    def surface(at: float) -> Image:
        image = np.full((BOARD[1], BOARD[0], 3), 236, np.uint8)
        wiped = max((wipe for wipe in wipes if wipe <= at), default=-1.0)
        for stroke in strokes:
            if wiped < stroke.begin <= at:
                _draw_stroke(
                    image, stroke, min(1.0, (at - stroke.begin) / (stroke.end - stroke.begin))
                )
        return image

    def draw(number: int) -> Image:
        at = number / RATE
        seen = cv2.warpPerspective(
            surface(at), matrix, (640, 480), dst=wall.copy(), borderMode=cv2.BORDER_TRANSPARENT
        )
        image = np.asarray(seen, np.uint8)
        cv2.polylines(image, [corners.astype(np.int32)], True, (50, 50, 50), 5)
        active = next(
            (stroke for stroke in strokes if stroke.begin - 1.0 <= at <= stroke.end + 1.2), None
        )
        wiping = any(abs(at - wipe) < 1.5 for wipe in wipes)
        if active is not None or wiping:
            x, y = active.values["at"] if active is not None else (BOARD[0] // 2, BOARD[1] // 2)
            spot = cv2.perspectiveTransform(np.array([[[x, y]]], np.float32), matrix)[0, 0]
            _draw_writer(image, int(spot[0] + side * 42), int(spot[1]), at, wiping)
        return noise(image, number)

    # A page is what stands on the board before it is wiped, or at the end.
    ends = [*wipes, seconds]
    truth, before = [], 0.0
    pictures = []
    for page, end in enumerate(ends):
        truth.append(Span(before, end, f"page {page + 1}"))
        pictures.append(surface(end - 0.05))
        before = end
    known = {"corners": corners.tolist(), "pages": pictures}
    return Film("board", seed, seconds, RATE, draw, truth, known=known)


def _lecture(rng: Generator, pages: int) -> tuple[list[Span], list[float], float]:
    strokes, wipes = [], []
    at = 2.0
    for page in range(pages):
        for line in range(int(rng.integers(2, 5))):
            for word in range(int(rng.integers(2, 4))):
                x, y = (
                    40 + word * 140 + int(rng.integers(0, 20)),
                    40 + line * 62 + int(rng.integers(0, 12)),
                )
                points = [
                    (x + 9 * i, y + int(rng.integers(-11, 12)))
                    for i in range(int(rng.integers(7, 11)))
                ]
                colour = [(150, 40, 30), (30, 30, 30), (40, 40, 170)][int(rng.integers(0, 3))]
                lasts = float(rng.uniform(0.8, 1.6))
                strokes.append(
                    Span(
                        at, at + lasts, "stroke", {"points": points, "colour": colour, "at": (x, y)}
                    )
                )
                at += lasts + float(rng.uniform(0.1, 0.6))
            at += float(rng.uniform(0.5, 4.0))
        at += float(rng.uniform(4, 7))
        if page + 1 < pages:
            wipes.append(at)
            at += float(rng.uniform(3, 5))
    return strokes, wipes, at


def _draw_stroke(image: Image, stroke: Span, share: float) -> None:
    points = np.array(stroke.values["points"], np.int32)
    shown = points[: max(2, int(np.ceil(share * len(points))))]
    cv2.polylines(image, [shown], False, stroke.values["colour"], 3, cv2.LINE_AA)


def _draw_writer(image: Image, x: int, y: int, at: float, wiping: bool) -> None:
    sway = int(6 * np.sin(at * 5)) + (int(60 * np.sin(at * 4)) if wiping else 0)
    top = max(90, y - 30)
    cv2.ellipse(image, (x + sway, top + 190), (52, 170), 0, 0, 360, (70, 60, 90), -1)
    cv2.circle(image, (x + sway, top), 30, (130, 160, 205), -1)
    cv2.line(image, (x + sway, top + 70), (x + sway - 40, y + 6), (70, 60, 90), 16)
