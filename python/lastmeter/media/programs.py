"""The programs: each takes a film, a camera or a generated film, and leaves what it found in an index."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import cv2

from . import films, films_spoken, modules
from .captions import parse, to_vtt
from .graph import Graph, Module
from .index import Clip, Index, thumbnail_name
from .network import CameraSource, DiskFile, WindowSink
from .payload import Event, Frame, Image, Payload, Sound
from .room import Activity, RoomMonitor
from .scoreboard import Scoreboard
from .shows import Puzzle, Rover
from .spoken import Spoken, jokes, stories
from .traffic import Component
from .video import FileSource, Writer, decode, open_film
from .whiteboard import Whiteboard, to_pdf
from .window import BrowserSink
from .xwindow import XWindow

if TYPE_CHECKING:
    from collections.abc import Callable

    from .graph import Source

#: Seconds of a highlight before and after the score changes.
BEFORE, AFTER = 8.0, 4.0
#: The generated films, by name.
FILMS: dict[str, Callable[[int], films.Film]] = {
    "room": films.room,
    "board": films.board,
    "news": films_spoken.news,
    "comedy": films_spoken.comedy,
    "sport": films_spoken.sport,
}


class ProgramError(ValueError):
    """Input that a program cannot use; the message says what would be right."""


@dataclass
class Watched:
    """What a program left: its graph, its clips, and its own traffic."""

    graph: Graph
    clips: list[Clip] = field(default_factory=list)
    traffic: list[Component] = field(default_factory=list)


def source(name: str, *, pace: float = 0.0, live: bool = False) -> Source:
    """A film by path, address, ``nbd://`` or ``generated:NAME:SEED``."""
    if name.startswith("generated:"):
        _, kind, seed = [*name.split(":"), "1", "1"][:3]
        if kind not in FILMS or not seed.isdigit():
            raise ProgramError(
                f"`{name}` is no generated film; write `generated:NAME:SEED` with {', '.join(FILMS)}"
            )
        return FILMS[kind](int(seed)).source(pace)
    if live or name.startswith(("rtsp://", "http://", "https://", "/dev/video")):
        return CameraSource(name)
    if name.startswith("nbd://"):
        return FileSource(DiskFile(name), pace=pace)
    if not Path(name).is_file():
        raise ProgramError(
            f"no film `{name}`: a path, an address, `nbd://host:port/token` or `generated:NAME:SEED`"
        )
    return FileSource(name, pace=pace)


class _Capture(Module):
    """Counts what comes from the camera, and hands it on."""

    inputs = {"in": Frame}
    outputs = {"out": Frame}

    def __init__(self, component: Component) -> None:
        super().__init__()
        self.component = component

    def process(self, port: str, payload: Payload) -> None:
        self.component.enter(payload.time, payload.end, payload.size)
        self.send("out", payload.derive())


class _Last(Module):
    """The end of a graph."""

    inputs = {"in": Event}

    def process(self, port: str, payload: Payload) -> None:
        self.graph.arrived(self, payload)


def room(
    name: str,
    folder: Path,
    index: Index,
    *,
    live: bool = False,
    pace: float = 0.0,
    seconds: float | None = None,
    keep: int = 10_000_000_000,
    region: tuple[int, int, int, int] | None = None,
) -> Watched:
    """Room Monitor, of the whole picture or of a region: left, top, width, height."""
    graph = Graph(title=f"Room Monitor: {name}")
    film = index.film(name)
    index.forget(film, "room")
    capture = Component("Room Monitor", "capture")
    storage = Component("Room Monitor", "storage")
    graph.add("camera", source(name, pace=pace, live=live))
    graph.add("capture", _Capture(capture))
    monitor = graph.add(
        "monitor",
        RoomMonitor(folder, index, film=name, keep=keep, activity=Activity(region=region)),
    )
    graph.add("events", _Last())
    graph.join("camera.out", "capture")
    graph.join("capture.out", "monitor.in")
    graph.join("monitor.out", "events.in")
    graph.run(seconds)
    clips = index.clips("room", film=film)
    assert isinstance(monitor, RoomMonitor)
    for clip in clips:
        path = folder / clip.path
        if clip.path and path.is_file():
            storage.enter(clip.begin, clip.end, path.stat().st_size)
            _thumbnail(
                path, folder / thumbnail_name(clip.id), monitor.pre + 0.6 * (clip.end - clip.begin)
            )
    return Watched(graph, clips, [capture, storage])


def _thumbnail(film: Path, picture: Path, at: float) -> None:
    """A small picture of a film at an instant, or of a shorter film its last."""
    last: Image | None = None
    with open_film(film) as opened:
        for _, payload in decode(opened, True, max(0.0, at - 1.0), at + 1.0):
            if isinstance(payload, Frame):
                last = payload.image
                if payload.time >= at:
                    break
    if last is not None:
        cv2.imwrite(str(picture), cv2.resize(last, (160, 120), interpolation=cv2.INTER_AREA))


