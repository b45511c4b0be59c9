"""Programs that show live pictures: Video Rover (several cameras in one window) and the puzzle (A-87, A-88)."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import cv2
import numpy as np

from .graph import Module
from .payload import Frame, Image, Payload

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Rows and columns by which a tile slides at each key.
KEY_WAYS = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}
#: Keys that wait for the next picture, at the most.
KEYS_MAX = 64
#: Cameras of one window.
CAMERAS_MAX = 16


class Rover(Module):
    """The last picture of each camera, side by side: ``camera0``, ``camera1``, ... in, one picture out.

    A new picture of any camera makes a new picture of the window; ``rate`` is the most a second.
    """

    outputs = {"out": Frame}

    def __init__(
        self, cameras: int, width: int = 640, height: int = 480, rate: float = 30.0
    ) -> None:
        if not 1 <= cameras <= CAMERAS_MAX:
            raise ValueError(f"{cameras} cameras; from 1 to {CAMERAS_MAX} fit a window")
        self.inputs: Mapping[str, type[Payload]] = {f"camera{n}": Frame for n in range(cameras)}  # type: ignore[misc]
        super().__init__()
        self.columns = math.ceil(math.sqrt(cameras))
        rows = math.ceil(cameras / self.columns)
        self.tile = (width // self.columns, height // rows)
        self.window = np.zeros((self.tile[1] * rows, self.tile[0] * self.columns, 3), np.uint8)
        self.rate = rate
        self._next = 0.0
        self._number = 0

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame)
        number = int(port.removeprefix("camera"))
        left, top = number % self.columns * self.tile[0], number // self.columns * self.tile[1]
        image = cv2.resize(payload.image, self.tile, interpolation=cv2.INTER_AREA)
        if image.ndim == 2:
            image = cv2.cvtColor(image, cv2.COLOR_GRAY2BGR)
        self.window[top : top + self.tile[1], left : left + self.tile[0]] = image
        if payload.time >= self._next:
            # The grid goes on from the last instant, so that what comes late does not lower the rate.
            self._next = max(self._next, payload.time - 1 / self.rate) + 1 / self.rate - 1e-6
            shown = payload.derive(image=self.window.copy(), number=self._number)
            self._number += 1
            self.send("out", shown)
        else:
            self.drop("above the rate")


class Puzzle(Module):
    """Live pictures cut into tiles that slide: one is missing, and :meth:`slide` moves a neighbour into its place."""

    inputs = {"in": Frame}
    outputs = {"out": Frame}

    def __init__(self, side: int = 4, seed: int = 0, shuffles: int = 100) -> None:
        super().__init__()
        if not 2 <= side <= 16:
            raise ValueError(f"a puzzle of {side} by {side} tiles; from 2 to 16")
        self.side = side
        #: Slides of somebody who plays.
        self.moves = 0
        self._pressed: deque[str] = deque(maxlen=KEYS_MAX)
        #: Which tile is at each place; the last tile is the missing one.
        self.places = list(range(side * side))
        rng = np.random.default_rng(seed)
        for _ in range(shuffles):  # Only slides, so that it can be solved.
            self.slide(int(rng.choice(self._neighbours())))

    @property
    def hole(self) -> int:
        """The place without a tile."""
        return self.places.index(self.side * self.side - 1)

    @property
    def solved(self) -> bool:
        """Whether all tiles are where they belong."""
        return self.places == list(range(self.side * self.side))

    def _neighbours(self) -> list[int]:
        row, column = divmod(self.hole, self.side)
        around = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
        return [r * self.side + c for r, c in around if 0 <= r < self.side and 0 <= c < self.side]

    def slide(self, place: int) -> bool:
        """Slides the tile at a place into the hole beside it; False if it is not beside it."""
        if place not in self._neighbours():
            return False
        hole = self.hole
        self.places[hole], self.places[place] = self.places[place], self.places[hole]
        return True

    def press(self, key: str) -> None:
        """A key of somebody who plays, from any thread: the tile that can slide that way does, at the next picture."""
        self._pressed.append(key)

    @property
    def words(self) -> str:
        """How the game stands."""
        if not self.moves:
            return "The tiles slide by themselves until you press an arrow key."
        count = "1 move" if self.moves == 1 else f"{self.moves} moves"
        return f"Solved after {count}." if self.solved else f"{count}."

    def _play(self) -> None:
        while self._pressed:
            down, right = KEY_WAYS[self._pressed.popleft()]
            row, column = divmod(self.hole, self.side)
            row, column = row - down, column - right
            if 0 <= row < self.side and 0 <= column < self.side and not self.solved:
                self.moves += self.slide(row * self.side + column)

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame)
        self._play()
        self.send("out", payload.derive(image=self.arrange(payload.image)))

    def arrange(self, image: Image) -> Image:
        """The picture with its tiles where they are."""
        height, width = image.shape[0] // self.side, image.shape[1] // self.side
        shown = np.zeros_like(image)
        for place, tile in enumerate(self.places):
            if tile == self.side * self.side - 1 and not self.solved:
                continue
            row, column = divmod(place, self.side)
            from_row, from_column = divmod(tile, self.side)
            part = image[
                from_row * height : (from_row + 1) * height,
                from_column * width : (from_column + 1) * width,
            ]
            shown[row * height : (row + 1) * height, column * width : (column + 1) * width] = part
            corner, end = (
                (column * width, row * height),
                ((column + 1) * width - 1, (row + 1) * height - 1),
            )
            cv2.rectangle(shown, corner, end, (0, 0, 0), 1)
        return shown
