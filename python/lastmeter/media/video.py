"""Films in files and from the network, through FFmpeg's libraries (PyAV).

A film is decoded ahead of its time by a thread of its own, so that the dispatcher never waits for a disk or network.
"""

from __future__ import annotations

import os
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
import numpy as np

from .ahead import Ahead
from .graph import GraphError, Module
from .payload import Caption, Frame, Payload, Sound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Seconds without data after which a network source ends.
SILENCE = 10.0


class VideoError(ValueError):
    """A film that cannot be read or written; the message says which and why."""


def open_film(name: str | Path | Any) -> Any:
    """Opens a file, an address (``rtsp://``, ``http://``) or a file object for reading."""
    try:
        return av.open(name if hasattr(name, "read") else str(name), timeout=SILENCE)
    except (av.FFmpegError, OSError) as error:
        raise VideoError(f"cannot read `{name}`: {error}") from error


class FileSource(Ahead):
    """A film: its pictures, and where they exist its sound and captions (A-78).

    ``name`` is a path, an address or a file object, such as a region of a network disk
    (:class:`lastmeter.media.network.DiskFile`).
    """

    outputs = {"out": Frame, "sound": Sound, "captions": Caption}

    def __init__(
        self,
        name: str | Path | Any,
        *,
        pace: float = 0.0,
        colour: bool = True,
        begin: float = 0.0,
        end: float | None = None,
    ) -> None:
        super().__init__(pace)
        self.source, self.colour, self.from_time, self.to_time = name, colour, begin, end

    def items(self) -> Iterator[tuple[str, Payload]]:
        try:
            with open_film(self.source) as film:
                yield from decode(film, self.colour, self.from_time, self.to_time)
        except (av.FFmpegError, OSError) as error:
            raise VideoError(f"`{self.source}` broke off: {error}") from error


def decode(
    film: Any, colour: bool, begin: float, end: float | None
) -> Iterator[tuple[str, Payload]]:
    """The payloads of an open film in the order of the file."""
    streams = [
        s
        for s in (
            film.streams.best("video"),
            film.streams.best("audio"),
            film.streams.best("subtitle"),
        )
        if s
    ]
    if not streams:
        raise VideoError("neither pictures nor sound")
    if begin > 0:
        film.seek(int(begin * av.time_base))
    number = 0
    first: float | None = None
    for packet in film.demux(streams):
        for found in packet.decode():
            if isinstance(found, av.VideoFrame):
                at = float(found.time) if found.time is not None else number / 25
                first = at if first is None else first
                rate = float(packet.stream.average_rate or 25)
                at -= first if begin == 0 else 0.0
                if end is not None and at >= end:
                    return
                if at >= begin - 1e-6:
                    image = found.to_ndarray(format="bgr24" if colour else "gray")
                    yield (
                        "out",
                        Frame(at, 1 / rate, image=image, number=number, key=bool(found.key_frame)),
                    )
                number += 1
            elif isinstance(found, av.AudioFrame):
                samples = _samples(found)
                at = float(found.time or 0.0)
                yield (
                    "sound",
                    Sound(
                        at,
                        samples.shape[0] / found.sample_rate,
                        samples=samples,
                        rate=found.sample_rate,
                    ),
                )
            elif isinstance(found, bytes) or hasattr(found, "rects"):
                yield from _captions(packet, found)