def _thumbnails(name: str, folder: Path | None, clips: list[Clip]) -> None:
    """Small pictures of clips that are parts of a film; none if the film is no file."""
    if folder is None or not Path(name).is_file():
        return
    for clip in clips:
        at = clip.more.get("at", clip.begin + 1.0)
        _thumbnail(Path(name), folder / thumbnail_name(clip.id), at)


def board(
    name: str,
    folder: Path,
    index: Index,
    *,
    corners: list[tuple[float, float]] | None = None,
    pdf: Path | None = None,
    seconds: float | None = None,
) -> Watched:
    """Whiteboard Recorder."""
    graph = Graph(title=f"Whiteboard Recorder: {name}")
    film = index.film(name)
    index.forget(film, "board")
    capture, storage = (
        Component("Whiteboard Recorder", "capture"),
        Component("Whiteboard Recorder", "storage"),
    )
    graph.add("camera", source(name))
    graph.add("capture", _Capture(capture))
    recorder = graph.add("recorder", Whiteboard(corners, index=index, folder=folder, film=name))
    pages = graph.add("pages", modules.Collect())
    graph.add("events", _Last())
    graph.join("camera.out", "capture")
    graph.join("capture.out", "recorder.in")
    graph.join("recorder.out", "pages.in")
    graph.join("recorder.pages", "events.in")
    graph.run(seconds)
    assert isinstance(recorder, Whiteboard)
    if not recorder.pages and recorder.dropped["no board"]:
        raise ProgramError(
            f"no board found in `{name}`: give its corners, `--corners 10,20,300,25,290,200,15,210`"
        )
    for clip, page in zip(index.clips("board", film=film), recorder.pages, strict=True):
        storage.enter(page.end, page.end, (folder / clip.path).stat().st_size)
    if pdf is not None:
        to_pdf(recorder.pages, pdf)
    assert len(pages.payloads) == len(recorder.pages)
    return Watched(graph, index.clips("board", film=film), [capture, storage])


def _listen(name: str, captions: Path | None, title: str) -> tuple[Graph, Spoken, Component, float]:
    graph = Graph(title=title)
    program = title.split(":")[0]
    capture = Component(program, "capture")
    graph.add("film", source(name))
    graph.add("capture", _Capture(capture))
    found = graph.add("found", Spoken())
    graph.join("film.out", "capture")
    graph.join("capture.out", "found.in")
    graph.join("film.sound", "found.sound")
    if captions is None:
        graph.join("film.captions", "found.captions")
    graph.run()
    if captions is not None:
        found.captions = parse(captions.read_text(encoding="utf-8", errors="replace"))
    if not found.captions:
        raise ProgramError(
            f"`{name}` has no captions: give a file of them (WebVTT or SubRip) with --captions"
        )
    return graph, found, capture, found.seconds


def _stored(name: str, program: str, seconds: float) -> list[Component]:
    """The film as it is stored, of a program that takes a film in a file."""
    if not Path(name).is_file():
        return []
    storage = Component(program, "storage")
    storage.enter(0.0, seconds, Path(name).stat().st_size)
    return [storage]


def news(
    name: str, index: Index, *, captions: Path | None = None, folder: Path | None = None
) -> Watched:
    """News Browser: its stories into the index, with what is said in each."""
    graph, found, capture, seconds = _listen(name, captions, f"News Browser: {name}")
    film = index.film(name, seconds=seconds)
    index.forget(film, "news")
    for story in stories(found):
        said = [cue for cue in found.captions if story.begin <= cue.time < story.end]
        index.add(film, Clip("news", story.begin, story.end, story.title, story.evidence), said)
    clips = index.clips("news", film=film)
    _thumbnails(name, folder, clips)
    return Watched(graph, clips, [capture, *_stored(name, "News Browser", seconds)])


def comedy(
    name: str, index: Index, *, captions: Path | None = None, folder: Path | None = None
) -> Watched:
    """Joke Browser: jokes into the index, ranked by laughter."""
    graph, found, capture, seconds = _listen(name, captions, f"Joke Browser: {name}")
    film = index.film(name, seconds=seconds)
    index.forget(film, "jokes")
    for joke in jokes(found):
        said = [cue for cue in found.captions if joke.begin <= cue.time < joke.end]
        title = joke.text if len(joke.text) <= 60 else joke.text[:57].rsplit(" ", 1)[0] + " ..."
        index.add(film, Clip("jokes", joke.begin, joke.end, title, joke.laughter), said)
    clips = index.clips("jokes", film=film, ranked=True)
    _thumbnails(name, folder, clips)
    return Watched(graph, clips, [capture, *_stored(name, "Joke Browser", seconds)])


