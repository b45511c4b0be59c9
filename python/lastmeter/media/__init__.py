"""Programs for pictures: modules in the band of a stream, one dispatcher, and what can be made of them.

>>> from lastmeter.media import Graph, modules
>>> graph = Graph(title="edges")
>>> _ = graph.add("pattern", modules.Pattern(frames=3))
>>> _ = graph.add("edge", modules.Edge())
>>> found = graph.add("found", modules.Collect())
>>> graph.join("pattern", "edge"); graph.join("edge", "found")
>>> graph.run()
>>> [frame.image.shape for frame in found.payloads]
[(480, 640), (480, 640), (480, 640)]

It needs OpenCV and PyAV: ``pip install lastmeter[media]``.

Rows: A-05.
"""

from . import modules
from .dispatcher import Dispatcher, Lateness, Virtual, Wall
from .graph import Graph, GraphError, Module, Source
from .index import Clip, Index
from .payload import Caption, Coded, Event, Frame, Payload, Sound

__all__ = [
    "Caption",
    "Clip",
    "Coded",
    "Dispatcher",
    "Event",
    "Frame",
    "Graph",
    "GraphError",
    "Index",
    "Lateness",
    "Module",
    "Payload",
    "Sound",
    "Source",
    "Virtual",
    "Wall",
    "modules",
]
