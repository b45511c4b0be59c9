"""What modules hand to each other: a picture, a piece of sound, a caption, or an event.

A payload carries the instant of the stream to which it belongs and how long it lasts, both in seconds. Its
data are handed on, never copied: a module that changes a picture makes a new one with :meth:`Payload.derive`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: A picture: rows, columns, and for colour a third axis of blue, green, red; 8 bits each.
Image: TypeAlias = NDArray[np.uint8]
#: Sound: one row a sample, one column a channel, from -1 to 1.
Samples: TypeAlias = NDArray[np.float32]


#: What reads all fields of a payload, by its type.
_FIELDS: dict[type[Payload], attrgetter[Any]] = {}


#: A module that a payload passed, how long it waited there and was worked on, in seconds, and the visit before. A
#: tuple, as one is made for each payload in each module.
Visit: TypeAlias = "tuple[str, float, float, Visit | None]"


def passed(visit: Visit | None) -> list[str]:
    """The modules that were passed, the first first.

    >>> passed(("sink", 0.0, 0.1, ("source", 0.2, 0.0, None)))
    ['source', 'sink']
    """
    found: list[str] = []
    while visit is not None:
        found.append(visit[0])
        visit = visit[3]
    return found[::-1]


@dataclass(slots=True)
class Payload:
    """What all payloads have."""

    #: When it begins, in seconds of the stream.
    time: float
    #: How long it lasts, in seconds; 0 if it is an instant.
    duration: float = 0.0
    #: Where it comes from, if a stream mixes several.
    channel: str = ""
    #: When its source had it, on the dispatcher's clock; set by the graph.
    born: float = field(default=0.0, compare=False)
    #: The modules that it passed, the last first; set by the graph.
    visits: Visit | None = field(default=None, compare=False, repr=False)

    def derive(self, **changed: Any) -> Self:
        """The same payload with some fields changed; data that are not changed are shared.

        >>> import numpy as np
        >>> frame = Frame(time=2.0, image=np.zeros((2, 2), np.uint8))
        >>> frame.derive(time=3.0).image is frame.image
        True
        """
        kind = type(self)
        fields = _FIELDS.get(kind)
        if fields is None:
            fields = _FIELDS[kind] = attrgetter(*kind.__dataclass_fields__)
        other = kind(*fields(self))
        for name, value in changed.items():
            if name not in kind.__dataclass_fields__:
                raise TypeError(f"{kind.__name__} has no {name}")
            setattr(other, name, value)
        return other

    @property
    def end(self) -> float:
        """When it ends, in seconds of the stream."""
        return self.time + self.duration

    @property
    def size(self) -> int:
        """Bytes of data."""
        return 0


@dataclass(slots=True)
class Frame(Payload):
    """A picture of a film."""

    image: Image = field(default_factory=lambda: np.zeros((0, 0), np.uint8), repr=False)
    number: int = 0
    #: Whether a coded stream can be entered here.
    key: bool = False

    @property
    def size(self) -> int:
        return self.image.nbytes

    @property
    def width(self) -> int:
        """Columns."""
        return int(self.image.shape[1])

    @property
    def height(self) -> int:
        """Rows."""
        return int(self.image.shape[0])


@dataclass(slots=True)
class Sound(Payload):
    """A piece of sound."""

    samples: Samples = field(default_factory=lambda: np.zeros((0, 1), np.float32), repr=False)
    #: Samples a second.
    rate: int = 16000

    @property
    def size(self) -> int:
        return self.samples.nbytes


@dataclass(slots=True)
class Caption(Payload):
    """A line of text that belongs to a time, as closed captions have it."""

    text: str = ""

    @property
    def size(self) -> int:
        return len(self.text.encode())


@dataclass(slots=True)
class Coded(Payload):
    """A picture in a coded form (``jpeg``), as it is stored or sent."""

    data: bytes | memoryview = field(default=b"", repr=False)
    form: str = "jpeg"
    number: int = 0

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass(slots=True)
class Event(Payload):
    """Something that happened: ``occupied``, ``page``, ``cut``."""

    name: str = ""
    values: dict[str, Any] = field(default_factory=dict)


#: The types of ports, by the names that graph files use.
KINDS: dict[str, type[Payload]] = {
    "any": Payload,
    "caption": Caption,
    "coded": Coded,
    "event": Event,
    "frame": Frame,
    "sound": Sound,
}


def kind_name(kind: type[Payload]) -> str:
    """The name of a type of ports.

    >>> kind_name(Frame)
    'frame'
    """
    return next(name for name, known in KINDS.items() if known is kind)