def sport(
    name: str,
    index: Index,
    *,
    region: tuple[int, int, int, int] | None = None,
    folder: Path | None = None,
) -> Watched:
    """Sports Highlight Browser: a clip around each change of the score."""
    graph = Graph(title=f"Sports Highlights: {name}")
    capture = Component("Sports Highlights", "capture")
    graph.add("film", source(name))
    graph.add("capture", _Capture(capture))
    found = graph.add("scoreboard", Scoreboard(region))
    graph.add("events", _Last())
    graph.join("film.out", "capture")
    graph.join("capture.out", "scoreboard.in")
    graph.join("scoreboard.out", "events.in")
    graph.run()
    if found.region is None:
        raise ProgramError(
            f"no scoreboard found in `{name}`: give its place, `--region 16,200,88,20`"
        )
    film = index.film(name, seconds=capture.sessions[-1][1] if capture.sessions else None)
    index.forget(film, "sport")
    for number, highlight in enumerate(found.highlights, 1):
        begin, score = max(0.0, highlight.time - BEFORE), highlight.score
        clip = Clip(
            "sport",
            begin,
            highlight.time + AFTER,
            f"change {number} of the score" if score is None else f"{score[0]}:{score[1]}",
            more={"at": highlight.time, "score": score},
        )
        index.add(film, clip)
    clips = index.clips("sport", film=film)
    _thumbnails(name, folder, clips)
    lasts = capture.sessions[-1][1] if capture.sessions else 0.0
    return Watched(graph, clips, [capture, *_stored(name, "Sports Highlights", lasts)])


def rover(
    names: list[str],
    *,
    display: str = "",
    token: str = "",
    port: int = 0,
    seconds: float | None = None,
    said: Callable[[str], object] = print,
) -> Watched:
    """Video Rover: several cameras in one window, on a network display or in a browser."""
    graph = Graph(title="Video Rover")
    capture, display_part = Component("Video Rover", "capture"), Component("Video Rover", "display")
    window = graph.add("rover", Rover(len(names)))
    for number, name in enumerate(names):
        graph.add(f"camera{number}", source(name, pace=1.0))
        graph.add(f"capture{number}", _Capture(capture))
        graph.join(f"camera{number}.out", f"capture{number}")
        graph.join(f"capture{number}.out", f"rover.camera{number}")
    assert isinstance(window, Rover)
    show(
        graph,
        "rover.out",
        display=display,
        token=token,
        port=port,
        said=said,
        component=display_part,
    )
    graph.run(seconds)
    return Watched(graph, [], [capture, display_part])


def puzzle(
    name: str,
    *,
    side: int = 4,
    seed: int = 1,
    display: str = "",
    token: str = "",
    port: int = 0,
    seconds: float | None = None,
    said: Callable[[str], object] = print,
) -> Watched:
    """The puzzle: a live picture in tiles, which slide by themselves, one a second, until somebody plays in the browser."""
    graph = Graph(title="Puzzle")
    graph.add("camera", source(name, pace=1.0))
    game = graph.add("puzzle", Puzzle(side, seed))
    graph.join("camera.out", "puzzle.in")
    window = show(graph, "puzzle.out", display=display, token=token, port=port, said=said)
    if isinstance(window, XWindow):
        window.on_key = game.press
    if isinstance(window, BrowserSink):
        window.on_key, window.words = game.press, lambda: game.words

    def slide() -> None:
        if game.moves:
            return
        game.slide(game._neighbours()[game.handled % len(game._neighbours())])
        if not graph.stopped and not game.drained:
            graph.dispatcher.timeout(graph.dispatcher.now() + 1.0, slide)

    graph.dispatcher.timeout(graph.dispatcher.now() + 1.0, slide)
    graph.run(seconds)
    return Watched(graph)


def show(
    graph: Graph,
    output: str,
    *,
    display: str = "",
    token: str = "",
    port: int = 0,
    said: Callable[[str], object] = print,
    component: Component | None = None,
) -> Module:
    """Joins an output to a window, which it returns: on a network display, on an X screen (``x11::0``), or in a browser."""
    if component is not None:
        graph.add("shown", _Capture(component))
        graph.join(output, "shown.in")
        output = "shown.out"
    if display.startswith("x11:"):
        window: Module = graph.add("window", XWindow(display.removeprefix("x11:")))
    elif display:
        window = graph.add("window", WindowSink(display, token))
    else:
        sink = window = graph.add("window", BrowserSink(port))
        sink.title = graph.title
        started = sink.begin

        def begin() -> None:
            started()
            said(f"watch it at http://127.0.0.1:{sink.port}/")

        sink.begin = begin
    graph.join(output, "window.in")
    return window


def write_film(name: str, seed: int, folder: Path) -> list[Path]:
    """Writes a generated film with its sound, captions and truth; returns the files."""
    film = FILMS[name](seed)
    path = folder / f"{name}-{seed}.mp4"
    writer = Writer(path, rate=film.rate, sound_rate=films.SOUND if film.sound is not None else 0)
    for _, payload in film.source().items():
        if isinstance(payload, Frame):
            writer.picture(payload)
        elif isinstance(payload, Sound):
            writer.sound(payload)
    writer.finish()
    files = [path]
    if film.captions:
        files.append(path.with_suffix(".vtt"))
        files[-1].write_text(to_vtt(film.captions), encoding="utf-8")
    truth = [{"begin": span.begin, "end": span.end, "what": span.what} for span in film.truth]
    files.append(path.with_suffix(".truth.json"))
    files[-1].write_text(json.dumps(truth, indent=1), encoding="utf-8")
    return files


__all__ = [
    "ProgramError",
    "Watched",
    "board",
    "comedy",
    "news",
    "puzzle",
    "room",
    "rover",
    "source",
    "sport",
    "write_film",
]
