"""Reads a score off a scoreboard: two numbers with a colon or a dash between them.

    board --> upright characters --> the colon or dash --> digits to its left and right --> template matching

Templates are the digits of a few typefaces, drawn as high as those of the board. A digit that none of them resembles, or
two resemble alike, is not guessed: the score is then not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from .payload import Image

#: Rows of the smallest digits that are read.
ROWS_MIN = 6
#: Rows to which a larger board is made smaller.
ROWS_MAX = 40
#: How much a board is enlarged before characters are told apart.
ENLARGED = 4
#: Least likeness of a digit to its template, from -1 to 1, and least lead over that of another digit.
LIKE = 0.7
LEAD = 0.06
#: A hole has at least this share of the character's box: between double strokes there are smaller ones.
HOLE = 0.025
#: Digits that have so many holes: an open 4 has none, a slashed 0 two.
HOLES = {0: (1, 2, 3, 4, 5, 7), 1: (0, 4, 6, 9), 2: (0, 8)}
#: Levels between ground and characters at which they are told apart.
LEVELS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
#: Gaps in heights of a character: the widest beside the colon, and between two digits of a number.
BESIDE, WITHIN = 0.5, 0.3
#: How far a dot may reach over the foot of a digit.
OVER = -0.25
#: Digits of a number at the most.
DIGITS_MAX = 3
#: Columns and rows at which characters are compared.
WIDTH, HEIGHT = 20, 28

Patch: TypeAlias = NDArray[np.float32]
_FONTS = (
    cv2.FONT_HERSHEY_SIMPLEX,
    cv2.FONT_HERSHEY_DUPLEX,
    cv2.FONT_HERSHEY_COMPLEX,
    cv2.FONT_HERSHEY_TRIPLEX,
)


@dataclass(frozen=True)
class _Box:
    """A character, or a part of one, in the enlarged picture."""

    x: int
    y: int
    width: int
    height: int

    @property
    def right(self) -> int:
        return self.x + self.width

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def read_score(board: Image) -> tuple[int, int] | None:
    """The numbers left and right of the colon or dash on a grey picture of a board; None if they cannot be read."""
    if min(board.shape[:2]) < 5:
        return None
    if board.shape[0] > ROWS_MAX:
        narrower = max(1, board.shape[1] * ROWS_MAX // board.shape[0])
        small = cv2.resize(board, (narrower, ROWS_MAX), interpolation=cv2.INTER_AREA)
        board = np.asarray(small, np.uint8)
    size = (board.shape[1] * ENLARGED, board.shape[0] * ENLARGED)
    large = np.asarray(cv2.resize(board, size, interpolation=cv2.INTER_CUBIC), np.uint8)
    ground = float(np.median(large))
    low, high = np.percentile(large, (1, 99))
    if high - ground < ground - low:  # Dark on light.
        large, ground, high = 255 - large, 255 - ground, 255 - low
    # What touches at one level may be apart at another; levels that read something must agree.
    read: set[tuple[int, int]] = set()
    for share in LEVELS:
        read |= _read_at(large, ground + share * (float(high) - ground))
    return read.pop() if len(read) == 1 else None


def consistent(scores: list[tuple[int, int] | None]) -> list[tuple[int, int] | None]:
    """The scores of a game in order without those that contradict most others: no number of a score ever falls.

    >>> consistent([(1, 0), (9, 8), None, (1, 1), (2, 1)])
    [(1, 0), None, None, (1, 1), (2, 1)]
    """
    # The longest row of scores in which each is at least the one before.
    length = [0] * len(scores)
    before: list[int | None] = [None] * len(scores)
    for at, score in enumerate(scores):
        if score is None:
            continue
        length[at] = 1
        for earlier, known in enumerate(scores[:at]):
            follows = known is not None and known[0] <= score[0] and known[1] <= score[1]
            if follows and known != score and length[earlier] + 1 > length[at]:
                length[at], before[at] = length[earlier] + 1, earlier
    kept: list[tuple[int, int] | None] = [None] * len(scores)
    at_last: int | None = max(range(len(scores)), key=lambda at: length[at], default=None)
    while at_last is not None:
        kept[at_last] = scores[at_last]
        at_last = before[at_last]
    return kept


def _read_at(large: Image, level: float) -> set[tuple[int, int]]:
    white = (large > level).astype(np.uint8)
    boxes = _boxes(white)
    if not boxes:
        return set()
    read = set()
    height = float(np.median([b.height for b in boxes if b.height > 0.6 * _tallest(boxes)]))
    if height < ROWS_MIN * ENLARGED:
        return set()
    tall = [b for b in boxes if 0.75 * height <= b.height <= 1.3 * height]
    for left, right in _separators(boxes, height):
        home = _number(large, white, _row(tall, left, height, -1))
        away = _number(large, white, _row(tall, right, height, 1))
        if home is not None and away is not None:
            read.add((home, away))
    return read


def _tallest(boxes: list[_Box]) -> int:
    return max(box.height for box in boxes)


def _boxes(white: Image) -> list[_Box]:
    _, _, stats, _ = cv2.connectedComponentsWithStats(white, connectivity=8)
    return [_Box(*map(int, row[:4])) for row in stats[1:] if row[4] >= ENLARGED * ENLARGED // 2]


def _separators(boxes: list[_Box], height: float) -> list[tuple[int, int]]:
    """Left and right edge of what may be a dot of a colon (small boards may show but one), or a dash."""
    found = []
    for box in boxes:
        is_dot = max(box.height, box.width) < 0.45 * height
        is_dash = box.height < 0.35 * height and 0.2 * height < box.width < height
        if is_dot or (is_dash and box.width > 1.3 * box.height):
            found.append((box.x, box.right))
    return found


def _row(tall: list[_Box], edge: int, height: float, way: int) -> list[_Box]:
    """The characters that follow an edge to one side without a space, from left to right."""
    row: list[_Box] = []
    while len(row) <= DIGITS_MAX:
        gaps = [(b.x - edge if way > 0 else edge - b.right, b) for b in tall]
        most = WITHIN if row else BESIDE
        near = [(gap, b) for gap, b in gaps if OVER * height <= gap <= most * height]
        near = [(gap, b) for gap, b in near if b not in row]
        if not near:
            break
        box = min(near, key=lambda item: item[0])[1]
        row.append(box)
        edge = box.right if way > 0 else box.x
    return row[::way]


def _number(large: Image, white: Image, row: list[_Box]) -> int | None:
    if not 1 <= len(row) <= DIGITS_MAX:
        return None
    digits = [_digit(large, white, box) for box in row]
    return None if None in digits else int("".join(map(str, digits)))


def _digit(large: Image, white: Image, box: _Box) -> int | None:
    rows, columns = slice(box.y, box.y + box.height), slice(box.x, box.right)
    possible = HOLES.get(_holes(white[rows, columns]), ())
    patch = _patch(large[rows, columns])
    likeness = dict.fromkeys(possible, -1.0)
    for digit, template in _templates(round(box.height / ENLARGED)):
        if digit in likeness:
            likeness[digit] = max(likeness[digit], float((patch * template).mean()))
    best, *others = sorted(likeness, key=lambda digit: -likeness[digit]) or [-1]
    if best < 0 or likeness[best] < LIKE:
        return None
    return best if not others or likeness[best] - likeness[others[0]] >= LEAD else None


def _holes(character: Image) -> int:
    """Parts of the ground that the strokes of a character enclose."""
    around = cv2.copyMakeBorder(character, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    _, _, stats, _ = cv2.connectedComponentsWithStats(1 - around, connectivity=4)
    return int((stats[2:, cv2.CC_STAT_AREA] >= HOLE * character.size).sum())


def _patch(part: Image) -> Patch:
    """A character as high as all are, in the middle of a box, with mean 0 and deviation 1."""
    width = max(1, min(WIDTH, round(part.shape[1] * HEIGHT / part.shape[0])))
    scaled = cv2.resize(part, (width, HEIGHT), interpolation=cv2.INTER_AREA)
    patch = np.full((HEIGHT, WIDTH), float(np.min(scaled)), np.float32)
    left = (WIDTH - width) // 2
    patch[:, left : left + width] = scaled
    patch -= patch.mean()
    return np.asarray(patch / max(1.0, float(patch.std())), np.float32)


@lru_cache(maxsize=64)
def _templates(rows: int) -> list[tuple[int, Patch]]:
    """The digits of the typefaces, drawn so high and enlarged as a board is."""
    found = []
    for font in _FONTS:
        (_, tall), _ = cv2.getTextSize("0", font, 1.0, 1)
        for thickness in range(1, max(2, rows // 6 + 1)):
            for digit in range(10):
                image = np.zeros((3 * rows, 3 * rows), np.uint8)
                place = (rows, 2 * rows)
                scale = rows / tall
                cv2.putText(image, str(digit), place, font, scale, 255, thickness, cv2.LINE_AA)
                side = 3 * rows * ENLARGED
                large = cv2.resize(image, (side, side), interpolation=cv2.INTER_CUBIC)
                _, white = cv2.threshold(large, 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
                x, y, width, height = cv2.boundingRect(white)
                found.append((digit, _patch(np.asarray(large[y : y + height, x : x + width]))))
    return found
