"""Captions: WebVTT and SubRip read and written, and the marks in them.

Sources: WebVTT (W3C, section 4), SubRip as players read it. Closed captions inside a film (EIA-608) come through
FFmpeg as a text stream: :class:`lastmeter.media.video.FileSource` has an output for them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .graph import Source
from .payload import Caption, Payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: Characters read of one file; a feature film has some 200 thousand.
SIZE_MAX = 16_000_000
#: Cues of one file.
CUES_MAX = 100_000

_TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{2})[.,](\d{3})"
_TIMING = re.compile(rf"^\s*{_TIME}\s*-->\s*{_TIME}")
_TAG = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")


class CaptionError(ValueError):
    """A file that holds no captions; the message has the line."""


def parse(text: str) -> list[Caption]:
    """Reads WebVTT or SubRip: tags are taken out, lines of a cue joined, cues sorted by time.

    >>> [cue] = parse("1\\n00:00:01,500 --> 00:00:03,000\\n<i>Rain</i>\\nto come\\n")
    >>> cue.time, cue.duration, cue.text
    (1.5, 1.5, 'Rain to come')
    """
    if len(text) > SIZE_MAX:
        raise CaptionError(f"{len(text)} characters; at most {SIZE_MAX} are read")
    cues: list[Caption] = []
    lines = text.removeprefix("\ufeff").splitlines()
    number = 0
    while number < len(lines):
        found = _TIMING.match(lines[number])
        number += 1
        if found is None:
            continue
        groups = found.groups()
        begin, end = _seconds(groups[:4]), _seconds(groups[4:])
        words = []
        while number < len(lines) and lines[number].strip() and not _TIMING.match(lines[number]):
            words.append(_TAG.sub("", lines[number]).strip())
            number += 1
        if end < begin:
            raise CaptionError(
                f"line {number}: a caption ends at {end:g} s, before it begins at {begin:g} s"
            )
        if len(cues) >= CUES_MAX:
            raise CaptionError(f"line {number}: more than {CUES_MAX} captions")
        cues.append(Caption(begin, end - begin, text=_plain(" ".join(words))))
    if not cues and text.strip() not in ("", "WEBVTT"):
        raise CaptionError(
            "line 1: no line like `00:00:01.500 --> 00:00:03.000`: neither WebVTT nor SubRip"
        )
    return sorted(cues, key=lambda cue: cue.time)


def _seconds(parts: tuple[str | None, ...]) -> float:
    hours, minutes, seconds, thousandths = (int(part or 0) for part in parts)
    return hours * 3600 + minutes * 60 + seconds + thousandths / 1000


def _plain(text: str) -> str:
    for entity, plain in (("&gt;", ">"), ("&lt;", "<"), ("&nbsp;", " "), ("&amp;", "&")):
        text = text.replace(entity, plain)
    return " ".join(text.split())


def to_vtt(captions: Iterable[Caption]) -> str:
    """Captions as WebVTT; :func:`parse` reads them back to the millisecond."""
    parts = ["WEBVTT\n"]
    for cue in captions:
        text = cue.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        parts.append(f"{_stamp(cue.time)} --> {_stamp(cue.end)}\n{text}\n")
    return "\n".join(parts)


def _stamp(seconds: float) -> str:
    thousandths = round(seconds * 1000)
    minutes, thousandths = divmod(thousandths, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{thousandths // 1000:02}.{thousandths % 1000:03}"


#: What an audience does, as captions mark it in brackets.
_CUE = re.compile(
    r"[\[(][^\])]*\b(laugh|applau|cheer|chuckl|giggl|clap)[^\])]*[\])]", re.IGNORECASE
)
_NOTE = re.compile(r"[\[(][^\])]*[\])]|\u266a[^\u266a]*\u266a?")


def audience(text: str) -> bool:
    """Whether a caption says that the audience laughs or applauds.

    >>> audience("[LAUGHTER AND APPLAUSE]"), audience("he laughed (door closes)")
    (True, False)
    """
    return _CUE.search(text) is not None


def spoken(text: str) -> str:
    """What is said, without marks of speakers and notes in brackets.

    >>> spoken(">>> Good evening. [MUSIC]")
    'Good evening.'
    """
    return " ".join(_NOTE.sub(" ", text).replace(">", " ").split())


class CaptionSource(Source):
    """Plays the captions of a file (WebVTT or SubRip)."""

    outputs = {"out": Caption}

    def __init__(self, path: Path, pace: float = 0.0) -> None:
        super().__init__(pace)
        self.captions = parse(path.read_text(encoding="utf-8", errors="replace"))

    def items(self) -> Iterator[tuple[str, Payload]]:
        for cue in self.captions:
            yield "out", cue.derive()
