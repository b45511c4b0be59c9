"""Graphs in files: modules with their parameters, and what joins them.

::

    title = "edges of a test picture"
    pace = 1.0

    [modules]
    camera = { kind = "pattern", frames = 90 }
    edge = { kind = "edge" }
    window = { kind = "browser", port = 8080 }

    [[joints]]
    from = "camera"
    to = "edge"

    [[joints]]
    from = "edge.out"
    to = "window.in"

A chain may be written in a line: ``chains = ["camera -> edge -> window"]``.
"""

from __future__ import annotations

import difflib
import inspect
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from . import modules
from .bridge import PipelineSink, PipelineSource
from .captions import CaptionSource
from .graph import Graph, GraphError, Module, Source
from .network import CameraSource, DiskFile, WindowSink
from .payload import kind_name
from .room import Activity, RoomMonitor
from .scoreboard import Scoreboard
from .video import FileSink, FileSource
from .whiteboard import Whiteboard
from .window import BrowserSink
from .xwindow import XWindow

if TYPE_CHECKING:
    from collections.abc import Callable

#: Modules of one file.
MODULES_MAX = 1000


def _file(name: str, **rest: Any) -> FileSource:
    """A film in a file, or on a network disk (``nbd://host:port/token``)."""
    return FileSource(DiskFile(name) if name.startswith("nbd://") else name, **rest)


def _write(path: str, **rest: Any) -> FileSink:
    """Writes a film into a file, or on a network disk (``nbd://host:port/token``)."""
    return FileSink(DiskFile(path) if path.startswith("nbd://") else Path(path), **rest)


def _captions(path: str, **rest: Any) -> CaptionSource:
    """The captions of a file."""
    return CaptionSource(Path(path), **rest)


def _template(template: str, least: float = 0.8) -> modules.TemplateMatch:
    """Where the picture in a file is found in each frame, as an event ``match``."""
    image = cv2.imread(template)
    if image is None:
        raise GraphError(f"cannot read the picture `{template}`")
    return modules.TemplateMatch(np.asarray(image, np.uint8), least)


#: What a graph file can name.
MODULES: dict[str, tuple[type[Module], Callable[..., Module]]] = {
    "activity": (Activity, Activity),
    "browser": (BrowserSink, BrowserSink),
    "camera": (CameraSource, CameraSource),
    "captions": (CaptionSource, _captions),
    "difference": (modules.Difference, modules.Difference),
    "discard": (modules.Discard, modules.Discard),
    "edge": (modules.Edge, modules.Edge),
    "exercise": (modules.Exercise, modules.Exercise),
    "file": (FileSource, _file),
    "grey": (modules.Grey, modules.Grey),
    "jpeg-decode": (modules.JpegDecode, modules.JpegDecode),
    "jpeg-encode": (modules.JpegEncode, modules.JpegEncode),
    "keyframes": (modules.Keyframes, modules.Keyframes),
    "level": (modules.AudioLevel, modules.AudioLevel),
    "pattern": (modules.Pattern, modules.Pattern),
    "pipeline-sink": (PipelineSink, PipelineSink),
    "pipeline-source": (PipelineSource, PipelineSource),
    "perspective": (modules.Perspective, modules.Perspective),
    "room": (RoomMonitor, RoomMonitor),
    "scale": (modules.Scale, modules.Scale),
    "scoreboard": (Scoreboard, Scoreboard),
    "template": (modules.TemplateMatch, _template),
    "text": (modules.Text, modules.Text),
    "threshold": (modules.Threshold, modules.Threshold),
    "x-window": (XWindow, XWindow),
    "whiteboard": (Whiteboard, Whiteboard),
    "window": (WindowSink, WindowSink),
    "write": (FileSink, _write),
}


def kinds() -> str:
    """A line for each module that a file can name: ports, parameters, what it does."""
    lines = []
    for name, (kind, make) in MODULES.items():
        ports = [f"{port}: {kind_name(type_)}" for port, type_ in kind.inputs.items()]
        outs = [f"{port}: {kind_name(type_)}" for port, type_ in kind.outputs.items()]
        what = (inspect.getdoc(make) or "").split("\n\n")[0].replace("\n", " ")
        lines.append(
            f"{name}({', '.join(_parameters(make))})\n    {', '.join(ports) or '-'} --> {', '.join(outs) or '-'}\n    {what}"
        )
    return "\n".join(lines)


def _parameters(make: Callable[..., Module]) -> list[str]:
    parameters = inspect.signature(make).parameters.values()
    return [p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]


def load(path: Path) -> Graph:
    """The graph of a file; an error names the file and the key."""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise GraphError(f"{path}: {error}") from error
    try:
        return build(document, path.stem)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error


def build(document: dict[str, Any], title: str = "graph") -> Graph:
    """The graph of a document."""
    known = {"title", "pace", "modules", "joints", "chains"}
    for key in document:
        if key not in known:
            raise GraphError(f"`{key}` is unknown{_near(key, known)}")
    graph = Graph(title=str(document.get("title", title)))
    described = document.get("modules")
    if not isinstance(described, dict) or not described:
        raise GraphError(
            'a table `[modules]` is missing: write, for example, `camera = { kind = "pattern" }`'
        )
    if len(described) > MODULES_MAX:
        raise GraphError(f"{len(described)} modules; at most {MODULES_MAX}")
    for name, values in described.items():
        graph.add(name, _make(name, values, document.get("pace")))
    for number, chain in enumerate(document.get("chains", [])):
        ends = [end.strip() for end in str(chain).split("->")]
        if len(ends) < 2 or not all(ends):
            raise GraphError(
                f"chains[{number}]: `{chain}` joins nothing; write `camera -> edge -> window`"
            )
        for source, sink in zip(ends, ends[1:], strict=False):
            graph.join(source, sink)
    for number, joint in enumerate(document.get("joints", [])):
        if not isinstance(joint, dict) or set(joint) != {"from", "to"}:
            raise GraphError(f'joints[{number}]: write `from = "camera"` and `to = "edge"`')
        graph.join(str(joint["from"]), str(joint["to"]))
    return graph


def _make(name: str, values: Any, pace: float | None) -> Module:
    if not isinstance(values, dict) or "kind" not in values:
        raise GraphError(f"modules.{name}: `kind` is missing; there are {', '.join(MODULES)}")
    kind = values["kind"]
    if kind not in MODULES:
        raise GraphError(f"modules.{name}.kind: `{kind}` is unknown{_near(str(kind), MODULES)}")
    made_from, make = MODULES[kind]
    rest = {key: value for key, value in values.items() if key != "kind"}
    if pace is not None and issubclass(made_from, Source) and "pace" in _accepted(make, made_from):
        rest.setdefault("pace", pace)
    accepted = _accepted(make, made_from)
    for key in rest:
        if key not in accepted:
            raise GraphError(
                f"modules.{name}.{key}: `{kind}` has no such parameter{_near(key, accepted)}"
            )
    try:
        return make(**rest)
    except GraphError:
        raise
    except (TypeError, ValueError, OSError) as error:
        raise GraphError(f"modules.{name}: {error}") from error


def _accepted(make: Callable[..., Module], kind: type[Module]) -> list[str]:
    own = inspect.signature(make).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in own.values()):
        return [
            *_parameters(make),
            *(p for p in inspect.signature(kind).parameters if p not in ("name", "path")),
        ]
    return _parameters(make)


def _near(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean `{near[0]}`?" if near else f"; there are {', '.join(known)}"
