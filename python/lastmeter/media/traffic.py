"""What the programs send: a table like the document's Table 11, from counts of their own transfers (A-117).

A transfer is counted where it happens: capture (pictures from a camera), storage (a file written), retrieval (a file
read), display (pictures to a window).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: Published rows of Table 11: program, component, bits (a rate in bit/s, or a transfer), duration, gap.
TABLE_11: tuple[tuple[str, str, str, str, str], ...] = (
    ("Room Monitor", "capture", "6 Mb/s", "days", "-"),
    ("Room Monitor", "storage", "100 Mb", "seconds", "minutes"),
    ("Room Monitor", "retrieval", "100 Mb", "seconds", "seconds"),
    ("Room Monitor", "display", "6 Mb/s", "seconds", "seconds"),
    ("Whiteboard Recorder", "capture", "600 Kb/s", "days", "-"),
    ("Whiteboard Recorder", "storage", "600 Kb", "1 frame", "minutes"),
    ("Whiteboard Recorder", "retrieval", "600 Kb", "1 frame", "seconds"),
    ("Whiteboard Recorder", "display", "600 Kb", "1 frame", "seconds"),
    ("Video Rover", "capture", "6 Mb/s", "minutes", "minutes"),
    ("Video Rover", "display", "6 Mb/s", "minutes", "minutes"),
    ("News Browser", "capture", "6 Mb/s", "1/2 hour", "daily"),
    ("News Browser", "storage", "10 Gb", "1/2 hour", "daily"),
    ("News Browser", "retrieval", "500 Mb", "minutes", "minutes"),
    ("News Browser", "display", "6 Mb/s", "minutes", "minutes"),
    ("Sports Highlights", "capture", "6 Mb/s", "1/2 hour", "daily"),
    ("Sports Highlights", "storage", "10 Gb", "1/2 hour", "daily"),
    ("Sports Highlights", "retrieval", "100 Mb", "seconds", "seconds"),
    ("Sports Highlights", "display", "6 Mb/s", "seconds", "seconds"),
    ("Joke Browser", "capture", "6 Mb/s", "10 minutes", "daily"),
    ("Joke Browser", "storage", "3 Gb", "10 minutes", "daily"),
    ("Joke Browser", "retrieval", "100 Mb", "seconds", "seconds"),
    ("Joke Browser", "display", "6 Mb/s", "seconds", "seconds"),
)


#: The programs of the table, by the names that an index has for them.
NAMES = {
    "room": "Room Monitor",
    "board": "Whiteboard Recorder",
    "news": "News Browser",
    "jokes": "Joke Browser",
    "sport": "Sports Highlights",
}


@dataclass
class Component:
    """One kind of transfer of one program: instants and bytes of its subsessions, in seconds of the stream."""

    program: str
    component: str
    #: (begin, end, bytes) of each subsession.
    sessions: list[tuple[float, float, int]] = field(default_factory=list)

    def enter(self, begin: float, end: float, size: int) -> None:
        """Enters a transfer; one that begins when another ends goes on with it."""
        if self.sessions and begin <= self.sessions[-1][1] + 1.0:
            first, last, before = self.sessions[-1]
            self.sessions[-1] = (first, max(end, last), before + size)
        else:
            self.sessions.append((begin, end, size))

    def to_dict(self) -> dict[str, Any]:
        """Measured figures (bits, seconds) beside the published words."""
        published = next(row for row in TABLE_11 if row[:2] == (self.program, self.component))
        bits = [size * 8 for _, _, size in self.sessions]
        lasts = [end - begin for begin, end, _ in self.sessions]
        gaps = [b[0] - a[1] for a, b in zip(self.sessions, self.sessions[1:], strict=False)]
        total = sum(lasts)
        return {
            "program": self.program,
            "component": self.component,
            "subsessions": len(self.sessions),
            "bits": sum(bits) / max(1, len(bits)),
            "rate": sum(bits) / total if total > 0 else None,
            "duration": total / max(1, len(lasts)),
            "gap": sum(gaps) / len(gaps) if gaps else None,
            "published": {"bits": published[2], "duration": published[3], "gap": published[4]},
        }
