"""News Browser and Joke Browser: films cut into stories and jokes by what is said, heard and seen (A-84, A-85)."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .captions import audience, spoken
from .graph import Module
from .modules import Keyframes
from .payload import Caption, Frame, Payload, Sound

if TYPE_CHECKING:
    from collections.abc import Iterable

# Stories

#: What speaks for a new story at a caption's begin, and how much. Chosen on the generated programmes of seeds 1 to 3.
MARK = 1.0  #: its text begins with `>>>`
PAUSE = 0.7  #: nobody spoke for at least `QUIET` before it
CUT = 0.25  #: the picture changes within a second of it
RETURN = 0.6  #: to the picture that the programme returns to most often
WORDS = 0.9  #: times how little the words after it have in common with those before
#: A story begins where the sum is at least this.
STORY = 1.6
#: Seconds without speech that are a pause between stories.
QUIET = 0.7
#: Shortest story, in seconds.
SHORTEST = 8.0
#: Captions on either side whose words are compared.
WINDOW = 4

_COMMON = frozenset(
    "the a an of in on and with after before this that today again said would have has is are was were to for it as at by be from".split()
)


@dataclass
class Story:
    """A story: when, its commonest words, and why it was cut here."""

    begin: float
    end: float
    title: str
    evidence: float


class Spoken(Module):
    """Gathers what story and joke cutting need: captions, when it is quiet or loud, and the first picture of each shot."""

    inputs = {"in": Frame, "captions": Caption, "sound": Sound}
    optional = True
    room = 8

    def __init__(self) -> None:
        super().__init__()
        self.captions: list[Caption] = []
        #: (time, seconds, level, flatness) of each piece of sound
        self.levels: list[tuple[float, float, float, float]] = []
        self.shots: list[tuple[float, np.ndarray]] = []
        self.seconds = 0.0
        self._cuts = Keyframes()
        self._histogram: np.ndarray | None = None

    def process(self, port: str, payload: Payload) -> None:
        self.seconds = max(self.seconds, payload.end)
        if isinstance(payload, Caption):
            self.captions.append(payload)
        elif isinstance(payload, Sound):
            self._listen(payload)
        elif isinstance(payload, Frame):
            self._watch(payload)

    def _listen(self, sound: Sound) -> None:
        samples = sound.samples.mean(axis=1) if sound.samples.ndim == 2 else sound.samples
        if not samples.size:
            return
        level = float(np.sqrt(np.mean(samples**2)))
        power = np.abs(np.fft.rfft(samples * np.hanning(samples.size))) ** 2 + 1e-12
        flatness = float(np.exp(np.mean(np.log(power))) / np.mean(power))
        self.levels.append((sound.time, sound.duration, level, flatness))

    def _watch(self, frame: Frame) -> None:
        histogram = signature(frame)
        before, self._histogram = self._histogram, histogram
        if before is None or float(np.abs(histogram - before).sum()) / 2 > 0.35:
            self.shots.append((frame.time, histogram))


def signature(frame: Frame) -> np.ndarray:
    """The colours of a picture, by which shots are told apart: shares that sum to 1."""
    small = frame.image[::4, ::4]
    bins = small.reshape(-1, 1 if small.ndim == 2 else small.shape[2]) >> 6
    code = bins[:, 0].astype(np.int32)
    for channel in range(1, bins.shape[1]):
        code = code * 4 + bins[:, channel]
    counts = np.bincount(code, minlength=4 ** bins.shape[1]).astype(np.float64)
    return np.asarray(counts / counts.sum())


def stories(found: Spoken) -> list[Story]:
    """The stories of a news programme."""
    cues = [cue for cue in found.captions if spoken(cue.text)]
    if not cues:
        return []
    pauses = _pauses(found, cues)
    anchor = _anchor(found.shots)
    begins, evidence = [cues[0].time], [STORY]
    for number in range(1, len(cues)):
        score = _score(cues, number, pauses, found.shots, anchor)
        if score < STORY:
            continue
        if cues[number].time - begins[-1] < SHORTEST:
            # Two candidates too near each other: the stronger one stays.
            if len(begins) > 1 and score > evidence[-1]:
                begins[-1], evidence[-1] = cues[number].time, score
            continue
        begins.append(cues[number].time)
        evidence.append(score)
    ends = [*begins[1:], max(found.seconds, cues[-1].end)]
    return [
        Story(begin, end, ", ".join(_title(cues, begin, end)), score)
        for begin, end, score in zip(begins, ends, evidence, strict=True)
    ]


def _score(
    cues: list[Caption],
    number: int,
    pauses: list[float],
    shots: list[tuple[float, np.ndarray]],
    anchor: int | None,
) -> float:
    cue = cues[number]
    score = MARK if cue.text.lstrip().startswith(">>>") else 0.0
    if pauses[number] >= QUIET:
        score += PAUSE
    near = [index for index, (at, _) in enumerate(shots) if abs(at - cue.time) <= 1.0]
    if near:
        score += CUT
        if anchor is not None and any(_alike(shots[index][1], shots[anchor][1]) for index in near):
            score += RETURN
    before = _words(cues[max(0, number - WINDOW) : number])
    after = _words(cues[number : number + WINDOW])
    return score + WORDS * (1 - _cosine(before, after))


def _pauses(found: Spoken, cues: list[Caption]) -> list[float]:
    """How long nobody spoke before each caption: heard where there is sound, else from the captions' times."""
    if not found.levels:
        ends = [0.0, *(cue.end for cue in cues[:-1])]
        return [cue.time - end for cue, end in zip(cues, ends, strict=True)]
    loud = float(np.percentile([level for _, _, level, _ in found.levels], 70))
    times = np.array([at + seconds for at, seconds, level, _ in found.levels if level > loud / 6])
    pauses = []
    for cue in cues:
        last = int(np.searchsorted(times, cue.time + 0.05)) - 1
        pauses.append(cue.time - float(times[last]) if last >= 0 else cue.time)
    return pauses


