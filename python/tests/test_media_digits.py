"""Reading a score off a scoreboard."""

from __future__ import annotations

import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")
pytest.importorskip("av", reason="PyAV is not installed")

import cv2
import numpy as np

from lastmeter.media import digits, films_spoken, score
from lastmeter.media.payload import Image
from lastmeter.media.scoreboard import Scoreboard


def board(text: str, scale: float = 0.6, *, light: bool = False, font: int = 0) -> Image:
    """A board with noise."""
    (width, tall), _ = cv2.getTextSize(text, font, scale, 1)
    image = np.full((tall + 16, width + 16), 230 if light else 40, np.uint8)
    colour = 10 if light else 250
    cv2.putText(image, text, (8, tall + 8), font, scale, colour, 1, cv2.LINE_AA)
    noise = np.random.default_rng(len(text)).normal(0, 3, image.shape)
    return np.clip(image + noise, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("font", [cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX])
@pytest.mark.parametrize("light", [False, True])
def test_scores_are_read_or_not_but_never_wrongly(font: int, light: bool) -> None:
    scores = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 21), (66, 35), (98, 102)]
    read = 0
    for home, away in scores:
        for mark in ":-":
            text = f"HOM {home}{mark}{away} AWY"
            found = digits.read_score(board(text, light=light, font=font))
            assert found in (None, (home, away)), text
            read += found is not None
    assert read >= len(scores)


@pytest.mark.parametrize(
    "text", ["HOM AWY", "HOM 3 AWY 2", "A:B", "1234:1", ":", "3:", "12.5.7", "1:2 3:4"]
)
def test_what_is_no_score_or_more_than_one_is_not_guessed(text: str) -> None:
    assert digits.read_score(board(text)) is None


def test_any_picture_is_a_board_or_not() -> None:
    rng = np.random.default_rng(7)
    for _ in range(30):
        shape = tuple(int(side) for side in rng.integers(1, 40, 2))
        digits.read_score(rng.integers(0, 256, shape).astype(np.uint8))
    for value in (0, 255):
        assert digits.read_score(np.full((20, 90), value, np.uint8)) is None


def test_a_large_board_costs_no_more_than_a_small_one() -> None:
    small = board("HOM 2:3 AWY", 0.8, font=cv2.FONT_HERSHEY_DUPLEX)
    large = cv2.resize(small, None, fx=8, fy=8, interpolation=cv2.INTER_CUBIC)
    assert digits.read_score(np.asarray(large, np.uint8)) == (2, 3)
    assert digits._templates.cache_info().maxsize == 64
    assert digits.ROWS_MAX * digits.ENLARGED < large.shape[0]


def test_scores_of_a_game_never_fall() -> None:
    said = [(0, 1), (0, 7), (1, 1), None, (1, 2), (9, 2), (2, 2), (2, 3)]
    assert digits.consistent(said) == [(0, 1), None, (1, 1), None, (1, 2), None, (2, 2), (2, 3)]
    assert digits.consistent([]) == [] and digits.consistent([None]) == [None]


def test_goals_of_a_film_are_read() -> None:
    found = score.digits(3)
    assert found.precision == 1.0 and found.recall >= 0.85, found
    film = films_spoken.sport(3)
    watched = score.play(film, Scoreboard())
    last = [item.score for item in watched.highlights if item.score is not None][-1]
    assert last == tuple(film.truth[-1].values[side] for side in ("home", "away"))