def _samples(frame: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    values = frame.to_ndarray()
    if not frame.format.is_planar:
        values = values.reshape(-1, len(frame.layout.channels)).T
    if np.issubdtype(values.dtype, np.integer):
        values = values / np.float32(np.iinfo(values.dtype).max + 1)
    return np.ascontiguousarray(values.T, np.float32)


def _captions(packet: Any, found: Any) -> Iterator[tuple[str, Payload]]:
    at = float((packet.pts or 0) * packet.time_base)
    duration = float((packet.duration or 0) * packet.time_base)
    for rect in [found] if not hasattr(found, "rects") else found.rects:
        text = getattr(rect, "dialogue", None) or getattr(rect, "text", None) or b""
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        if text.strip():
            yield "captions", Caption(at, duration, text=" ".join(text.replace("\\N", " ").split()))


class FileSink(Module):
    """Writes pictures, and sound if there is some, into a film: written aside, renamed when whole.

    On a network disk (:class:`lastmeter.media.network.DiskFile`) the film begins at the file's place and is MP4, which
    can be read when it is whole and ends where it says, whatever follows on the disk.
    """

    inputs = {"in": Frame, "sound": Sound}
    optional = True

    def __init__(
        self, path: Path | Any, *, rate: float = 25.0, codec: str = "libx264", bit_rate: int = 0
    ) -> None:
        super().__init__()
        self.path = path
        self.writer = Writer(path, rate=rate, codec=codec, bit_rate=bit_rate)

    def begin(self) -> None:
        if "in" not in self._inputs:
            raise GraphError(f"`{self.name}.in` is fed by nothing")

    def process(self, port: str, payload: Payload) -> None:
        if isinstance(payload, Frame):
            self.writer.picture(payload)
        elif isinstance(payload, Sound):
            self.writer.sound(payload)
        self.graph.arrived(self, payload)

    def finish(self) -> None:
        self.writer.finish()

    def close(self) -> None:
        self.writer.abandon()


class Writer:
    """Writes a film, to a path or a file object. Nothing is at a path until :meth:`finish`."""

    def __init__(
        self,
        path: Path | Any,
        *,
        rate: float = 25.0,
        codec: str = "libx264",
        bit_rate: int = 0,
        sound_rate: int = 0,
    ) -> None:
        self.path: Any = path
        self.rate, self.codec, self.bit_rate = rate, codec, bit_rate
        self.sound_rate = sound_rate
        self.frames = 0
        self._aside: Path | None = None
        if not hasattr(path, "write"):
            self._aside = path.with_name(f".{path.stem}.part{path.suffix}")
        self._film: Any = None
        self._video: Any = None
        self._audio: Any = None
        self._samples = 0
        self._first: float | None = None
        self._last = -1

    def picture(self, frame: Frame) -> None:
        """Adds a picture at its time, counted from the first one's."""
        if self._film is None:
            self._open(frame)
        if self._first is None:
            self._first = frame.time
        image = frame.image[: frame.height // 2 * 2, : frame.width // 2 * 2]
        layout = "gray" if image.ndim == 2 else "bgr24"
        made = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format=layout)
        self._last = max(self._last + 1, round((frame.time - self._first) * 1000))
        made.pts, made.time_base = self._last, Fraction(1, 1000)
        self._write(self._video.encode(made))
        self.frames += 1

    def sound(self, piece: Sound) -> None:
        """Adds sound after what was added before; nothing before the first picture."""
        if self._audio is None:
            return
        values = np.ascontiguousarray(piece.samples.T, np.float32)
        made = av.AudioFrame.from_ndarray(
            values, format="fltp", layout="mono" if values.shape[0] == 1 else "stereo"
        )
        made.sample_rate, made.pts, made.time_base = (
            piece.rate,
            self._samples,
            Fraction(1, piece.rate),
        )
        self._samples += values.shape[1]
        self._write(self._audio.encode(made))

    def finish(self) -> None:
        """Closes the film and gives it its name; nothing if no picture came."""
        if self._film is None:
            return
        self._write(self._video.encode(None))
        if self._audio is not None:
            self._write(self._audio.encode(None))
        self._film.close()
        self._film = None
        if self._aside is None:
            self.path.flush()
        else:
            self._aside.replace(self.path)

    def abandon(self) -> None:
        """Removes what was written, unless it is finished."""
        if self._film is not None:
            with suppress(av.FFmpegError, OSError):
                self._film.close()
            self._film = None
        if self._aside is not None:
            self._aside.unlink(missing_ok=True)

    def _open(self, frame: Frame) -> None:
        try:
            film = (
                av.open(self.path, "w", format="mp4")
                if self._aside is None
                else av.open(str(self._aside), "w")
            )
            video = film.add_stream(self.codec, rate=Fraction(self.rate).limit_denominator(1001))
        except (av.FFmpegError, OSError, ValueError) as error:
            raise VideoError(f"cannot write `{self.path}`: {error}") from error
        video.width, video.height = frame.width // 2 * 2, frame.height // 2 * 2
        video.pix_fmt = "yuv420p"
        video.time_base = Fraction(1, 1000)
        video.thread_count = max(1, (os.cpu_count() or 2) // 2)
        if self.bit_rate:
            video.bit_rate = self.bit_rate
        if self.codec == "libx264":
            video.options = {"preset": "veryfast", "tune": "zerolatency"}
        self._film, self._video = film, video
        if self.sound_rate:
            self._audio = film.add_stream("aac", rate=self.sound_rate, layout="mono")

    def _write(self, packets: Any) -> None:
        try:
            self._film.mux(packets)
        except (av.FFmpegError, OSError) as error:
            raise VideoError(f"cannot write `{self.path}`: {error}") from error