def _anchor(shots: list[tuple[float, np.ndarray]]) -> int | None:
    """The shot that is returned to most often: the studio; none if nothing is returned to."""
    best, most = None, 1
    for index, (_, one) in enumerate(shots[:400]):
        alike = sum(_alike(one, other) for _, other in shots[:400])
        if alike > most:
            best, most = index, alike
    return best


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    return float(np.abs(one - other).sum()) / 2 < 0.15


def _words(cues: Iterable[Caption]) -> Counter[str]:
    words = re.findall(r"[a-z']+", " ".join(spoken(cue.text) for cue in cues).lower())
    return Counter(word for word in words if word not in _COMMON)


def _cosine(one: Counter[str], other: Counter[str]) -> float:
    if not one or not other:
        return 0.0
    product = sum(count * other[word] for word, count in one.items())
    lengths = math.sqrt(sum(c * c for c in one.values()) * sum(c * c for c in other.values()))
    return product / lengths


def _title(cues: list[Caption], begin: float, end: float) -> list[str]:
    words = _words(cue for cue in cues if begin <= cue.time < end)
    return [word for word, _ in words.most_common(3)]


# Jokes

#: Spectral flatness above which sound is noise, as laughter and applause are, rather than a voice.
NOISE = 0.3
#: Shortest laughter that is heard, in seconds.
LAUGH = 0.5
#: Laughs nearer to each other than this are one, in seconds.
ONE_LAUGH = 0.6


@dataclass
class Joke:
    """From the end of the laughter before it to its own; ``laughter`` is seconds times loudness."""

    begin: float
    punch: float
    end: float
    laughter: float
    text: str


def jokes(found: Spoken) -> list[Joke]:
    """The jokes of a comedy, in order; rank them by ``laughter``."""
    laughs = _join(sorted(_marked(found.captions) + _heard(found)))
    cues = [cue for cue in found.captions if spoken(cue.text) and not audience(cue.text)]
    result, before = [], 0.0
    for begin, end in laughs:
        text = " ".join(spoken(cue.text) for cue in cues if before <= cue.time < begin)
        if text:
            starts = [cue.time for cue in cues if before <= cue.time < begin]
            result.append(Joke(starts[0], begin, end, _loudness(found, begin, end), text))
            before = end
    return result


def _marked(captions: list[Caption]) -> list[tuple[float, float]]:
    return [(cue.time, cue.end) for cue in captions if audience(cue.text)]


def _heard(found: Spoken) -> list[tuple[float, float]]:
    if not found.levels:
        return []
    loud = float(np.percentile([level for _, _, level, _ in found.levels], 60))
    spans: list[tuple[float, float]] = []
    for at, seconds, level, flatness in found.levels:
        if flatness > NOISE and level > loud / 5:
            if spans and at - spans[-1][1] <= 0.25:
                spans[-1] = (spans[-1][0], at + seconds)
            else:
                spans.append((at, at + seconds))
    return [(begin, end) for begin, end in spans if end - begin >= LAUGH]


def _join(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for begin, end in spans:
        if joined and begin - joined[-1][1] < ONE_LAUGH:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _loudness(found: Spoken, begin: float, end: float) -> float:
    heard = [level * seconds for at, seconds, level, _ in found.levels if begin <= at < end]
    return sum(heard) if heard else end - begin
