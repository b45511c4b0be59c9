"""A bridge to GStreamer, where it is installed: pictures from a pipeline, and pictures into one.

A pipeline is text as ``gst-launch-1.0`` takes it. It runs as a program of its own, which hands raw pictures through a
pipe: nothing of GStreamer is loaded into this process, and a pipeline that crashes ends its source, not the graph.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import numpy as np

from .ahead import Ahead
from .graph import GraphError, Module
from .payload import Frame, Payload

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The program that runs pipelines.
LAUNCH = "gst-launch-1.0"
#: Seconds that a pipeline has to end.
PATIENCE = 5.0


def _launch(
    pipeline: list[str], *, stdin: int | None = None, stdout: int | None = None
) -> subprocess.Popen[bytes]:
    program = shutil.which(LAUNCH)
    if program is None:
        raise GraphError(f"`{LAUNCH}` is not installed (Debian: gstreamer1.0-tools)")
    return subprocess.Popen([program, "-q", *pipeline], stdin=stdin, stdout=stdout)


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    for file in (process.stdin, process.stdout):
        if file is not None:
            file.close()
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class PipelineSource(Ahead):
    """Pictures that a pipeline makes, scaled to a size: ``videotestsrc num-buffers=30``."""

    outputs = {"out": Frame}

    def __init__(
        self, pipeline: str, *, width: int = 640, height: int = 480, rate: int = 30
    ) -> None:
        super().__init__()
        self.pipeline, self.width, self.height, self.rate = pipeline, width, height, rate
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        form = f"video/x-raw,format=BGR,width={self.width},height={self.height}"
        line = f"{self.pipeline} ! videoconvert ! videoscale ! videorate ! "
        line += f"{form},framerate={self.rate}/1 ! fdsink fd=1"
        self._process = _launch(line.split(), stdout=subprocess.PIPE)

    def items(self) -> Iterator[tuple[str, Payload]]:
        assert self._process is not None and self._process.stdout is not None
        # GStreamer begins each row at a multiple of four bytes.
        stride = (self.width * 3 + 3) // 4 * 4
        number = 0
        while True:
            data = self._process.stdout.read(stride * self.height)
            if len(data) < stride * self.height:
                return
            rows = np.frombuffer(data, np.uint8).reshape(self.height, stride)
            image = rows[:, : self.width * 3].reshape(self.height, self.width, 3)
            yield "out", Frame(number / self.rate, 1 / self.rate, image=image, number=number)
            number += 1

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()  # So that the thread's read returns.
        super().close()
        _end(self._process)


class PipelineSink(Module):
    """Pictures into a pipeline: ``autovideosink``, or ``x264enc ! mp4mux ! filesink location=film.mp4``."""

    inputs = {"in": Frame}

    def __init__(self, pipeline: str, *, rate: int = 30) -> None:
        super().__init__()
        self.pipeline, self.rate = pipeline, rate
        self._process: subprocess.Popen[bytes] | None = None
        self._size = (0, 0)

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Frame)
        if self._process is None:
            self._open(payload)
        assert self._process is not None and self._process.stdin is not None
        if (payload.width, payload.height) != self._size:
            self.drop("another size")
            return
        try:
            self._process.stdin.write(np.ascontiguousarray(payload.image).tobytes())
        except BrokenPipeError:
            self.drop("the pipeline ended")
            return
        self.graph.arrived(self, payload)

    def _open(self, frame: Frame) -> None:
        self._size = (frame.width, frame.height)
        form = "gray8" if frame.image.ndim == 2 else "bgr"
        line = (
            f"fdsrc fd=0 ! rawvideoparse format={form} width={frame.width} height={frame.height} "
        )
        line += f"framerate={self.rate}/1 ! videoconvert ! {self.pipeline}"
        self._process = _launch(line.split(), stdin=subprocess.PIPE)

    def finish(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(PATIENCE)

    def close(self) -> None:
        _end(self._process)
