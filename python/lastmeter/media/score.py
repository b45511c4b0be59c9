"""How well the programs find what generated films show: precision and recall against their known truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from . import films, films_spoken
from .graph import Graph
from .room import RoomMonitor
from .scoreboard import Scoreboard
from .spoken import Spoken, jokes, stories
from .whiteboard import Whiteboard, ink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .films import Film

#: Seeds that a score uses; the programs' constants were chosen on 1 to 3.
SEEDS = (4, 5, 6, 7, 8)
#: Seconds by which a story's begin, a joke's punch line or a goal may be off.
NEAR = 2.0


@dataclass
class Score:
    """Precision: the share of what was found that is there. Recall: the share of what is there that was found."""

    program: str
    film: str
    right: float
    found: float
    there: float

    @property
    def precision(self) -> float:
        """1 if nothing was found that is not there."""
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        """1 if all that is there was found."""
        return self.right / self.there if self.there else 1.0

    def to_dict(self) -> dict[str, Any]:
        """A line of ``media score --json``."""
        return {
            "program": self.program,
            "film": self.film,
            "precision": self.precision,
            "recall": self.recall,
        }


def play(film: Film, module: Any, ports: Iterable[str] = ("out",)) -> Any:
    """Runs a film through a module as fast as it goes."""
    graph = Graph(title=film.name)
    graph.add("film", film.source())
    graph.add("program", module)
    for port in ports:
        graph.join(f"film.{port}", f"program.{'in' if port == 'out' else port}")
    graph.run()
    return module


def room(seed: int) -> Score:
    """Seconds of the film that are rightly called occupied."""
    film = films.room(seed)
    found = play(film, RoomMonitor()).spans
    step = 0.1
    times = np.arange(0, film.seconds, step)
    is_there = _covered(times, [(span.begin, span.end) for span in film.truth])
    said = _covered(times, found)
    return Score(
        "room",
        f"room-{seed}",
        float((is_there & said).sum()) * step,
        float(said.sum()) * step,
        float(is_there.sum()) * step,
    )


def _covered(times: np.ndarray, spans: list[tuple[float, float]]) -> np.ndarray:
    covered = np.zeros(times.shape, bool)
    for begin, end in spans:
        covered |= (times >= begin) & (times < end)
    return covered


def board(seed: int) -> Score:
    """Pages whose strokes are those that were written, to two pixels, in order."""
    film = films.board(seed, pages=3)
    pages = play(film, Whiteboard()).pages
    right = sum(
        same_page(page.image, true) for page, true in zip(pages, film.known["pages"], strict=False)
    )
    return Score("whiteboard", f"board-{seed}", right, len(pages), len(film.truth))


def same_page(found: Any, true: Any, apart: int = 4) -> bool:
    """Whether nine tenths of the strokes of each lie near those of the other."""
    one, other = ink(found), ink(true)
    near = np.ones((2 * apart + 1, 2 * apart + 1), np.uint8)
    around_one = cv2.dilate(one.astype(np.uint8), near) > 0
    around_other = cv2.dilate(other.astype(np.uint8), near) > 0
    recall = (other & around_one).sum() / max(1, other.sum())
    precision = (one & around_other).sum() / max(1, one.sum())
    return bool(recall >= 0.9 and precision >= 0.9)


def news(seed: int) -> Score:
    """Stories whose beginning was found; the programme's own beginning does not count."""
    film = films_spoken.news(seed)
    found = play(film, Spoken(), ("out", "captions", "sound"))
    said = [story.begin for story in stories(found)][1:]
    return _points("news", f"news-{seed}", said, [span.begin for span in film.truth][1:])


def comedy(seed: int) -> Score:
    """Jokes whose punch line was found."""
    film = films_spoken.comedy(seed)
    found = play(film, Spoken(), ("out", "captions", "sound"))
    return _points(
        "jokes",
        f"comedy-{seed}",
        [joke.punch for joke in jokes(found)],
        [span.values["punch"] for span in film.truth],
    )


def sport(seed: int) -> Score:
    """Goals that were found."""
    film = films_spoken.sport(seed)
    found = play(film, Scoreboard())
    return _points(
        "sport",
        f"sport-{seed}",
        [item.time for item in found.highlights],
        [span.begin for span in film.truth],
    )


def digits(seed: int) -> Score:
    """Goals whose score was read: right in time and in both numbers."""
    film = films_spoken.sport(seed)
    read = [item for item in play(film, Scoreboard()).highlights if item.score is not None]
    right = 0
    for item in read:
        goal = min(film.truth, key=lambda span: abs(span.begin - item.time))
        is_score = item.score == (goal.values["home"], goal.values["away"])
        right += abs(goal.begin - item.time) <= NEAR and is_score
    return Score("digits", f"sport-{seed}", right, len(read), len(film.truth))


def _points(program: str, film: str, said: list[float], true: list[float]) -> Score:
    left = list(true)
    right = 0
    for at in said:
        near = min(left, key=lambda there: abs(there - at), default=None)
        if near is not None and abs(near - at) <= NEAR:
            left.remove(near)
            right += 1
    return Score(program, film, right, len(said), len(true))


#: The programs that are scored, by name.
PROGRAMS: dict[str, Callable[[int], Score]] = {
    "room": room,
    "whiteboard": board,
    "news": news,
    "jokes": comedy,
    "sport": sport,
    "digits": digits,
}


def scores(programs: Iterable[str] = PROGRAMS, seeds: Iterable[int] = SEEDS) -> Iterator[Score]:
    """Scores one film after another."""
    seeds = tuple(seeds)
    for program in programs:
        for seed in seeds:
            yield PROGRAMS[program](seed)
