"""Generated films with speech, captions and scores: news, comedy, sport. See :mod:`films`."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from .films import RATE, SOUND, Film, Generator, Span, _noise
from .payload import Caption, Image, Samples

#: Words of each subject of the generated news; stories of one programme have different subjects.
SUBJECTS = {
    "weather": "rain storm wind forecast temperature coast flood warning snow clouds",
    "markets": "shares bank market price investors trade profit index dollar quarter",
    "health": "hospital doctors patients vaccine study disease clinic nurses treatment cells",
    "space": "rocket orbit launch satellite crew station moon engine telescope mission",
    "court": "judge trial jury lawyer verdict appeal witness charges sentence evidence",
    "school": "teachers pupils school lessons exams classroom students books budget parents",
    "sport": "match team goal coach season league player stadium fans score",
    "transport": "train airport road traffic drivers railway strike passengers tickets delay",
    "politics": "minister parliament vote election party senate bill debate leader campaign",
    "science": "researchers physics laboratory experiment particles energy data theory measure result",
}
FILLERS = "the a of in on and with after before this that today again said would have".split()


def _talk(rng: Generator, words: list[str], count: int) -> str:
    chosen = [
        words[int(rng.integers(len(words)))]
        if rng.random() < 0.45
        else FILLERS[int(rng.integers(len(FILLERS)))]
        for _ in range(count)
    ]
    return " ".join(chosen).capitalize() + "."


def _speech(rng: Generator, seconds: float) -> Samples:
    """Syllables: bursts of a buzzing tone, some four a second."""
    count = int(seconds * SOUND)
    at = np.arange(count) / SOUND
    pitch = 110 + 30 * np.sin(2 * np.pi * 0.7 * at)
    buzz = np.sign(np.sin(2 * np.pi * np.cumsum(pitch) / SOUND)) * 0.3 + rng.normal(0, 0.05, count)
    syllables = np.clip(np.sin(2 * np.pi * 4 * at + rng.uniform(0, 6)) + 0.6, 0, 1)
    return (buzz * syllables * 0.5).astype(np.float32)


def _laughter(rng: Generator, seconds: float, strength: float) -> Samples:
    """Noise that swells and dies, with the rhythm of laughing."""
    count = int(seconds * SOUND)
    at = np.arange(count) / SOUND
    swell = np.minimum(1, at / 0.3) * np.minimum(1, (seconds - at) / 0.6)
    rhythm = 0.6 + 0.4 * np.sin(2 * np.pi * 5 * at)
    return np.asarray(rng.normal(0, 0.35, count) * swell * rhythm * strength, np.float32)


def _shot(rng: Generator) -> Image:
    """A still picture of a report: coloured shapes on a ground."""
    image = np.empty((240, 320, 3), np.uint8)
    image[:] = rng.integers(20, 235, 3)
    for _ in range(int(rng.integers(4, 9))):
        colour = tuple(int(v) for v in rng.integers(0, 255, 3))
        centre = (int(rng.integers(0, 320)), int(rng.integers(0, 240)))
        cv2.circle(image, centre, int(rng.integers(15, 70)), colour, -1)
    return image


def _studio(rng: Generator) -> Image:
    image = np.full((240, 320, 3), (120, 60, 30), np.uint8)
    cv2.rectangle(image, (0, 170), (320, 240), (60, 40, 25), -1)
    cv2.ellipse(image, (160, 165), (50, 60), 0, 180, 360, (40, 40, 60), -1)
    cv2.circle(image, (160, 85), 28, (140, 170, 215), -1)
    cv2.rectangle(image, (225, 30), (300, 90), tuple(int(v) for v in rng.integers(60, 220, 3)), -1)
    return image


def news(seed: int, stories: int = 8) -> Film:
    """A news programme: each story begins in the studio, after a pause, and goes on with reports.

    Captions mark a new story with ``>>>``, as broadcasters' do, but three in ten lack the mark and one speaker's
    change in twelve has it wrongly.
    """
    rng = np.random.default_rng([seed, 3])
    names = [list(SUBJECTS)[i] for i in rng.permutation(len(SUBJECTS))]
    studio = _studio(rng)
    shots: list[tuple[float, Image]] = []
    captions, truth, sound = [], [], []
    at = 0.0
    for story in range(stories):
        subject = names[story % len(names)]
        words = SUBJECTS[subject].split()
        begin = at
        shots.append((at, studio))
        for sentence in range(int(rng.integers(4, 9))):
            lasts = float(rng.uniform(2.5, 4.5))
            if sentence and (sentence == 2 or rng.random() < 0.35):
                shots.append((at, _shot(rng)))
            mark = ""
            if sentence == 0 and rng.random() > 0.3:
                mark = ">>> "
            elif sentence and rng.random() < 0.3:
                mark = ">>> " if rng.random() < 1 / 12 else ">> "
            captions.append(Caption(at, lasts, text=mark + _talk(rng, words, int(lasts * 2.5))))
            sound.append(_speech(rng, lasts))
            at += lasts
            pause = float(rng.uniform(0.05, 0.3))
            sound.append(np.zeros(int(pause * SOUND), np.float32))
            at += pause
        truth.append(Span(begin, at, subject))
        pause = float(rng.uniform(0.9, 1.6))
        sound.append(np.zeros(int(pause * SOUND), np.float32))
        at += pause
    noise = _noise(rng, (240, 320, 3), 2.0)
    starts = np.array([begin for begin, _ in shots])

    def draw(number: int) -> Image:
        shot = int(np.searchsorted(starts, number / RATE, side="right")) - 1
        return noise(shots[max(shot, 0)][1], number)

    return Film("news", seed, at, RATE, draw, truth, captions, _mixed(rng, sound))


def _mixed(rng: Generator, pieces: list[Samples]) -> Samples:
    whole = np.concatenate(pieces)
    return np.clip(whole + rng.normal(0, 0.004, whole.size), -1, 1).astype(np.float32)[:, None]


#: How captions mark what the audience does.
CUES = ("[LAUGHTER]", "(laughter)", "[Audience laughing]", "[LAUGHTER AND APPLAUSE]", "(applause)")


def comedy(seed: int, jokes: int = 10) -> Film:
    """Somebody on a stage; after each joke the audience laughs, loudly or less, and captions say so.

    One laugh in seven has no caption, only its sound; one caption in ten marks music or a door instead.
    """
    rng = np.random.default_rng([seed, 4])
    stage = np.full((240, 320, 3), (40, 30, 90), np.uint8)
    cv2.ellipse(stage, (160, 215), (90, 25), 0, 0, 360, (120, 160, 190), -1)
    cv2.ellipse(stage, (160, 150), (18, 55), 0, 0, 360, (60, 60, 60), -1)
    cv2.circle(stage, (160, 80), 16, (140, 170, 215), -1)
    captions, truth, sound = [], [], []
    subjects = list(SUBJECTS.values())
    at = 0.0
    for _ in range(jokes):
        begin = at
        words = subjects[int(rng.integers(len(subjects)))].split()
        for _ in range(int(rng.integers(2, 5))):
            lasts = float(rng.uniform(1.8, 3.5))
            captions.append(Caption(at, lasts, text=_talk(rng, words, int(lasts * 2.5))))
            sound.append(_speech(rng, lasts))
            at += lasts
            if rng.random() < 0.1:
                captions.append(
                    Caption(at, 0.4, text=("[MUSIC]", "(door closes)")[int(rng.integers(2))])
                )
                sound.append(np.zeros(int(0.4 * SOUND), np.float32))
                at += 0.4
        punch = at
        lasts, strength = float(rng.uniform(1.2, 4.0)), float(rng.uniform(0.5, 1.0))
        if rng.random() > 1 / 7:
            captions.append(Caption(at, lasts, text=CUES[int(rng.integers(len(CUES)))]))
        sound.append(_laughter(rng, lasts, strength))
        at += lasts
        truth.append(Span(begin, at, "joke", {"punch": punch, "laughter": lasts * strength}))
        pause = float(rng.uniform(0.3, 0.8))
        sound.append(np.zeros(int(pause * SOUND), np.float32))
        at += pause
    noise = _noise(rng, stage.shape, 2.0)
    return Film(
        "comedy",
        seed,
        at,
        RATE,
        lambda number: noise(stage, number),
        truth,
        captions,
        _mixed(rng, sound),
    )


def sport(seed: int, goals: int = 7) -> Film:
    """A game with a scoreboard in a corner; close-ups without it, replays, and goals."""
    rng = np.random.default_rng([seed, 5])
    is_left, is_high = rng.random() < 0.5, rng.random() < 0.5
    board = _board(np.random.default_rng([seed, 6]), is_left, is_high)
    ground = tuple(int(v) for v in rng.integers(10, 70, 3))
    truth, scores = [], [(0.0, 0, 0)]
    at, home, away = float(rng.uniform(8, 14)), 0, 0
    hidden: list[tuple[float, float]] = []
    for _ in range(goals):
        home, away = (home + 1, away) if rng.random() < 0.5 else (home, away + 1)
        truth.append(Span(at, at + 1.0, f"{home}:{away}", {"home": home, "away": away}))
        scores.append((at, home, away))
        if rng.random() < 0.6:  # The camera goes close after the goal; the board is not shown.
            hidden.append((at + 2.0, at + float(rng.uniform(3.5, 6))))
        at += float(rng.uniform(10, 22))
        if rng.random() < 0.4:
            gap = at - float(rng.uniform(4, 7))
            hidden.append((gap, gap + 1.5))
    seconds = at
    noise = _noise(rng, (240, 320, 3), 3.0)
    close = [_shot(rng) for _ in range(4)]
    players = rng.uniform(0, 1, (12, 4))

    def draw(number: int) -> Image:
        now = number / RATE
        for index, (begin, end) in enumerate(hidden):
            if begin <= now < end:
                return noise(close[index % 4], number)
        image = np.full((240, 320, 3), (40, 130, 50), np.uint8)
        shift = int(60 * np.sin(now / 3))
        cv2.line(image, (160 - shift, 0), (160 - shift, 240), (220, 230, 220), 2)
        for index, (x, y, speed, phase) in enumerate(players):
            centre = (
                int((x + 0.12 * np.sin(now * (0.5 + speed) + 6 * phase)) * 320),
                int((0.15 + y * 0.7) * 240),
            )
            cv2.circle(image, centre, 5, (30, 30, 200) if index % 2 else (200, 60, 30), -1)
        _, us, them = max(
            (score for score in scores if score[0] <= now), key=lambda score: score[0]
        )
        _draw_scoreboard(image, board, f"HOM {us}:{them} AWY", ground)
        return noise(image, number)

    known = {"region": (board.x, board.y, board.width, board.height), "scale": board.scale}
    return Film("sport", seed, seconds, RATE, draw, truth, known=known)


@dataclass(frozen=True)
class _Board:
    """A scoreboard's place, and what it is written with."""

    x: int
    y: int
    width: int
    height: int
    scale: float
    font: int


def _board(rng: Generator, is_left: bool, is_high: bool) -> _Board:
    scale = (0.35, 0.45, 0.55)[int(rng.integers(3))]
    font = (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX)[int(rng.integers(2))]
    (width, tall), _ = cv2.getTextSize("HOM 0:0 AWY", font, scale, 1)
    width, height = width + 8, tall + 12
    x, y = 16 if is_left else 304 - width, 14 if is_high else 226 - height
    return _Board(x, y, width, height, scale, font)


def _draw_scoreboard(image: Image, board: _Board, text: str, ground: tuple[int, ...]) -> None:
    x, y = board.x, board.y
    cv2.rectangle(image, (x, y), (x + board.width, y + board.height), ground, -1)
    place, white = (x + 3, y + board.height - 6), (255, 255, 255)
    cv2.putText(image, text, place, board.font, board.scale, white, 1, cv2.LINE_AA)
